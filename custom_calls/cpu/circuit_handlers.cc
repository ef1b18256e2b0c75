// XLA's side of the circuit kernels.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "circuit_kernels.h"
#include "parallel.h"
#include "xbar/circuit_calls.h"

namespace xbar {

// Memory of a thread, kept between calls as long as it is not large.
class Scratch {
 public:
  char* get(int64_t bytes) {
    if (bytes > size_) {
      release();
      size_ = (bytes + 4095) / 4096 * 4096;
      data_ = static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(size_)));
      if (!data_) size_ = 0;
    }
    return data_;
  }
  void done() {
    if (size_ > kKept) release();
  }
  ~Scratch() { release(); }

 private:
  static constexpr int64_t kKept = int64_t{64} << 20;
  char* data_ = nullptr;
  int64_t size_ = 0;
  void release() {
    std::free(data_);
    data_ = nullptr;
    size_ = 0;
  }
};

static Scratch& scratch(int which) {
  thread_local Scratch mine[2];
  return mine[which];
}

static Parallel on_pool(ffi::ThreadPool& pool) {
  return {&pool, [](void* pool, int64_t n, void (*body)(void*, int64_t), void* context) {
            parallel_for(*static_cast<ffi::ThreadPool*>(pool), n, [=](int64_t k) { body(context, k); });
          }};
}

static ffi::Error out_of_memory() { return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for the solve"); }

template <class T>
static ffi::Error solve(ffi::ThreadPool& pool, const CellCurrentsCall& call) {
  const CircuitKernelsOf<T>& kernel = circuit_kernels().of<T>();
  std::atomic<bool> failed{false};
  for (int64_t outer = 0; outer < call.batch.outer; ++outer) {
    const CellCurrentsBatch<T> all = call.at<T>(outer);
    const CellCurrents<T> first = all.of(0);
    if (first.rows * first.cols == 0 || all.arrays == 0) continue;
    int64_t shared_bytes = 0, own_bytes = 0;
    kernel.scratch(first, &shared_bytes, &own_bytes);
    char* shared = nullptr;
    if (all.one_network) {
      shared = scratch(0).get(shared_bytes);
      if (!shared) return out_of_memory();
      kernel.factor(first, shared);
    }
    const auto one = [&](int64_t k, const Parallel& parallel) {
      const CellCurrents<T> a = all.of(k);
      char* own = scratch(1).get(own_bytes + (shared ? 0 : shared_bytes));
      if (!own) {
        failed = true;
        return;
      }
      if (!shared) kernel.factor(a, own + own_bytes);
      kernel.solve(a, shared ? shared : own + own_bytes, own, parallel);
    };
    if (all.arrays == 1) {
      one(0, on_pool(pool));
    } else {
      parallel_for(pool, all.arrays, [&](int64_t k) {
        one(k, Parallel{nullptr, nullptr});
        scratch(1).done();
      });
    }
    scratch(0).done();
    scratch(1).done();
  }
  return failed ? out_of_memory() : ffi::Error::Success();
}

static ffi::Error cell_currents(ffi::ThreadPool pool, XBAR_CELL_CURRENTS_PARAMETERS) {
  const CellCurrentsCall call(XBAR_CELL_CURRENTS_ARGUMENTS);
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  return is(g, ffi::DataType::F64) ? solve<double>(pool, call) : solve<float>(pool, call);
}

// Runs run(array arguments, index, scratch, parallel) for every array, each with bytes(arguments, parallel) of scratch.
template <class T, class Bytes, class Run>
static ffi::Error over_arrays(ffi::ThreadPool& pool, const EffectiveCall& call, const Bytes& bytes, const Run& run) {
  std::atomic<bool> failed{false};
  const int64_t all = call.rows * call.cols == 0 ? 0 : call.batch.outer * call.batch.arrays;
  const auto one = [&](int64_t k, const Parallel& parallel) {
    const Effective<T> a = call.at<T>(k / call.batch.arrays, k % call.batch.arrays);
    char* memory = scratch(1).get(bytes(a, parallel));
    if (!memory) {
      failed = true;
      return;
    }
    run(a, k, memory, parallel);
    scratch(1).done();
  };
  if (all == 1) {
    one(0, on_pool(pool));
  } else {
    parallel_for(pool, all, [&](int64_t k) { one(k, Parallel{nullptr, nullptr}); });
  }
  return failed ? out_of_memory() : ffi::Error::Success();
}

template <class T>
static ffi::Error effective(ffi::ThreadPool& pool, const EffectiveCall& call) {
  const CircuitKernelsOf<T>& kernel = circuit_kernels().of<T>();
  return over_arrays<T>(pool, call, kernel.effective_scratch,
                        [&](const Effective<T>& a, int64_t, char* memory, const Parallel& parallel) {
                          kernel.effective(a, memory, parallel);
                        });
}

template <class T>
static ffi::Error transposed(ffi::ThreadPool& pool, const EffectiveCall& call, const Buffer& gain) {
  const CircuitKernelsOf<T>& kernel = circuit_kernels().of<T>();
  if (!holds(call.batch, gain, call.out.element_type(), {call.rows, call.cols}))
    return invalid("gain must be [rows, cols] of the type of the result");
  return over_arrays<T>(pool, call, kernel.effective_transpose_scratch,
                        [&](const Effective<T>& a, int64_t k, char* memory, const Parallel& parallel) {
                          const int64_t arrays = call.batch.arrays;
                          kernel.effective_transpose(a, call.like_result<T>(gain, k / arrays, k % arrays), memory,
                                                     parallel);
                        });
}

static ffi::Error effective_conductance(ffi::ThreadPool pool, Buffer g, Buffer r_across, Buffer near_across,
                                        Buffer far_across, Buffer ends_across, Buffer r_down, Buffer near_down,
                                        Buffer far_down, Buffer ends_down, Result out, int64_t across_flip,
                                        int64_t down_flip) {
  const EffectiveCall call(g, r_across, near_across, far_across, ends_across, r_down, near_down, far_down, ends_down,
                           out, across_flip, down_flip);
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  return is(g, ffi::DataType::F64) ? effective<double>(pool, call) : effective<float>(pool, call);
}

static ffi::Error effective_gradient(ffi::ThreadPool pool, Buffer g, Buffer r_across, Buffer near_across,
                                     Buffer far_across, Buffer ends_across, Buffer r_down, Buffer near_down,
                                     Buffer far_down, Buffer ends_down, Buffer gain, Result out, int64_t across_flip,
                                     int64_t down_flip) {
  const EffectiveCall call(g, r_across, near_across, far_across, ends_across, r_down, near_down, far_down, ends_down,
                           out, across_flip, down_flip);
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  return is(g, ffi::DataType::F64) ? transposed<double>(pool, call, gain) : transposed<float>(pool, call, gain);
}

template <class T>
static ffi::Error line_drops(ffi::ThreadPool& pool, const EffectiveCall& call) {
  const CircuitKernelsOf<T>& kernel = circuit_kernels().of<T>();
  // The call has the operands of the effective conductance: cells first, then two bundles.
  const auto of = [](const Effective<T>& a) { return Drops<T>{a.rows, a.cols, a.across, a.down, a.g, a.out}; };
  return over_arrays<T>(
      pool, call, [&](const Effective<T>& a, const Parallel&) { return kernel.drops_scratch(of(a)); },
      [&](const Effective<T>& a, int64_t, char* memory, const Parallel&) { kernel.drops(of(a), memory); });
}

static ffi::Error drops(ffi::ThreadPool pool, Buffer i, Buffer r_word, Buffer near_word, Buffer far_word,
                        Buffer ends_word, Buffer r_bit, Buffer near_bit, Buffer far_bit, Buffer ends_bit, Result out,
                        int64_t word_flip, int64_t bit_flip) {
  const EffectiveCall call(i, r_word, near_word, far_word, ends_word, r_bit, near_bit, far_bit, ends_bit, out,
                           word_flip, bit_flip);
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  return is(i, ffi::DataType::F64) ? line_drops<double>(pool, call) : line_drops<float>(pool, call);
}

template <class T>
static void sums(ffi::ThreadPool& pool, const Buffer& x, Result& y, bool reverse) {
  const int64_t n = axis(x, 2), count = axis(x, 1);
  int64_t arrays = 1;
  for (size_t k = 0; k + 2 < x.dimensions().size(); ++k) arrays *= x.dimensions()[k];
  constexpr int64_t kPiece = 64;  // lines of one task: whole cache lines
  const int64_t pieces = n * count > (1 << 17) ? (count + kPiece - 1) / kPiece : 1;
  const int64_t piece = pieces > 1 ? kPiece : count;
  const T* in = x.typed_data<T>();
  T* out = y->typed_data<T>();
  parallel_for(pool, arrays * pieces, [&](int64_t k) {
    const int64_t array = k / pieces * n * count, first = k % pieces * piece;
    circuit_kernels().of<T>().running_sum(in + array, out + array, n, count, reverse, first,
                                          std::min(count, first + piece));
  });
}

static ffi::Error running_sum(ffi::ThreadPool pool, Buffer x, Result y, int64_t reverse) {
  if (x.dimensions().size() < 2 || x.element_type() != y->element_type() || x.element_count() != y->element_count())
    return invalid("x must be [n, count], and the result like it");
  if (x.element_count() == 0) return ffi::Error::Success();
  if (is(x, ffi::DataType::F64)) {
    sums<double>(pool, x, y, reverse != 0);
  } else if (is(x, ffi::DataType::F32)) {
    sums<float>(pool, x, y, reverse != 0);
  } else {
    return invalid("x must be float32 or float64");
  }
  return ffi::Error::Success();
}

}  // namespace xbar

XBAR_HANDLER(xbar_cell_currents, cell_currents,
             XBAR_CELL_CURRENTS_BINDING(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()), XBAR_NO_TRAITS)
XBAR_HANDLER(xbar_effective, effective_conductance,
             XBAR_EFFECTIVE_BINDING(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()), XBAR_NO_TRAITS)
XBAR_HANDLER(xbar_effective_transpose, effective_gradient,
             XBAR_EFFECTIVE_TRANSPOSE_BINDING(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()), XBAR_NO_TRAITS)
XBAR_HANDLER(xbar_drops, drops, XBAR_DROPS_BINDING(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()), XBAR_NO_TRAITS)
XBAR_HANDLER(xbar_running_sum, running_sum, XBAR_RUNNING_SUM_BINDING(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()),
             XBAR_NO_TRAITS)
