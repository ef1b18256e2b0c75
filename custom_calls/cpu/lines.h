// Bundles of lines on a CPU: the sweeps of xbar_jax/circuits/lines.py, lines side by side in registers.
//
// A bundle is stored position after position, counted from the near terminal, its lines next to each other and padded
// to whole registers. Padding lines have no conductance and no resistance, and carry nothing.
#pragma once

#include "pack.h"
#include "xbar/circuits.h"

namespace xbar {
inline namespace XBAR_ISA {

// Memory that is handed out piece by piece, aligned to registers. With no base it only counts.
struct Arena {
  char* base = nullptr;
  int64_t used = 0;

  template <class T>
  T* take(int64_t n) {
    char* p = base + used;
    used += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return base ? reinterpret_cast<T*>(p) : nullptr;
  }
};

// `m` lines (a multiple of the width) of `n` positions; rows of the arrays are m apart.
template <class T>
struct Ladder {
  int64_t n = 0, m = 0;
  int64_t r_stride = 0;                                // 0: one resistance a line
  T* r = nullptr;                                      // [n - 1 or 1, m] ohm
  T *near = nullptr, *far = nullptr, *span = nullptr;  // [m] ohm; span: whole line with both terminals
  T *near_on = nullptr, *far_on = nullptr, *cut = nullptr, *loose = nullptr;  // [m] 1 or 0
  T *t = nullptr, *s = nullptr, *z = nullptr;  // factors of W^-1 + g: [n - 1, m], [n - 1, m], [m]
  bool two_ended = false, floats = false;      // a line has a far terminal; a line has none

  static Ladder make(Arena& arena, int64_t n, int64_t m, bool uniform) {
    Ladder f;
    f.n = n;
    f.m = m;
    f.r_stride = uniform ? 0 : m;
    f.r = arena.take<T>(uniform ? m : (n - 1) * m);
    for (T** p : {&f.near, &f.far, &f.span, &f.near_on, &f.far_on, &f.cut, &f.loose, &f.z}) *p = arena.take<T>(m);
    f.t = arena.take<T>((n - 1) * m);
    f.s = arena.take<T>((n - 1) * m);
    return f;
  }

  // Reads lines [first, first + count) of a bundle; `reversed` counts its lines from the last of `lines`.
  void load(const Bundle<T>& b, int64_t first, int64_t count, int64_t lines, bool reversed) {
    two_ended = floats = false;
    for (int64_t l = 0; l < m; ++l) {
      const bool real = l < count;
      const int64_t line = reversed ? lines - 1 - (first + l) : first + l;
      const int32_t ends = real ? b.ends[line] : static_cast<int32_t>(Bundle<T>::kNear);
      near_on[l] = ends & Bundle<T>::kNear ? T(1) : T(0);
      far_on[l] = ends & Bundle<T>::kFar ? T(1) : T(0);
      cut[l] = ends & Bundle<T>::kCut ? T(1) : T(0);
      loose[l] = ends == 0 ? T(1) : T(0);
      floats |= ends == 0;
      near[l] = real ? b.near[line] : T(0);
      far[l] = real ? b.far[line] : T(0);
      two_ended |= real && (ends & Bundle<T>::kFar);
      span[l] = near[l] + far[l];
      if (n == 1) continue;
      if (r_stride == 0) {
        r[l] = real ? b.r[line * b.across] : T(0);
        span[l] += static_cast<T>(n - 1) * r[l];
        continue;
      }
      for (int64_t k = 0; k < n - 1; ++k) {
        const int64_t from = b.flip ? n - 2 - k : k;
        r[k * m + l] = real ? b.r[from * b.along + line * b.across] : T(0);
        span[l] += r[k * m + l];
      }
    }
  }

  // t, s, z for conductances g [n, m] from the nodes to ground: from the far end inwards, position by position, so that
  // the divisions of lines side by side overlap; z holds what is seen so far. In three parts, so that several ladders
  // can be factored in step.
  void begin(const T* g) {
    for (int64_t l = 0; l < m; l += kWidth<T>) {
      const Pack<T> zero{}, tiny = zero + static_cast<T>(1e-20);
      pack(z + l) = pack(g + (n - 1) * m + l);
      if (two_ended) pack(z + l) += pack(far_on + l) / larger(tiny, pack(far + l));
    }
  }
  void step(const T* g, int64_t k) {
    for (int64_t l = 0; l < m; l += kWidth<T>) {
      const Pack<T> zero{}, x = pack(r + k * r_stride + l), y = pack(z + l);
      Pack<T> tk = T(1) / (T(1) + x * y), sk = x * tk;
      if (two_ended) {
        const Pack<T> open = pack(cut + l) * pack(near_on + l) * pack(far_on + l);
        sk = open > 0 ? (y > 0 ? T(1) / y : zero) : sk;
        tk = open > 0 ? zero : tk;
      }
      pack(t + k * m + l) = tk;
      pack(s + k * m + l) = sk;
      pack(z + l) = pack(g + k * m + l) + tk * y;
    }
  }
  void finish() {
    for (int64_t l = 0; l < m; l += kWidth<T>) {
      const Pack<T> zero{}, ohm = pack(near + l), y = pack(z + l);
      pack(z + l) = pack(near_on + l) > 0 ? ohm / (T(1) + ohm * y) : (y > 0 ? T(1) / y : zero);
    }
  }
  void factor(const T* g) {
    begin(g);
    for (int64_t k = n - 2; k >= 0; --k) step(g, k);
    finish();
  }

  // W d: drops of currents d [n, m]; in place where out is d. Lines [l0, l1).
  void drops(const T* d, T* out, int64_t l0, int64_t l1) const {
    for (int64_t l = l0; l < l1; l += kWidth<T>) {
      const Pack<T> zero{};
      Pack<T> suffix{}, weighted{};
      for (int64_t k = n - 1; k >= 0; --k) {
        suffix += pack(d + k * m + l);
        pack(out + k * m + l) = suffix;
        if (two_ended && k > 0) weighted += pack(r + (k - 1) * r_stride + l) * suffix;
      }
      const Pack<T> ohm = pack(near + l);
      Pack<T> drop = ohm * suffix, back{};
      if (two_ended) {
        const Pack<T> last = pack(out + (n - 1) * m + l), on = pack(near_on + l), off = pack(far_on + l);
        const Pack<T> whole = pack(span + l);
        back = (ohm * suffix + weighted) / (whole > 0 ? whole : zero + T(1));
        back = pack(cut + l) > 0 ? last : back;
        back = off > 0 ? (on > 0 ? back : suffix) : zero;
        Pack<T> segments{};
        for (int64_t k = 0; k < n - 1; ++k)
          segments += pack(r + k * r_stride + l) * (pack(out + (k + 1) * m + l) - back);
        drop = (on > 0) | (off == 0) ? ohm * (suffix - back) : pack(far + l) * suffix - segments;
      }
      Pack<T> through{};
      for (int64_t k = 0; k < n; ++k) {
        const Pack<T> next = k + 1 < n ? pack(out + (k + 1) * m + l) : zero;
        if (k > 0) drop += pack(r + (k - 1) * r_stride + l) * through;
        through = next - back;
        Pack<T> value = drop;
        if (two_ended && k == n - 1)
          value = (pack(cut + l) > 0) & (pack(far_on + l) > 0) ? pack(far + l) * back : value;
        // `out` at k + 1 is read before it is written in the next turn.
        pack(out + k * m + l) = value;
      }
    }
  }
};

}  // namespace XBAR_ISA
}  // namespace xbar
