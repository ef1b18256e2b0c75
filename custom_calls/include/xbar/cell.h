// One cell, one line, one column: what a thread of a GPU does, and the plainest form of every kernel.
#pragma once

#include "xbar/device.h"
#include "xbar/pulses.h"
#include "xbar/random.h"

namespace xbar {
inline namespace XBAR_ISA {

// Parameters of one cell: the common ones in registers, the others read where they are used.
struct OneCell {
  const CellParameter* all;
  int64_t n, array, row, col;
  float up, down, upper, lower, spread;

  XBAR_FN OneCell(const CellParameter* p, int64_t n_, int64_t array_, int64_t row_, int64_t col_)
      : all(p), n(n_), array(array_), row(row_), col(col_) {
    up = *p[kStepUp].at(array, row, col);
    down = *p[kStepDown].at(array, row, col);
    upper = *p[kUpper].at(array, row, col);
    lower = *p[kLower].at(array, row, col);
    spread = *p[kSpread].at(array, row, col);
  }
  XBAR_FN int64_t count() const { return n; }
  XBAR_FN float gather(int32_t k) const { return *all[k].at(array, row, col); }
  XBAR_FN float operator()(int64_t k) const {
    return k == kStepUp     ? up
           : k == kStepDown ? down
           : k == kUpper    ? upper
           : k == kLower    ? lower
           : k == kSpread   ? spread
                            : *all[k].at(array, row, col);
  }
};

// All samples on one cell. `cell` counts over arrays, rows and columns.
template <class Device>
XBAR_FN void pulse_cell(const PulseArguments& a, const CellParameter* parameters, int64_t cell) {
  const int64_t col = cell % a.cols, row = cell / a.cols % a.rows, array = cell / a.cols / a.rows;
  const OneCell p(parameters, a.n_parameters, array, row, col);
  const uint32_t *origin = a.origin.of(array), *keys = a.keys.of(array);
  float w = a.w_in.of(array)[row * a.cols + col];
  int32_t total = 0;
  for (int64_t s = 0; s < a.samples; ++s) {
    int32_t n = 0;
    bool up = false;
    if (a.counts.ptr) {
      n = a.counts.of(array)[(s * a.rows + row) * a.cols + col];
      up = n > 0;
      n = up ? n : -n;
    } else {
      for (int64_t k = 0; k < a.words; ++k) {
        const uint32_t r = a.row_trains.of(array)[(s * a.words + k) * a.rows + row];
        const uint32_t c = a.col_trains.of(array)[(s * a.words + k) * a.cols + col];
        n += popcount(r & c & kSlotMask);
        if (k == 0) up = (r ^ c) >> 31;
      }
    }
    if (a.only != 0) {
      n = up == (a.only > 0) ? n : 0;
      up = true;
    }
    for (int32_t m = 0; 2 * m < n; ++m) {
      float first = 0, second = 0;
      if (p.spread != 0.0f) {
        uint32_t x = origin[0] + static_cast<uint32_t>(row), y = origin[1] + static_cast<uint32_t>(col);
        threefry(keys[2 * s], keys[2 * s + 1] + static_cast<uint32_t>(m), x, y);
        normal_pair(x, y, &first, &second);
      }
      w = Device::step(w, up, first, p);
      if (2 * m + 1 < n) w = Device::step(w, up, second, p);
    }
    total += n;
  }
  a.w.of(array)[row * a.cols + col] = w;
  a.pulses.of(array)[row * a.cols + col] = total;
}

// The train of one line in one sample. `item` counts over arrays, samples and lines.
XBAR_FN void train_line(const TrainArguments& a, int64_t item) {
  const int64_t line = item % a.lines, s = item / a.lines % a.samples, array = item / a.lines / a.samples;
  const int32_t threshold = a.thresholds.of(array)[s * a.lines + line];
  const uint32_t level = static_cast<uint32_t>(threshold < 0 ? -threshold : threshold);
  const int64_t slots = a.slots.of(array)[s];
  const uint32_t* key = a.keys.of(array) + 2 * s;
  uint32_t draw[2] = {0, 0};
  for (int64_t word = 0, slot = 0; word < a.words; ++word) {
    uint32_t bits = threshold < 0 ? ~kSlotMask : 0u;
    for (int k = 0; k < kSlots; ++k, ++slot) {
      if (slot >= slots) continue;
      if (slot % 2 == 0) {
        draw[0] = *a.line.of(array) + static_cast<uint32_t>(line);
        draw[1] = static_cast<uint32_t>(slot / 2);
        threefry(key[0], key[1], draw[0], draw[1]);
      }
      bits |= static_cast<uint32_t>((slot % 2 ? draw[1] : draw[0]) >> 2 < level) << k;
    }
    a.trains.of(array)[(s * a.words + word) * a.lines + line] = bits;
  }
}

// One column. `item` counts over arrays and columns.
XBAR_FN void read_column(const ReadArguments& a, int64_t item) {
  const int64_t col = item % a.cols, array = item / a.cols;
  const uint32_t *origin = a.origin.of(array), *key = a.key.of(array);
  const float *g = a.g.of(array), *v = a.v.of(array);
  float sum = 0, part = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    uint32_t x = origin[0] + static_cast<uint32_t>(row), y = origin[1] + static_cast<uint32_t>(col);
    threefry(key[0], key[1], x, y);
    float noise, unused;
    normal_pair(x, y, &noise, &unused);
    part = part + v[row] * (g[row * a.cols + col] + *a.std.at(array, row, col) * noise);
    if (row % kReadBlock == kReadBlock - 1) {
      sum = sum + part;
      part = 0;
    }
  }
  a.i.of(array)[col] = sum + part;
}

}  // namespace XBAR_ISA
}  // namespace xbar
