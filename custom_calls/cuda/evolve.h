// Motion of dynamic cells: one thread a cell.
#pragma once

#include "launch.h"
#include "xbar/all_dynamics.h"
#include "xbar/evolve_call.h"
#include "xbar/flow.h"

namespace xbar {

// Parameters of one cell, read where they are used.
struct ParametersOfCell {
  const CellParameter* all;
  int64_t array, row, col;
  XBAR_FN float operator()(int k) const { return *all[k].at(array, row, col); }
};

template <class Device>
struct EvolveLaunch {
  EvolveArguments a;
  CellParameter parameters[Device::kParameters];
};

// `cell` counts over arrays, rows and columns.
template <class Device>
XBAR_FN void evolve_cell(const EvolveArguments& a, const CellParameter* parameters, int64_t cell) {
  const int64_t i = cell % (a.rows * a.cols), array = cell / (a.rows * a.cols);
  const float v = a.v.of(array)[i], t = time_at(v, a.t.of(array)[i]);
  float d = 0.0f;
  int32_t end = kStill, panels = 0;
  if (t != 0.0f) {
    const Codes codes = codes_of<Device>(parameters, array);
    Motion<float, Device> motion(Device(v, ParametersOfCell{parameters, array, i / a.cols, i % a.cols}, codes), codes,
                                 a.x.of(array)[i], t);
    while (motion.end < 0) motion.step(codes);
    d = d + motion.displacement();
    end = motion.end;
    panels = motion.panels;
  }
  a.d.of(array)[i] = d;
  a.end.of(array)[i] = end;
  a.panels.of(array)[i] = panels;
}

template <class Device>
XBAR_GLOBAL evolve_kernel(const XBAR_GRID_CONSTANT EvolveLaunch<Device> l) {
  over_grid(l.a.arrays * l.a.rows * l.a.cols, [&](int64_t i) { evolve_cell<Device>(l.a, l.parameters, i); });
}

template <class Device>
static ffi::Error run_evolve(EvolveCall& call, std::string_view device, Stream stream) {
  static_assert(Device::kParameters <= kMostDynamicOperands, "more parameters than a call may have");
  ffi::Error error = call.check(device, Device::kParameters, Device::kCodes);
  for (int64_t outer = 0; outer < call.batch.outer && error.success(); ++outer) {
    EvolveLaunch<Device> l;
    l.a = call.at(outer, l.parameters);
    const int64_t cells = l.a.arrays * l.a.rows * l.a.cols;
    if (cells > 0) error = launch(evolve_kernel<Device>, cells, stream, l);
  }
  return error;
}

static ffi::Error evolve(XBAR_STREAM XBAR_EVOLVE_PARAMETERS) {
  EvolveCall call(x, v, t, parameters, d, end, panels);
#define XBAR_KERNEL(name) \
  if (device == #name) return run_evolve<dynamics::name<float>>(call, device, stream);
  XBAR_DYNAMICS(XBAR_KERNEL)
#undef XBAR_KERNEL
  return invalid("no kernel for the motion of device " + std::string(device));
}

}  // namespace xbar

XBAR_HANDLER(xbar_evolve, evolve, XBAR_EVOLVE_BINDING(XBAR_CONTEXT), XBAR_TRAITS)
