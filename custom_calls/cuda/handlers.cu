// CUDA kernels and XLA's side of them: one thread a cell, a line, a column. The arithmetic is that of xbar/cell.h.
#include "circuits.h"
#include "evolve.h"
#include "xbar/all_devices.h"
#include "xbar/cell.h"

namespace xbar {

// Parameters travel with the launch, as pointers: any number up to what a launch can carry, none in a fixed slot.
template <int N>
struct PulseLaunch {
  PulseArguments a;
  CellParameter parameters[N];
};

template <class Device, int N>
XBAR_GLOBAL pulse_kernel(const XBAR_GRID_CONSTANT PulseLaunch<N> l) {
  over_grid(l.a.arrays * l.a.rows * l.a.cols, [&](int64_t i) { pulse_cell<Device>(l.a, l.parameters, i); });
}

XBAR_GLOBAL train_kernel(const XBAR_GRID_CONSTANT TrainArguments a) {
  over_grid(a.arrays * a.samples * a.lines, [&](int64_t i) { train_line(a, i); });
}

XBAR_GLOBAL read_kernel(const XBAR_GRID_CONSTANT ReadArguments a) {
  over_grid(a.arrays * a.cols, [&](int64_t i) { read_column(a, i); });
}

template <class Device, int N>
static ffi::Error launch_pulses(const PulseCall& call, Stream stream) {
  for (int64_t outer = 0; outer < call.batch.outer; ++outer) {
    PulseLaunch<N> l;
    l.a = call.at(outer, l.parameters);
    const int64_t cells = l.a.arrays * l.a.rows * l.a.cols;
    if (cells == 0) continue;
    const ffi::Error error = launch(pulse_kernel<Device, N>, cells, stream, l);
    if (error.failure()) return error;
  }
  return ffi::Error::Success();
}

template <class Device>
static ffi::Error launch_pulses(const PulseCall& call, std::string_view device, Stream stream) {
  if (static_cast<int>(call.parameters.size()) < Device::kParameters) return too_few(device, Device::kParameters);
  if (call.parameters.size() <= 16) return launch_pulses<Device, 16>(call, stream);
  if (call.parameters.size() <= 128) return launch_pulses<Device, 128>(call, stream);
  return launch_pulses<Device, kMaxParameters>(call, stream);
}

static ffi::Error run(PulseCall& call, std::string_view device, Stream stream) {
  const ffi::Error error = call.check();
  if (error.failure()) return error;
#define XBAR_KERNEL(name) \
  if (device == #name) return launch_pulses<devices::name>(call, device, stream);
  XBAR_DEVICES(XBAR_KERNEL)
#undef XBAR_KERNEL
  return invalid("no kernel for device " + std::string(device));
}

static ffi::Error coincidences(XBAR_STREAM Buffer w, Buffer row_trains, Buffer col_trains, Buffer keys, Buffer origin,
                               ffi::RemainingArgs parameters, Result w_out, Result total, std::string_view device,
                               int64_t only) {
  PulseCall call(w, row_trains, col_trains, false, keys, origin, parameters, w_out, total, only);
  return run(call, device, stream);
}

static ffi::Error pulses(XBAR_STREAM Buffer w, Buffer counts, Buffer keys, Buffer origin, ffi::RemainingArgs parameters,
                         Result w_out, Result total, std::string_view device) {
  PulseCall call(w, counts, counts, true, keys, origin, parameters, w_out, total, 0);
  return run(call, device, stream);
}

static ffi::Error trains(XBAR_STREAM Buffer thresholds, Buffer slots, Buffer keys, Buffer line, Result out) {
  TrainCall call(thresholds, slots, keys, line, out);
  ffi::Error error = call.check();
  for (int64_t outer = 0; outer < call.batch.outer && error.success(); ++outer) {
    const TrainArguments a = call.at(outer);
    const int64_t items = a.arrays * a.samples * a.lines;
    if (items > 0) error = launch(train_kernel, items, stream, a);
  }
  return error;
}

static ffi::Error read(XBAR_STREAM Buffer g, Buffer v, Buffer std, Buffer key, Buffer origin, Result out) {
  ReadCall call(g, v, std, key, origin, out);
  ffi::Error error = call.check();
  for (int64_t outer = 0; outer < call.batch.outer && error.success(); ++outer) {
    const ReadArguments a = call.at(outer);
    if (a.arrays * a.cols > 0) error = launch(read_kernel, a.arrays * a.cols, stream, a);
  }
  return error;
}

}  // namespace xbar

#if defined(XBAR_STANDIN)
XBAR_LIBRARY(XBAR_CONTEXT, XBAR_TRAITS, "standin", "host", XBAR_CIRCUIT_CALLS " xbar_evolve")
// Makes the next launch fail as a GPU does that lacks the resources for it.
XBAR_VISIBLE void xbar_refuse_next_launch() { xbar::g_refuse_next_launch = true; }
#else
XBAR_LIBRARY(XBAR_CONTEXT, XBAR_TRAITS, "cuda", XBAR_ARCHITECTURES, XBAR_CIRCUIT_CALLS " xbar_evolve")
#endif
