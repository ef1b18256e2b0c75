// Arguments of the pulse kernels, the same on every processor.
//
// Trains: one 32-bit word holds 31 slots of a line and, in bit 31, the sign of its input. A coincidence is a slot
// set on both lines; it is an up pulse where the signs differ, because W <- W - lr x d. Counts: signed numbers of
// pulses, given. Pulse 2m and 2m+1 of a cell in one sample take their noise from threefry of the cell's global
// (row, column) under the sample's key, m added to its second word.
#pragma once

#include "xbar/lanes.h"

namespace xbar {

constexpr int kSlots = 31;
constexpr uint32_t kSlotMask = 0x7fffffffu;

// The same operand of many arrays: array b begins at ptr + b stride, a stride of 0 where all share it.
template <class T>
struct Arrays {
  T* ptr;
  int64_t stride;
  XBAR_FN T* of(int64_t array) const { return ptr + array * stride; }
};

// One parameter of every cell; a stride is 0 where the parameter is shared along that axis.
struct CellParameter {
  const float* ptr;
  int64_t array_stride;
  int32_t row_stride, col_stride;
  XBAR_FN const float* at(int64_t array, int64_t row, int64_t col) const {
    return ptr + array * array_stride + row * row_stride + col * col_stride;
  }
};

// Pulses on arrays; the samples of each are applied one after another.
struct PulseArguments {
  int64_t arrays, rows, cols, samples, words;
  Arrays<const float> w_in;           // [rows, cols]
  Arrays<float> w;                    // [rows, cols], may be w_in
  Arrays<int32_t> pulses;             // [rows, cols], pulses that each cell got
  Arrays<const uint32_t> row_trains;  // [samples, words, rows], or null
  Arrays<const uint32_t> col_trains;  // [samples, words, cols], or null
  Arrays<const int32_t> counts;       // [samples, rows, cols] where trains are null
  Arrays<const uint32_t> keys;        // [samples, 2]
  Arrays<const uint32_t> origin;      // [2], global (row, column) of the first cell
  int64_t only;                       // 0: every pulse; +1 or -1: pulses of that sign alone, applied as up pulses
  int64_t n_parameters;
};

// Trains of the lines of arrays: thresholds are sign(x) round(2^30 p).
struct TrainArguments {
  int64_t arrays, samples, words, lines;
  Arrays<const int32_t> thresholds;  // [samples, lines]
  Arrays<const int32_t> slots;       // [samples], BL
  Arrays<const uint32_t> keys;       // [samples, 2]
  Arrays<const uint32_t> line;       // [], global index of the first line
  Arrays<uint32_t> trains;           // [samples, words, lines]
};

// A noisy matrix-vector read: i[j] = sum over i of v[i] (g[i, j] + std[i, j] n[i, j]), n the first number of the
// cell's pair under the key, summed in blocks of rows so that rounding does not grow with their number.
constexpr int kReadBlock = 32;

struct ReadArguments {
  int64_t arrays, rows, cols;
  Arrays<const float> g;          // [rows, cols]
  Arrays<const float> v;          // [rows]
  CellParameter std;              // of a cell
  Arrays<const uint32_t> key;     // [2]
  Arrays<const uint32_t> origin;  // [2]
  Arrays<float> i;                // [cols]
};

}  // namespace xbar
