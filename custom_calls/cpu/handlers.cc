// XLA's side of the CPU kernels: check the operands, cut the work into chunks, run.
#include "xbar/handlers.h"

#include <algorithm>

#include "kernels.h"
#include "parallel.h"

namespace xbar {

// Cells times samples that are worth a task of their own.
constexpr int64_t kWork = 1 << 15;

// Calls run(array, first, last) for pieces of [0, n) of every array; `work` is that of one of the n.
template <class Run>
static void in_pieces(ffi::ThreadPool& pool, int64_t arrays, int64_t n, int64_t work, int64_t multiple,
                      const Run& run) {
  if (n == 0) return;
  int64_t piece = std::clamp<int64_t>(kWork / std::max<int64_t>(work, 1), 1, n);
  piece = (piece + multiple - 1) / multiple * multiple;
  const int64_t pieces = (n + piece - 1) / piece;
  parallel_for(pool, arrays * pieces, [&](int64_t i) {
    const int64_t first = (i % pieces) * piece;
    run(i / pieces, first, std::min(first + piece, n));
  });
}

static ffi::Error run(ffi::ThreadPool& pool, PulseCall& call, std::string_view device) {
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  const PulseKernel* kernel = kernels().find(device);
  if (!kernel) return invalid("no kernel for device " + std::string(device));
  if (static_cast<int64_t>(call.parameters.size()) < kernel->parameters) return too_few(device, kernel->parameters);
  for (int64_t outer = 0; outer < call.batch.outer; ++outer) {
    CellParameter parameters[kMaxParameters];
    const PulseArguments a = call.at(outer, parameters);
    in_pieces(pool, a.arrays, a.cols == 0 ? 0 : a.rows, a.cols * a.samples, 1,
              [&](int64_t array, int64_t first, int64_t last) { kernel->run(a, parameters, array, first, last); });
  }
  return ffi::Error::Success();
}

static ffi::Error coincidences(ffi::ThreadPool pool, Buffer w, Buffer row_trains, Buffer col_trains, Buffer keys,
                               Buffer origin, ffi::RemainingArgs parameters, Result w_out, Result total,
                               std::string_view device, int64_t only) {
  PulseCall call(w, row_trains, col_trains, false, keys, origin, parameters, w_out, total, only);
  return run(pool, call, device);
}

static ffi::Error pulses(ffi::ThreadPool pool, Buffer w, Buffer counts, Buffer keys, Buffer origin,
                         ffi::RemainingArgs parameters, Result w_out, Result total, std::string_view device) {
  PulseCall call(w, counts, counts, true, keys, origin, parameters, w_out, total, 0);
  return run(pool, call, device);
}

static ffi::Error trains(ffi::ThreadPool pool, Buffer thresholds, Buffer slots, Buffer keys, Buffer line, Result out) {
  TrainCall call(thresholds, slots, keys, line, out);
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  for (int64_t outer = 0; outer < call.batch.outer; ++outer) {
    const TrainArguments a = call.at(outer);
    in_pieces(pool, a.arrays, a.lines == 0 ? 0 : a.samples, 8 * a.lines * a.words, 1,
              [&](int64_t array, int64_t first, int64_t last) { kernels().trains(a, array, first, last); });
  }
  return ffi::Error::Success();
}

static ffi::Error read(ffi::ThreadPool pool, Buffer g, Buffer v, Buffer std, Buffer key, Buffer origin, Result out) {
  ReadCall call(g, v, std, key, origin, out);
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  for (int64_t outer = 0; outer < call.batch.outer; ++outer) {
    const ReadArguments a = call.at(outer);
    in_pieces(pool, a.arrays, a.cols, a.rows, 16,
              [&](int64_t array, int64_t first, int64_t last) { kernels().read(a, array, first, last); });
  }
  return ffi::Error::Success();
}

}  // namespace xbar

XBAR_LIBRARY(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>(), XBAR_NO_TRAITS, "cpu", xbar::kernels().isa,
             " xbar_cell_currents xbar_drops xbar_effective xbar_effective_transpose xbar_running_sum xbar_evolve")
