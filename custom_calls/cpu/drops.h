// Voltage drops (W_w + W_b) i that cell currents cause along both their lines; see Network.drop in network.py.
#pragma once

#include <algorithm>
#include <cstring>

#include "lines.h"

namespace xbar {
inline namespace XBAR_ISA {

template <class T>
struct DropsWork {
  static constexpr int w = kWidth<T>;
  const Drops<T>& a;
  int64_t ld, padded_rows;
  Ladder<T> bit, word;
  T *in, *out, *block;

  DropsWork(const Drops<T>& arguments, Arena& arena)
      : a(arguments), ld(padded<T>(a.cols)), padded_rows(padded<T>(a.rows)) {
    bit = Ladder<T>::make(arena, a.rows, ld, a.bit.along == 0);
    word = Ladder<T>::make(arena, a.cols, w, a.word.along == 0);
    in = arena.take<T>(padded_rows * ld);
    out = arena.take<T>(padded_rows * ld);
    block = arena.take<T>(ld * w);
  }

  void solve() {
    const auto row = [&](int64_t i) { return a.bit.flip ? a.rows - 1 - i : i; };
    std::memset(in, 0, sizeof(T) * padded_rows * ld);
    for (int64_t i = 0; i < a.rows; ++i) {
      const T* from = a.i + row(i) * a.cols;
      if (a.word.flip) {
        std::reverse_copy(from, from + a.cols, in + i * ld);
      } else {
        std::copy(from, from + a.cols, in + i * ld);
      }
    }
    bit.load(a.bit, 0, a.cols, a.cols, a.word.flip);
    bit.drops(in, out, 0, ld);
    for (int64_t first = 0; first < a.rows; first += w) {
      const int64_t count = std::min<int64_t>(w, a.rows - first);
      word.load(a.word, first, count, a.rows, a.bit.flip);
      gather_lines(in + first * ld, ld, ld, block);
      word.drops(block, block, 0, w);
      for (int64_t j = 0; j < ld; j += w) {
        Pack<T> tile[w];
        for (int l = 0; l < w; ++l) tile[l] = pack(block + (j + l) * w);
        transpose_stage<T, 1>(tile);
        for (int64_t l = 0; l < count; ++l) pack(out + (first + l) * ld + j) += tile[l];
      }
    }
    for (int64_t i = 0; i < a.rows; ++i) {
      const T* from = out + i * ld;
      T* to = a.out + row(i) * a.cols;
      if (a.word.flip) {
        std::reverse_copy(from, from + a.cols, to);
      } else {
        std::copy(from, from + a.cols, to);
      }
    }
  }
};

template <class T>
inline int64_t drops_scratch(const Drops<T>& a) {
  Arena arena;
  DropsWork<T> work(a, arena);
  return arena.used;
}

template <class T>
inline void drops_solve(const Drops<T>& a, char* scratch) {
  Arena arena{scratch, 0};
  DropsWork<T>(a, arena).solve();
}

}  // namespace XBAR_ISA
}  // namespace xbar
