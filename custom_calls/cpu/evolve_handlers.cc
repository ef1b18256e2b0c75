// XLA's side of the motion of dynamic cells.
#include <algorithm>

#include "evolve_kernels.h"
#include "parallel.h"
#include "xbar/evolve_call.h"

namespace xbar {

// Cells of a task.
constexpr int64_t kCellsOfTask = 1 << 12;

static ffi::Error evolve(ffi::ThreadPool pool, XBAR_EVOLVE_PARAMETERS) {
  const EvolveKernel* kernel = evolve_kernels().find(device);
  if (!kernel) return invalid("no kernel for the motion of device " + std::string(device));
  EvolveCall call(x, v, t, parameters, d, end, panels);
  const ffi::Error error = call.check(device, kernel->parameters, kernel->codes);
  if (error.failure()) return error;
  const int64_t cells = call.rows * call.cols;
  if (cells == 0) return ffi::Error::Success();
  const int64_t pieces = (cells + kCellsOfTask - 1) / kCellsOfTask;
  for (int64_t outer = 0; outer < call.batch.outer; ++outer) {
    CellParameter p[kMostDynamicOperands];
    const EvolveArguments a = call.at(outer, p);
    parallel_for(pool, a.arrays * pieces, [&](int64_t i) {
      const int64_t first = (i % pieces) * kCellsOfTask;
      kernel->run(a, p, i / pieces, first, std::min(first + kCellsOfTask, cells));
    });
  }
  return ffi::Error::Success();
}

}  // namespace xbar

XBAR_HANDLER(xbar_evolve, evolve, XBAR_EVOLVE_BINDING(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()),
             XBAR_NO_TRAITS)
