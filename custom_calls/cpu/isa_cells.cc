// Compiled once for every instruction set, with XBAR_ISA its name. It includes nothing that another set might share:
// the linker keeps one copy of an inline function, and it must not be the one for the wider registers.
#include "kernels.h"
#include "pulses.h"
#include "read.h"
#include "xbar/all_devices.h"

#define XBAR_STRING_(x) #x
#define XBAR_STRING(x) XBAR_STRING_(x)

namespace xbar {
inline namespace XBAR_ISA {

namespace {
const PulseKernel kPulseKernels[] = {
#define XBAR_KERNEL(device) {#device, devices::device::kParameters, run_pulses<devices::device>},
    XBAR_DEVICES(XBAR_KERNEL)
#undef XBAR_KERNEL
};
}  // namespace

extern const Kernels table;
const Kernels table = {XBAR_STRING(XBAR_ISA), run_trains, run_read, kPulseKernels,
                       static_cast<int>(sizeof kPulseKernels / sizeof *kPulseKernels)};

}  // namespace XBAR_ISA
}  // namespace xbar
