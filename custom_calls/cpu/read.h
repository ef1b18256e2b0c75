// A noisy read on a CPU: columns in registers, rows one after another.
#pragma once

#include "pulses.h"
#include "xbar/random.h"

namespace xbar {
inline namespace XBAR_ISA {

// Columns [first, last) of one array.
inline void run_read(const ReadArguments& a, int64_t array, int64_t first, int64_t last) {
  const float *g = a.g.of(array), *v = a.v.of(array);
  const uint32_t *key = a.key.of(array), *origin = a.origin.of(array);
  const Words index = lane_index();
  for (int64_t col = first; col < last; col += kLanes) {
    const int lanes = static_cast<int>(last - col < kLanes ? last - col : kLanes);
    Floats sum{}, part{};
    for (int64_t row = 0; row < a.rows; ++row) {
      const Floats std = load_parameter(a.std, array, row, col, lanes);
      Words x = Words{} + (origin[0] + static_cast<uint32_t>(row)),
            y = index + (origin[1] + static_cast<uint32_t>(col));
      threefry(Words{} + key[0], Words{} + key[1], x, y);
      Floats noise, unused;
      normal_pair(x, y, &noise, &unused);
      part = part + v[row] * (load<Floats>(g + row * a.cols + col, lanes) + std * noise);
      if (row % kReadBlock == kReadBlock - 1) {
        sum = sum + part;
        part = Floats{};
      }
    }
    store(a.i.of(array) + col, sum + part, lanes);
  }
}

}  // namespace XBAR_ISA
}  // namespace xbar
