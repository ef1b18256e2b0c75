// The effective conductance of an array on a CPU; see xbar_jax/circuits/effective.py for the recursion.
//
// Row by row x <- F(x + r H) and N <- (I - F)(N + h e_k), F = x (I + x)^-1, by one Gauss-Jordan elimination of
// [I + x | N] in blocks of columns: small inverses and products of full registers. What is kept of I + x is its difference
// from I, so that a small x keeps its digits. Of x and y only blocks on and below the diagonal are kept: at every stage the
// rest is their transpose, with the other sign where one of row and column is eliminated and the other is not.
#pragma once

#include <algorithm>
#include <cmath>

#include "lines.h"

namespace xbar {
inline namespace XBAR_ISA {

template <class T>
struct EffectiveWork {
  static constexpr int w = kWidth<T>;
  static constexpr int64_t kBlock = 32;  // columns eliminated at a time, a multiple of every width
  const Effective<T>& a;
  const Parallel& parallel;
  int64_t m, n, ld, nm, lm;  // rows, lines carried; padded to blocks; lines added, padded
  Ladder<T> line;            // one line of `across` in each register slot
  T *g, *t, *d, *h;          // of one line: [ld] conductances, transfers, diagonal of the inverse, short-circuit currents
  T *v, *x, *port, *panel, *across, *inverse, *by_line;
  T *carried, *y;  // [ld, lm] currents N; [ld, ld] conductance, with a lead of its own

  EffectiveWork(const Effective<T>& arguments, const Parallel& on) : a(arguments), parallel(on) {
    m = a.rows;
    n = a.cols;
    ld = (n + kBlock - 1) / kBlock * kBlock;
    lm = padded<T>(m);
  }

  void plan(Arena& arena) {
    line = Ladder<T>::make(arena, n, w, false);
    for (T** p : {&g, &t, &d, &h, &v}) *p = arena.take<T>(ld);
    x = arena.take<T>(ld * ld);
    port = arena.take<T>(ld * ld);
    y = arena.take<T>(ld * ld);
    panel = arena.take<T>(ld * kBlock);
    across = arena.take<T>(kBlock * ld);
    inverse = arena.take<T>(kBlock * kBlock);
    by_line = arena.take<T>(n * w);
    carried = arena.take<T>(ld * lm);
  }

  // Of w lines from `first`: factors of their tridiagonals.
  void load(int64_t first) {
    const int64_t count = std::min<int64_t>(w, m - first);
    line.load(a.across, first, count, m, a.down.flip);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < w; ++l) by_line[j * w + l] = l < count ? at(first + l, j) : T(0);
    line.factor(by_line);
  }

  // Conductance at position j of line k, both from the near ends.
  T at(int64_t k, int64_t j) const {
    return a.g[(a.down.flip ? m - 1 - k : k) * n + (a.across.flip ? n - 1 - j : j)];
  }

  // port = (diag(g)^-1 + W)^-1 of the loaded line l, lower triangle; h = its row sums.
  void make_port(int64_t l) {
    T diagonal = line.z[l];
    for (int64_t j = 0; j < ld; ++j) g[j] = v[j] = h[j] = 0;
    for (int64_t j = 0; j < n; ++j) {
      g[j] = by_line[j * w + l];
      if (j > 0) {
        const T tj = line.t[(j - 1) * w + l];
        for (int64_t c = 0; c < j; c += w) pack(v + c) *= tj;
        diagonal = tj * (tj * diagonal + line.r[(j - 1) * line.r_stride + l]);
      }
      v[j] = diagonal;
      const T gj = g[j];
      T* row = port + j * ld;
      for (int64_t c = 0; c <= j; c += w) pack(row + c) = -gj * pack(g + c) * pack(v + c);
      row[j] += gj;
    }
    // h = g (1 - (W^-1 + g)^-1 g): the drops for a unit drive, by the sweeps of a line.
    T norton = 0;
    for (int64_t j = n - 1; j >= 0; --j) {
      d[j] = norton;  // of position j + 1
      norton = g[j] + (j + 1 < n ? line.t[j * w + l] * norton : T(0));
    }
    T drop = line.z[l] * norton;
    for (int64_t j = 0; j < n; ++j) {
      h[j] = g[j] * (T(1) - drop);
      if (j + 1 < n) drop = line.t[j * w + l] * drop + line.s[j * w + l] * d[j];
    }
  }

  // inverse <- F of the diagonal block at k, by columns.
  void invert_block(int64_t k) {
    T* f = inverse;
    for (int64_t i = 0; i < kBlock; ++i)
      for (int64_t j = 0; j < kBlock; j += w) pack(f + i * kBlock + j) = pack(x + (k + i) * ld + k + j);
    for (int64_t p = 0; p < kBlock; ++p) {
      T* row = f + p * kBlock;
      const T xpp = row[p], pivot = T(1) / (T(1) + xpp);
      for (int64_t j = 0; j < kBlock; j += w) pack(row + j) *= pivot;
      row[p] = -xpp * pivot;
      for (int64_t i = 0; i < kBlock; ++i) {
        if (i == p) continue;
        T* other = f + i * kBlock;
        const T c = other[p];
        other[p] = 0;
        Pack<T> mine = Pack<T>{} + c;
        for (int64_t j = 0; j < kBlock; j += w) pack(other + j) -= mine * pack(row + j);
        other[p] = -c * pivot;
      }
    }
    for (int64_t e = 0; e < kBlock * kBlock; e += w) pack(f + e) = -pack(f + e);
  }

  // [x | carried] <- [F(x) | (I - F) carried]; columns of `carried` from c0 on are live.
  void eliminate(int64_t c0) {
    const int64_t live = lm - c0;
    for (int64_t k = 0; k < ld; k += kBlock) {
      invert_block(k);
      // Columns k of all rows, and rows k over all columns, times (I - F) of the block.
      for (int64_t i = 0; i < ld; ++i) {
        T* left = panel + i * kBlock;
        if (i >= k) {
          std::memcpy(left, x + i * ld + k, sizeof(T) * kBlock);
        } else {
          for (int64_t c = 0; c < kBlock; ++c) left[c] = -x[(k + c) * ld + i];
        }
      }
      for (int64_t c = 0; c < kBlock; ++c) {
        if (k > 0) std::memcpy(across + c * ld, x + (k + c) * ld, sizeof(T) * k);
        for (int64_t j = k; j < ld; ++j) across[c * ld + j] = panel[j * kBlock + c];
      }
      times_rest(across, ld, ld);
      times_rest(carried + k * lm + c0, lm, live);
      const int64_t stripes = (ld / kBlock + 3) / 4;  // blocks of rows for one task
      parallel((ld / kBlock + stripes - 1) / stripes, [&](int64_t s) {
        for (int64_t i = s * stripes * kBlock; i < std::min(ld, (s + 1) * stripes * kBlock); i += kBlock) {
          T* rows = x + i * ld;
          if (i == k) {
            for (int64_t r = 0; r < kBlock; ++r) {
              if (k > 0) std::memcpy(rows + r * ld, across + r * ld, sizeof(T) * k);
              for (int64_t j = 0; j < kBlock; j += w) pack(rows + r * ld + k + j) = -pack(inverse + r * kBlock + j);
            }
            continue;
          }
          const T* left = panel + i * kBlock;
          if (i > k) {
            if (k > 0) multiply<T>(kBlock, k, kBlock, left, kBlock, 1, across, ld, rows, ld, T(-1));
            // Columns k become -left (I - F).
            for (int64_t r = 0; r < kBlock; ++r)
              for (int64_t j = 0; j < kBlock; j += w) pack(rows + r * ld + k + j) = -pack(left + r * kBlock + j);
            multiply<T>(kBlock, kBlock, kBlock, left, kBlock, 1, inverse, kBlock, rows + k, ld, T(1));
            multiply<T>(kBlock, i - k, kBlock, left, kBlock, 1, across + k + kBlock, ld, rows + k + kBlock, ld, T(-1));
          } else {
            multiply<T>(kBlock, i + kBlock, kBlock, left, kBlock, 1, across, ld, rows, ld, T(-1));
          }
          multiply<T>(kBlock, live, kBlock, left, kBlock, 1, carried + k * lm + c0, lm, carried + i * lm + c0, lm, T(-1));
        }
      });
    }
    for (int64_t i = 0; i < ld; ++i) {
      const int64_t end = (i / kBlock + 1) * kBlock;
      for (int64_t j = 0; j < end; j += w) pack(x + i * ld + j) = -pack(x + i * ld + j);
    }
  }

  // rows <- (I - inverse) rows, kBlock rows of `cols` columns.
  void times_rest(T* rows, int64_t stride, int64_t cols) {
    for (int64_t c = 0; c < cols; c += kBlock) {
      const int64_t width = std::min<int64_t>(kBlock, cols - c);
      alignas(64) T old[kBlock * kBlock];
      for (int64_t r = 0; r < kBlock; ++r) std::memcpy(old + r * kBlock, rows + r * stride + c, sizeof(T) * width);
      multiply<T>(kBlock, width, kBlock, inverse, kBlock, 1, old, kBlock, rows + c, stride, T(-1));
    }
  }

  // Adds the port to y; its blocks on the diagonal are completed.
  void add_port() {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t block = i / kBlock * kBlock;
      for (int64_t j = block; j < i; ++j) port[j * ld + i] = port[i * ld + j];
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t end = (i / kBlock + 1) * kBlock;
      for (int64_t j = 0; j < end; j += w) pack(y + i * ld + j) += pack(port + i * ld + j);
    }
  }

  // Lead and segment of line j of `down`; segment q lies between positions q and q + 1.
  T lead(int64_t j) const { return a.down.near[a.across.flip ? n - 1 - j : j]; }
  T segment(int64_t q, int64_t j) const {
    const int64_t from = a.down.flip ? m - 2 - q : q, line_at = a.across.flip ? n - 1 - j : j;
    return a.down.r[from * a.down.along + line_at * a.down.across];
  }

  void solve() {
    for (T* p : {x, port, y}) std::memset(p, 0, sizeof(T) * ld * ld);
    std::memset(carried, 0, sizeof(T) * ld * lm);
    int64_t loaded = -1;
    for (int64_t k = m - 1; k >= 0; --k) {
      // y, the conductance of what is behind, and the new line on top of it.
      if (loaded != k / w) {
        loaded = k / w;
        load(loaded * w);
      }
      make_port(k % w);
      add_port();
      for (int64_t j = 0; j < n; ++j) carried[j * lm + k] += h[j];
      // One segment, or the lead, in series: x = sqrt(r) y sqrt(r), y <- y - y F..., scaled back. A line without
      // resistance is left alone.
      bool any = false, same = true;
      const T r0 = k > 0 ? segment(k - 1, 0) : lead(0);
      for (int64_t j = 0; j < n; ++j) {
        const T r = k > 0 ? segment(k - 1, j) : lead(j);
        any |= r > 0;
        same &= r == r0;
        v[j] = std::sqrt(r);
      }
      if (!any) continue;
      const int64_t c0 = k / w * w;
      if (same) {
        for (int64_t i = 0; i < ld; ++i)
          for (int64_t j = 0; j < (i / kBlock + 1) * kBlock; j += w) pack(x + i * ld + j) = r0 * pack(y + i * ld + j);
        eliminate(c0);
        const T back = T(1) / r0;
        for (int64_t i = 0; i < ld; ++i)
          for (int64_t j = 0; j < (i / kBlock + 1) * kBlock; j += w) pack(y + i * ld + j) = back * pack(x + i * ld + j);
      } else {
        unequal(c0);
      }
    }
    // out[k, j] = carried[j, k]
    for (int64_t k = 0; k < m; ++k)
      for (int64_t j = 0; j < n; ++j)
        a.out[(a.down.flip ? m - 1 - k : k) * n + (a.across.flip ? n - 1 - j : j)] = carried[j * lm + k];
  }

  // The same where the lines in series differ: (I + y r)^-1 = s^-1 (I + s y s)^-1 s on lines with s = sqrt(r) > 0.
  void unequal(int64_t c0) {
    T least = 0;
    for (int64_t j = 0; j < n; ++j) least = least == 0 || (v[j] > 0 && v[j] < least) ? v[j] : least;
    const T tiny = least * static_cast<T>(1e-4);  // stands for 0: what it changes is below rounding
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] > 0 ? v[j] : tiny;
    for (int64_t j = n; j < ld; ++j) v[j] = 1;
    for (int64_t i = 0; i < ld; ++i) {
      for (int64_t j = 0; j < ld; j += w) pack(x + i * ld + j) = v[i] * pack(y + i * ld + j) * pack(v + j);
      for (int64_t j = c0; j < lm; j += w) pack(carried + i * lm + j) *= v[i];
    }
    eliminate(c0);
    for (int64_t i = 0; i < ld; ++i) {
      const T back = T(1) / v[i];
      for (int64_t j = 0; j < ld; j += w) pack(y + i * ld + j) = back * pack(x + i * ld + j) / pack(v + j);
      for (int64_t j = c0; j < lm; j += w) pack(carried + i * lm + j) *= back;
    }
  }
};

template <class T>
inline int64_t effective_scratch(const Effective<T>& a) {
  const Parallel serial{nullptr, nullptr};
  EffectiveWork<T> work(a, serial);
  Arena arena;
  work.plan(arena);
  return arena.used;
}

template <class T>
inline void effective_solve(const Effective<T>& a, char* scratch, const Parallel& parallel) {
  EffectiveWork<T> work(a, parallel);
  Arena arena{scratch, 0};
  work.plan(arena);
  work.solve();
}

}  // namespace XBAR_ISA
}  // namespace xbar
