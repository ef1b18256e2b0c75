// Checks the kernels that this processor runs against stored values, without Python and without XLA.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

#include "evolve_kernels.h"
#include "kernels.h"
#include "values.h"
#include "xbar/random.h"

namespace {

using xbar::Arrays;
using xbar::CellParameter;

constexpr int kCells = values::kRows * values::kCols;

int checks = 0, failures = 0;

__attribute__((format(printf, 2, 3))) void report(bool good, const char* format, ...) {
  ++checks;
  failures += !good;
  std::printf(good ? "ok    " : "FAIL  ");
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

template <class T>
Arrays<T> shared(T* ptr) {
  return {ptr, 0};
}

template <class T>
int differing(const std::vector<T>& got, const T* expected) {
  int n = 0;
  for (size_t i = 0; i < got.size(); ++i) n += got[i] != expected[i];
  return n;
}

// The larger error; what is not a number is infinitely wrong.
double worse(double most, double error) { return std::isnan(error) ? INFINITY : std::max(most, std::fabs(error)); }

// Every bit of every result, for comparing one processor with another (FNV-1a).
uint32_t digest = 0x811c9dc5u;

template <class T>
void add_to_digest(const std::vector<T>& results) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(results.data());
  for (size_t i = 0; i < results.size() * sizeof(T); ++i) digest = (digest ^ bytes[i]) * 0x01000193u;
}

struct Answer {
  uint32_t key[2], counter[2], words[2];
};
// Of threefry2x32-20, from kat_vectors of Random123 (Salmon et al., SC 2011).
const Answer kAnswers[] = {
    {{0, 0}, {0, 0}, {0x6b200159, 0x99ba4efe}},
    {{0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x1cb996fc, 0xbb002be7}},
    {{0x13198a2e, 0x03707344}, {0x243f6a88, 0x85a308d3}, {0xc4923a9c, 0x483df7a0}},
};

void check_random_words() {
  int wrong = 0;
  for (const Answer& a : kAnswers) {
    uint32_t x = a.counter[0], y = a.counter[1];
    xbar::threefry(a.key[0], a.key[1], x, y);
    wrong += x != a.words[0] || y != a.words[1];
  }
  report(wrong == 0, "threefry2x32-20: 3 known answers");
}

// The same answers from the kernel itself, in every lane: the read of one cell of conductance 0 and spread 1 is the
// normal number of its two words, here by its definition in double precision.
void check_normal_numbers() {
  constexpr int kLanesAtMost = 16;
  const float g[kLanesAtMost] = {}, v = 1, std = 1;
  double most = 0;
  for (const Answer& a : kAnswers) {
    const double u = ((a.words[0] >> 8) + 0.5) * std::ldexp(1.0, -24);
    const double turn = std::ldexp((a.words[1] & 0x3fffffffu) >> 6, -24) - 0.5 + (a.words[1] >> 30);
    const double expected = std::sqrt(-2 * std::log(u)) * std::cos(std::acos(-1.0) / 2 * turn);
    for (int lane = 0; lane < kLanesAtMost; ++lane) {
      const uint32_t origin[] = {a.counter[0], a.counter[1] - static_cast<uint32_t>(lane)};
      float i[kLanesAtMost] = {};
      xbar::kernels().read(
          {1, 1, kLanesAtMost, shared(g), shared(&v), {&std, 0, 0, 0}, shared(a.key), shared(origin), shared(i)}, 0, 0,
          kLanesAtMost);
      most = worse(most, i[lane] - expected);
    }
  }
  report(most <= 1e-6, "normal numbers of these answers, in every lane: within %.1e", most);
}

void check_trains(const char* name, int lines, const int32_t* thresholds, const uint32_t* first,
                  const uint32_t* expected) {
  std::vector<uint32_t> trains(values::kSamples * values::kWords * lines);
  xbar::kernels().trains({1, values::kSamples, values::kWords, lines, shared(thresholds), shared(values::slots),
                          shared(values::keys), shared(first), shared(trains.data())},
                         0, 0, values::kSamples);
  const int wrong = differing(trains, expected);
  report(wrong == 0, "trains of %s: %d of %zu words differ", name, wrong, trains.size());
}

// Weights and pulse counts of one device, by trains or by counts. Some rows have noise, some have none.
void check_pulses(const values::Device& device, const char* name, bool counted, int only, const float* weights,
                  const int32_t* pulses) {
  const xbar::PulseKernel* kernel = xbar::kernels().find(device.name);
  if (!kernel) return report(false, "%s %s: no kernel", device.name, name);
  std::vector<CellParameter> parameters;
  for (int k = 0; k < device.n_parameters; ++k) {
    const values::Parameter& p = device.parameters[k];
    parameters.push_back({p.ptr, 0, p.rows == 1 ? 0 : p.cols, p.cols == 1 ? 0 : 1});
  }
  std::vector<float> w(values::w, values::w + kCells);
  std::vector<int32_t> n(kCells);
  xbar::PulseArguments a{};
  a.arrays = 1;
  a.rows = values::kRows;
  a.cols = values::kCols;
  a.samples = values::kSamples;
  a.words = values::kWords;
  a.w_in = shared<const float>(w.data());  // in place
  a.w = shared(w.data());
  a.pulses = shared(n.data());
  if (counted) {
    a.counts = shared(values::counts);
  } else {
    a.row_trains = shared(values::row_trains);
    a.col_trains = shared(values::col_trains);
  }
  a.keys = shared(values::keys);
  a.origin = shared(values::origin);
  a.only = only;
  a.n_parameters = device.n_parameters;
  kernel->run(a, parameters.data(), 0, 0, values::kRows);
  const int wrong = differing(n, pulses);
  double noisy = 0, silent = 0;
  for (int i = 0; i < kCells; ++i) {
    double& most = values::spread[i / values::kCols] != 0 ? noisy : silent;
    most = worse(most, static_cast<double>(w[i]) - weights[i]);
  }
  add_to_digest(w);
  report(wrong == 0 && noisy <= 2e-6 && silent <= 2e-6,
         "%s %s: %d of %d pulse counts differ, weights within %.1e with noise, %.1e without", device.name, name, wrong,
         kCells, noisy, silent);
}

void check_devices() {
  const xbar::Kernels& kernels = xbar::kernels();
  for (int k = 0; k < kernels.n_devices; ++k) {
    const char* name = kernels.pulses[k].device;
    const values::Device* device = std::find_if(std::begin(values::devices), std::end(values::devices),
                                                [&](const auto& d) { return !std::strcmp(d.name, name); });
    if (device == std::end(values::devices)) {
      report(false, "%s: no stored values", name);
      continue;
    }
    check_pulses(*device, "by trains", false, 0, device->by_trains, values::pulses_by_trains);
    check_pulses(*device, "by counts", true, 0, device->by_counts, values::pulses_by_counts);
    if (!std::strcmp(name, "linear_step"))
      check_pulses(*device, "by trains, down", false, -1, values::linear_step_only_down, values::pulses_only_down);
  }
}

// How far the cells of one dynamic device move, against the JAX form: of the displacement and of the range. Iterations
// to a tolerance, so that processors need not agree bit for bit.
void check_motion(const xbar::EvolveKernel& kernel) {
  const values::Motion* motion = std::find_if(std::begin(values::motions), std::end(values::motions),
                                              [&](const auto& m) { return !std::strcmp(m.name, kernel.device); });
  if (motion == std::end(values::motions)) return report(false, "%s: no stored values", kernel.device);
  if (motion->n_parameters != kernel.parameters)
    return report(false, "%s: %d stored parameters, the kernel takes %lld", kernel.device, motion->n_parameters,
                  static_cast<long long>(kernel.parameters));
  std::vector<CellParameter> parameters;
  for (int k = 0; k < motion->n_parameters; ++k) {
    const values::Parameter& p = motion->parameters[k];
    parameters.push_back({p.ptr, 0, p.rows == 1 ? 0 : p.cols, p.cols == 1 ? 0 : 1});
  }
  std::vector<float> d(kCells);
  std::vector<int32_t> end(kCells), panels(kCells);
  kernel.run({1, values::kRows, values::kCols, shared(motion->x), shared(motion->v), shared(motion->t),
              shared(d.data()), shared(end.data()), shared(panels.data())},
             parameters.data(), 0, 0, kCells);
  double most = 0;
  for (int i = 0; i < kCells; ++i)
    most = worse(most, (d[i] - static_cast<double>(motion->d[i])) /
                           (3e-4 * std::fabs(motion->d[i]) + 1e-5 * static_cast<double>(*motion->range)));
  report(most <= 1, "%s: motions within %.2f of what is allowed", kernel.device, most);
}

void check_read() {
  std::vector<float> i(values::kCols);
  xbar::kernels().read({1,
                        values::kRows,
                        values::kCols,
                        shared(values::g),
                        shared(values::v),
                        {values::std, 0, 0, 1},
                        shared(values::keys),
                        shared(values::origin),
                        shared(i.data())},
                       0, 0, values::kCols);
  double most = 0;
  for (int j = 0; j < values::kCols; ++j) most = worse(most, i[j] / static_cast<double>(values::currents[j]) - 1);
  add_to_digest(i);
  report(most <= 1e-6, "noisy read: %d currents within %.1e, relative", values::kCols, most);
}

}  // namespace

int main() {
#if defined(__aarch64__)
  const char* processor = "aarch64";
#elif defined(__x86_64__)
  const char* processor = "x86-64";
#else
  const char* processor = "another processor";
#endif
  std::printf("kernels: %s on %s\n", xbar::kernels().isa, processor);
  check_random_words();
  check_normal_numbers();
  check_trains("rows", values::kRows, values::row_thresholds, &values::origin[0], values::row_trains);
  check_trains("columns", values::kCols, values::col_thresholds, &values::origin[1], values::col_trains);
  check_devices();
  check_read();
  const xbar::EvolveKernels& motions = xbar::evolve_kernels();
  for (int k = 0; k < motions.n_devices; ++k) check_motion(motions.all[k]);
  std::printf("%d of %d checks failed; digest of the results %08x\n", failures, checks, digest);
  return failures != 0;
}
