// Pulses on a CPU: neighbouring cells of a row, as many at a time as a register holds.
//
// Noise is drawn only where a pulse falls: the (cell, pair of pulses) that need numbers are listed without gaps, the
// list is worked off a register at a time, and the recurrence over pulses spreads the numbers over its cells again.
#pragma once

#include <cstddef>

#include "registers.h"
#include "xbar/device.h"
#include "xbar/pulses.h"
#include "xbar/random.h"

namespace xbar {
inline namespace XBAR_ISA {

constexpr int kColumns = 128;  // columns of one block
constexpr int kPulses = 32;    // pulses of one round
constexpr int kPairs = kPulses / 2;
constexpr int kGroup = 2;     // registers of cells whose chains of pulses run side by side
constexpr int kStored = 160;  // parameters that are kept beside the weights

XBAR_FN int32_t largest(Ints v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32((__m512i)v);
#else
  int32_t m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
#endif
}

// One array of the call, its pointers found.
struct Job {
  int64_t array, rows, cols, samples, words, n_parameters, only;
  const float* w_in;
  float* w;
  int32_t* pulses;
  const uint32_t *row_trains, *col_trains;
  const int32_t* counts;
  const uint32_t* keys;
  uint32_t row, col;  // global index of the first cell
  const CellParameter* parameters;
};

inline Job job_of(const PulseArguments& a, const CellParameter* parameters, int64_t b) {
  return {b,
          a.rows,
          a.cols,
          a.samples,
          a.words,
          a.n_parameters,
          a.only,
          a.w_in.of(b),
          a.w.of(b),
          a.pulses.of(b),
          a.row_trains.of(b),
          a.col_trains.of(b),
          a.counts.ptr ? a.counts.of(b) : nullptr,
          a.keys.of(b),
          a.origin.of(b)[0],
          a.origin.of(b)[1],
          parameters};
}

// The block of one row that is being worked on.
struct Block {
  alignas(64) float w[kColumns];
  alignas(64) int32_t total[kColumns];
  alignas(64) int32_t counts[kColumns];         // of this sample, without sign
  alignas(64) int32_t up[kColumns];             // mask
  alignas(64) int32_t most[kColumns / kLanes];  // largest count of each register
  int32_t start[kColumns / kLanes];             // of its entries in the list
  alignas(64) float parameters[kStored][kColumns];
  alignas(64) uint32_t list[kColumns * kPairs + kLanes];  // cell + kColumns * pair
  alignas(64) float first[kColumns * kPairs + kLanes];    // noise of the even pulse of each entry
  alignas(64) float second[kColumns * kPairs + kLanes];   // and of the odd one
};

XBAR_FN Floats load_parameter(const CellParameter& p, int64_t array, int64_t row, int64_t col, int lanes) {
  const float* ptr = p.at(array, row, col);
  if (p.col_stride == 0) return Floats{} + *ptr;
  return load<Floats>(ptr, lanes);
}

// Parameter k of the cells of one register.
struct PackParameters {
  const Job& a;
  const Block& b;
  int64_t row, col;
  int offset, lanes;
  XBAR_FN int64_t count() const { return a.n_parameters; }
  // A parameter of its own for each cell.
  XBAR_FN Floats gather(Ints k) const {
    const int n = lanes < kLanes ? lanes : kLanes;
#if defined(__AVX512F__)
    if (a.n_parameters <= kStored) {
      const Ints at = k * kColumns + as_int(lane_index()) + offset;
      return (Floats)_mm512_i32gather_ps((__m512i)at, b.parameters, 4);
    }
#elif defined(__AVX2__)
    if (a.n_parameters <= kStored) {
      const Ints at = k * kColumns + as_int(lane_index()) + offset;
      return (Floats)_mm256_i32gather_ps(&b.parameters[0][0], (__m256i)at, 4);
    }
#endif
    Floats v{};
    for (int l = 0; l < n; ++l) v[l] = *a.parameters[k[l]].at(a.array, row, col + offset + l);
    return v;
  }
  XBAR_FN Floats operator()(int64_t k) const {
    if (k < kStored) return *reinterpret_cast<const Floats*>(b.parameters[k] + offset);
    return load_parameter(a.parameters[k], a.array, row, col + offset, lanes);
  }
};

// Signed counts of one sample into the block; returns the largest.
inline int32_t count(const Job& a, Block& b, int64_t sample, int64_t row, int64_t col, int n) {
  int32_t most = 0;
  const Ints none{};
  for (int j = 0; j < n; j += kLanes) {
    const int lanes = n - j;
    Ints c{}, up{};
    if (a.counts) {
      Ints s = load<Ints>(a.counts + (sample * a.rows + row) * a.cols + col + j, lanes);
      up = s > 0;
      c = select(up, s, -s);
    } else {
      for (int64_t k = 0; k < a.words; ++k) {
        const uint32_t r = a.row_trains[(sample * a.words + k) * a.rows + row];
        Words t = load<Words>(a.col_trains + (sample * a.words + k) * a.cols + col + j, lanes);
        c = c + popcount(t & (r & kSlotMask));
        if (k == 0) up = as_int(t ^ r) < 0;
      }
    }
    if (a.only > 0) c = select(up, c, none);
    if (a.only < 0) c = select(up, none, c);
    if (a.only != 0) up = ~none;
    std::memcpy(b.counts + j, &c, sizeof c);
    std::memcpy(b.up + j, &up, sizeof up);
    const int32_t m = largest(c);
    b.most[j / kLanes] = m;
    most = most > m ? most : m;
  }
  for (int j = (n + kLanes - 1) / kLanes * kLanes; j < kColumns; j += kLanes) {
    std::memset(b.counts + j, 0, sizeof(Ints));
    b.most[j / kLanes] = 0;
  }
  return most;
}

// Noise of the pulses [base, base + kPulses) of one sample, pack by pack, pair by pair, cell by cell.
inline void draw(const Job& a, Block& b, int64_t sample, int64_t row, int64_t col, int n, int32_t base) {
  const Words lane = lane_index();
  int m = 0;
  for (int j = 0; j < n; j += kLanes) {
    const Ints counts = *reinterpret_cast<const Ints*>(b.counts + j) - base;
    const int32_t most = b.most[j / kLanes] - base;
    b.start[j / kLanes] = m;
    for (int32_t k = 0; k < kPairs && 2 * k < most; ++k) {
      m += compress(b.list + m, lane + static_cast<uint32_t>(j + kColumns * k), counts > 2 * k);
    }
  }
  for (int l = 0; l < kLanes; ++l) b.list[m + l] = 0;
  const uint32_t k0 = a.keys[2 * sample], k1 = a.keys[2 * sample + 1] + static_cast<uint32_t>(base / 2);
  const uint32_t global_row = a.row + static_cast<uint32_t>(row), global_col = a.col + static_cast<uint32_t>(col);
  for (int i = 0; i < m; i += kLanes) {
    const Words e = *reinterpret_cast<const Words*>(b.list + i);
    Words x = Words{} + global_row, y = (e % kColumns) + global_col;
    threefry(Words{} + k0, e / kColumns + k1, x, y);
    normal_pair(x, y, reinterpret_cast<Floats*>(b.first + i), reinterpret_cast<Floats*>(b.second + i));
  }
}

// The recurrence over pulses. A pulse waits for the one before it, so several registers advance together.
template <class Device, bool kNoisy>
void apply(const Job& a, Block& b, int64_t row, int64_t col, int n, int32_t base) {
  for (int j = 0; j < n; j += kGroup * kLanes) {
    Ints counts[kGroup], up[kGroup];
    Floats w[kGroup];
    int position[kGroup];
    int32_t most = 0;
    for (int g = 0; g < kGroup; ++g) {
      const int at = j + g * kLanes;
      counts[g] = *reinterpret_cast<const Ints*>(b.counts + at) - base;
      up[g] = *reinterpret_cast<const Ints*>(b.up + at);
      w[g] = *reinterpret_cast<const Floats*>(b.w + at);
      position[g] = b.start[at / kLanes];
      most = most > b.most[at / kLanes] ? most : b.most[at / kLanes];
    }
    most = most - base > kPulses ? kPulses : most - base;
    for (int32_t k = 0; k < most; k += 2) {
      for (int g = 0; g < kGroup; ++g) {
        const PackParameters p{a, b, row, col, j + g * kLanes, n - j - g * kLanes};
        Floats first{}, second{};
        if (kNoisy) {
          first = expand(b.first + position[g], counts[g] > k);
          second = expand(b.second + position[g], counts[g] > k);
          position[g] += how_many(counts[g] > k);
        }
        w[g] = select(counts[g] > k, Device::step(w[g], up[g], first, p), w[g]);
        w[g] = select(counts[g] > k + 1, Device::step(w[g], up[g], second, p), w[g]);
      }
    }
    for (int g = 0; g < kGroup; ++g) *reinterpret_cast<Floats*>(b.w + j + g * kLanes) = w[g];
  }
}

// Rows [first, last) of one array.
template <class Device>
void run_pulses(const PulseArguments& call, const CellParameter* parameters, int64_t array, int64_t first,
                int64_t last) {
  const Job a = job_of(call, parameters, array);
  Block b;
  std::memset(&b, 0, offsetof(Block, parameters));  // what follows is written before it matters
  for (int64_t row = first; row < last; ++row) {
    for (int64_t col = 0; col < a.cols; col += kColumns) {
      const int n = static_cast<int>(a.cols - col < kColumns ? a.cols - col : kColumns);
      for (int64_t k = 0; k < a.n_parameters && k < kStored; ++k) {
        for (int j = 0; j < n; j += kLanes) {
          *reinterpret_cast<Floats*>(b.parameters[k] + j) = load_parameter(a.parameters[k], array, row, col + j, n - j);
        }
      }
      bool noisy = false;
      for (int j = 0; j < n; ++j) noisy |= b.parameters[kSpread][j] != 0.0f;
      std::memcpy(b.w, a.w_in + row * a.cols + col, sizeof(float) * n);
      std::memset(b.total, 0, sizeof b.total);
      for (int64_t s = 0; s < a.samples; ++s) {
        const int32_t most = count(a, b, s, row, col, n);
        for (int32_t base = 0; base < most; base += kPulses) {
          if (noisy) {
            draw(a, b, s, row, col, n, base);
            apply<Device, true>(a, b, row, col, n, base);
          } else {
            apply<Device, false>(a, b, row, col, n, base);
          }
        }
        if (most > 0) {
          for (int j = 0; j < kColumns; ++j) b.total[j] += b.counts[j];
        }
      }
      std::memcpy(a.w + row * a.cols + col, b.w, sizeof(float) * n);
      std::memcpy(a.pulses + row * a.cols + col, b.total, sizeof(int32_t) * n);
    }
  }
}

// Samples [first, last) of the trains of one array.
inline void run_trains(const TrainArguments& a, int64_t array, int64_t first, int64_t last) {
  const int32_t* thresholds = a.thresholds.of(array);
  const uint32_t* key = a.keys.of(array);
  const Words index = lane_index();
  for (int64_t s = first; s < last; ++s) {
    const int64_t slots = a.slots.of(array)[s];
    for (int64_t line = 0; line < a.lines; line += kLanes) {
      const int lanes = static_cast<int>(a.lines - line < kLanes ? a.lines - line : kLanes);
      Ints t = load<Ints>(thresholds + s * a.lines + line, lanes);
      Words sign = as_uint(t) & 0x80000000u;
      Words level = as_uint(select(t < 0, -t, t));
      Words a0{}, a1{};
      for (int64_t word = 0, slot = 0; word < a.words; ++word) {
        Words bits = sign;
        for (int k = 0; k < kSlots; ++k, ++slot) {
          if (slot < slots && (slot % 2 == 0 || k == 0)) {
            a0 = index + (*a.line.of(array) + static_cast<uint32_t>(line));
            a1 = Words{} + static_cast<uint32_t>(slot / 2);
            threefry(Words{} + key[2 * s], Words{} + key[2 * s + 1], a0, a1);
          }
          if (slot >= slots) break;
          const Words draw = slot % 2 ? a1 : a0;
          bits = bits | (as_uint((draw >> 2) < level) & (1u << k));
        }
        slot = (word + 1) * kSlots;
        store(a.trains.of(array) + (s * a.words + word) * a.lines + line, bits, lanes);
      }
    }
  }
}

}  // namespace XBAR_ISA
}  // namespace xbar
