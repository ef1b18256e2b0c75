// Arguments of the kernels that move the state of dynamic cells, the same on every processor.
#pragma once

#include "xbar/pulses.h"

namespace xbar {

// Each of [rows, cols].
struct EvolveArguments {
  int64_t arrays, rows, cols;
  Arrays<const float> x;   // state
  Arrays<const float> v;   // V
  Arrays<const float> t;   // s, >= 0
  Arrays<float> d;         // change of the state
  Arrays<int32_t> end;     // how the motion ended
  Arrays<int32_t> panels;  // accepted steps
};

// How a motion ends.
constexpr int32_t kOpen = -1, kMoved = 0, kBound = 1, kSettled = 2, kStill = 3;

// Static choices of a device, its first operands.
constexpr int kMostCodes = 4;
struct Codes {
  int32_t code[kMostCodes];
  XBAR_FN int32_t operator[](int k) const { return code[k]; }
};

template <class Device>
XBAR_FN Codes codes_of(const CellParameter* parameters, int64_t array) {
  Codes codes{};
  for (int k = 0; k < Device::kCodes; ++k) codes.code[k] = static_cast<int32_t>(*parameters[k].at(array, 0, 0));
  return codes;
}

}  // namespace xbar
