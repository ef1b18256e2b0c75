// Motion of dynamic cells, compiled as isa_cells.cc is, but with multiplications and additions fused: it goes to a
// tolerance and does not reproduce bits. No two sets share an inline function.
#include "evolve.h"
#include "xbar/all_dynamics.h"

namespace xbar {
inline namespace XBAR_ISA {

namespace {
const EvolveKernel kAll[] = {
#define XBAR_KERNEL(device) \
  {#device, dynamics::device<Floats>::kParameters, dynamics::device<Floats>::kCodes, run_evolve<dynamics::device>},
    XBAR_DYNAMICS(XBAR_KERNEL)
#undef XBAR_KERNEL
};
}  // namespace

extern const EvolveKernels evolve_table;
const EvolveKernels evolve_table = {kAll, static_cast<int>(sizeof kAll / sizeof *kAll)};

}  // namespace XBAR_ISA
}  // namespace xbar
