// The effective conductance of an array on a CPU; see xbar_jax/circuits/effective.py for the recursion.
//
// Row by row x <- F(x + r H) and N <- (I - F)(N + h e_k), F = x (I + x)^-1, by one Gauss-Jordan elimination of
// [I + x | N] in blocks of columns: small inverses and products of full registers. What is kept of I + x is its
// difference from I, so that a small x keeps its digits. N does not act back on x, so it follows some lines behind, in
// pieces, on the other threads. Of x and y only blocks on and below the diagonal are kept: at every stage the rest is
// their transpose, with the other sign where one of row and column is eliminated and the other is not.
#pragma once

#include <algorithm>
#include <cmath>

#include "lines.h"

namespace xbar {
inline namespace XBAR_ISA {

template <class T>
struct EffectiveWork {
  static constexpr int w = kWidth<T>;
  static constexpr int64_t kBlock = 16;  // columns eliminated at a time, a multiple of every width
  static constexpr int64_t kAhead = 8;   // lines eliminated before their currents follow
  static constexpr int64_t kSlices = 4;  // pieces of the currents
  // What the elimination of one line did, for the currents that follow.
  struct Step {
    int64_t line;
    bool series;  // there was a resistance in series
    T *h, *scale, *panels, *inverses;
  };

  const Effective<T>& a;
  const Parallel& parallel;
  int64_t m, n, ld, nm, lm;  // rows, lines carried; padded to blocks; lines added, padded
  Ladder<T> line;            // one line of `across` in each register slot
  T *g, *d, *v, *open;       // [ld] of one line; open: voltages of its nodes under a unit drive
  T *x, *port, *across, *by_line;
  Step steps[2][kAhead];
  int64_t loaded = -1;
  T *carried, *y;  // [ld, lm] currents N; [ld, ld] conductance, with a lead of its own

  EffectiveWork(const Effective<T>& arguments, const Parallel& on) : a(arguments), parallel(on) {
    m = a.rows;
    n = a.cols;
    ld = (n + kBlock - 1) / kBlock * kBlock;
    lm = padded<T>(m);
  }

  void plan(Arena& arena) {
    line = Ladder<T>::make(arena, n, w, false);
    for (T** p : {&g, &d, &v, &open}) *p = arena.take<T>(ld);
    x = arena.take<T>(ld * ld);
    port = arena.take<T>(ld * ld);
    y = arena.take<T>(ld * ld);
    across = arena.take<T>(kBlock * ld);
    by_line = arena.take<T>(n * w);
    carried = arena.take<T>(ld * lm);
    for (int64_t q = 0; q < 2 * (parallel.pool ? kAhead : 1); ++q) {
      Step& step = steps[q % 2][q / 2];
      step.line = -1;
      for (T** p : {&step.h, &step.scale}) *p = arena.take<T>(ld);
      step.panels = arena.take<T>(ld * ld);
      step.inverses = arena.take<T>(ld * kBlock);
    }
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
  T at(int64_t k, int64_t j) const { return a.g[(a.down.flip ? m - 1 - k : k) * n + (a.across.flip ? n - 1 - j : j)]; }

  // port = (diag(g)^-1 + W)^-1 of the loaded line l, lower triangle; h = its row sums.
  void make_port(int64_t l, T* h) {
    T diagonal = line.z[l];
    for (int64_t j = 0; j < ld; ++j) g[j] = v[j] = h[j] = open[j] = 0;
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
      open[j] = T(1) - drop;
      h[j] = g[j] * open[j];
      if (j + 1 < n) drop = line.t[j * w + l] * drop + line.s[j * w + l] * d[j];
    }
  }

  // f <- F of the diagonal block at k, column by column.
  void invert_block(int64_t k, T* f) const {
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

  // x <- F(x), noting every block's columns and inverse.
  void eliminate(const Step& step) {
    for (int64_t k = 0; k < ld; k += kBlock) {
      T *panel = step.panels + k * ld, *inverse = step.inverses + k * kBlock;
      invert_block(k, inverse);
      // Columns k of all rows, and rows k over all columns, times (I - F) of the block.
      T tile[w * kBlock] __attribute__((aligned(64)));
      for (int64_t i = 0; i < k; i += w) {
        for (int64_t c = 0; c < kBlock; c += w) {
          gather_lines(x + (k + c) * ld + i, ld, w, tile);
          for (int64_t l = 0; l < w; ++l) pack(panel + (i + l) * kBlock + c) = -pack(tile + l * w);
        }
      }
      for (int64_t i = k; i < ld; ++i) std::memcpy(panel + i * kBlock, x + i * ld + k, sizeof(T) * kBlock);
      for (int64_t c = 0; c < kBlock && k > 0; ++c) std::memcpy(across + c * ld, x + (k + c) * ld, sizeof(T) * k);
      for (int64_t j = k; j < ld; j += w) {
        gather_lines(panel + j * kBlock, kBlock, kBlock, tile);
        for (int64_t c = 0; c < kBlock; ++c) pack(across + c * ld + j) = pack(tile + c * w);
      }
      times_rest(inverse, across, ld, ld);
      for (int64_t i = 0; i < ld; i += kBlock) {
        T* rows = x + i * ld;
        const T* left = panel + i * kBlock;
        if (i == k) {
          for (int64_t r = 0; r < kBlock; ++r) {
            if (k > 0) std::memcpy(rows + r * ld, across + r * ld, sizeof(T) * k);
            for (int64_t j = 0; j < kBlock; j += w) pack(rows + r * ld + k + j) = -pack(inverse + r * kBlock + j);
          }
        } else if (i > k) {
          if (k > 0) multiply<T>(kBlock, k, kBlock, left, kBlock, 1, across, ld, rows, ld, T(-1));
          // Columns k become -left (I - F).
          for (int64_t r = 0; r < kBlock; ++r)
            for (int64_t j = 0; j < kBlock; j += w) pack(rows + r * ld + k + j) = -pack(left + r * kBlock + j);
          multiply<T>(kBlock, kBlock, kBlock, left, kBlock, 1, inverse, kBlock, rows + k, ld, T(1));
          multiply<T>(kBlock, i - k, kBlock, left, kBlock, 1, across + k + kBlock, ld, rows + k + kBlock, ld, T(-1));
        } else {
          multiply<T>(kBlock, i + kBlock, kBlock, left, kBlock, 1, across, ld, rows, ld, T(-1));
        }
      }
    }
    for (int64_t i = 0; i < ld; ++i) {
      const int64_t end = (i / kBlock + 1) * kBlock;
      for (int64_t j = 0; j < end; j += w) pack(x + i * ld + j) = -pack(x + i * ld + j);
    }
  }

  // The same on the currents of lines [first, last): carried <- (I - F)(carried + h e_line).
  void follow(const Step& step, int64_t first, int64_t last) {
    const int64_t k0 = std::max(first, step.line / w * w), live = last - k0;
    if (live <= 0) return;
    if (step.line >= first && step.line < last)
      for (int64_t j = 0; j < n; ++j) carried[j * lm + step.line] += step.h[j];
    if (!step.series) return;
    const auto scale = [&](bool back) {
      for (int64_t j = 0; j < n; ++j) {
        const T by = back ? T(1) / step.scale[j] : step.scale[j];
        for (int64_t c = k0; c < last; c += w) pack(carried + j * lm + c) *= by;
      }
    };
    scale(false);
    for (int64_t k = 0; k < ld; k += kBlock) {
      const T *panel = step.panels + k * ld, *inverse = step.inverses + k * kBlock;
      times_rest(inverse, carried + k * lm + k0, lm, live);
      for (int64_t i = 0; i < ld; i += kBlock) {
        if (i == k) continue;
        multiply<T>(kBlock, live, kBlock, panel + i * kBlock, kBlock, 1, carried + k * lm + k0, lm,
                    carried + i * lm + k0, lm, T(-1));
      }
    }
    scale(true);
  }

  // rows <- (I - inverse) rows, kBlock rows of `cols` columns.
  static void times_rest(const T* inverse, T* rows, int64_t stride, int64_t cols) {
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

  // Adds line k to y, and what is in series behind it.
  void add_line(int64_t k, Step& step) {
    if (loaded != k / w) {
      loaded = k / w;
      load(loaded * w);
    }
    step.line = k;
    make_port(k % w, step.h);
    add_port();
    T least = 0;
    for (int64_t j = 0; j < n; ++j) {
      step.scale[j] = k > 0 ? segment(k - 1, j) : lead(j);
      if (step.scale[j] > 0 && (least == 0 || step.scale[j] < least)) least = step.scale[j];
    }
    step.series = least > 0;
    if (!step.series) return;
    // (I + y r)^-1 = s^-1 (I + s y s)^-1 s with s = sqrt(r). Beside others a resistance of 0 stands for one so much
    // smaller that it changes nothing: the elimination keeps the scale of every row and column apart, whatever it is.
    const T floor = least * static_cast<T>(sizeof(T) == 8 ? 1e-24 : 1e-14);
    for (int64_t j = 0; j < n; ++j) step.scale[j] = std::sqrt(std::max(step.scale[j], floor));
    for (int64_t j = n; j < ld; ++j) step.scale[j] = 1;
    for (int64_t i = 0; i < ld; ++i)
      for (int64_t j = 0; j < (i / kBlock + 1) * kBlock; j += w)
        pack(x + i * ld + j) = step.scale[i] * pack(y + i * ld + j) * pack(step.scale + j);
    eliminate(step);
    for (int64_t j = 0; j < ld; ++j) v[j] = T(1) / step.scale[j];
    for (int64_t i = 0; i < ld; ++i)
      for (int64_t j = 0; j < (i / kBlock + 1) * kBlock; j += w)
        pack(y + i * ld + j) = v[i] * pack(x + i * ld + j) * pack(v + j);
  }

  void solve() {
    for (T* p : {x, port, y}) std::memset(p, 0, sizeof(T) * ld * ld);
    std::memset(carried, 0, sizeof(T) * ld * lm);
    loaded = -1;
    const int64_t ahead = parallel.pool ? kAhead : 1, slices = parallel.pool ? kSlices : 1;
    const int64_t slice = padded<T>((lm + slices - 1) / slices), rounds = (m + ahead - 1) / ahead;
    // Round after round: the next lines are added while the currents follow those of the round before.
    for (int64_t round = 0; round <= rounds; ++round) {
      Step *next = steps[round % 2], *before = steps[(round + 1) % 2];
      parallel(1 + slices, [&](int64_t task) {
        if (task == 0) {
          for (int64_t q = 0; q < ahead && round < rounds; ++q) {
            const int64_t k = m - 1 - (round * ahead + q);
            next[q].line = k;
            if (k >= 0) add_line(k, next[q]);
          }
        } else if (round > 0) {
          const int64_t first = (task - 1) * slice, last = std::min(lm, first + slice);
          for (int64_t q = 0; q < ahead && before[q].line >= 0; ++q) follow(before[q], first, last);
        }
      });
    }
    // out[k, j] = carried[j, k]
    for (int64_t k = 0; k < m; ++k)
      for (int64_t j = 0; j < n; ++j)
        a.out[(a.down.flip ? m - 1 - k : k) * n + (a.across.flip ? n - 1 - j : j)] = carried[j * lm + k];
  }
};

// The transpose of its derivative: from what a loss gains with G_eff, what it gains with g.
//
// With T = (I + y R)^-1, N' = T N, y' = T y for what is in series (R) behind line k, y = y'' + H and N = N'' + h e_k
// for the line on top of what is farther, and bars for gradients,
//
//     bar N = T^T bar N',   bar y = T^T bar y' T - sym(bar N N'^T R),   bar N'' = bar N,   bar y'' = bar H = bar y,
//     bar g_j = [C bar H C^T]_jj + (C bar h)_j (1 - drop_j),   C = I - A^-1 g,   bar h = bar N e_k,
//
// from the near end to the far one, with F = I - T of every line kept from the way there. A^-1 is applied by sweeps.
template <class T>
struct EffectiveTranspose : EffectiveWork<T> {
  using Work = EffectiveWork<T>;
  using Step = typename Work::Step;
  using Work::a, Work::at, Work::carried, Work::g, Work::ld, Work::line, Work::lm, Work::m, Work::n, Work::open,
      Work::parallel, Work::port, Work::v, Work::w, Work::x;
  const T* gain;  // [rows, cols]
  T *kept_f, *kept_n, *scales, *bar_n, *bar_y, *left, *right, *solved, *one, *two;
  bool* series;
  int64_t* begins;  // where the currents of a line are kept

  EffectiveTranspose(const Effective<T>& arguments, const T* bar, const Parallel& on)
      : Work(arguments, on), gain(bar) {}

  void plan(Arena& arena) {
    Work::plan(arena);
    kept_f = arena.take<T>(m * ld * ld);
    int64_t all = 0;
    begins = arena.take<int64_t>(m);
    for (int64_t k = 0; k < m; ++k) {
      if (arena.base) begins[k] = all;
      all += (lm - k / w * w) * ld;
    }
    kept_n = arena.take<T>(all);
    scales = arena.take<T>(m * ld);
    series = arena.take<bool>(m);
    bar_n = arena.take<T>(ld * lm);
    left = arena.take<T>(ld * lm);
    for (T** p : {&bar_y, &right, &solved}) *p = arena.take<T>(ld * ld);
    for (T** p : {&one, &two}) *p = arena.take<T>(ld);
  }

  // out -= f in over `cols` columns, in stripes of rows.
  void subtract(const T* f, const T* in, T* out, int64_t stride, int64_t cols) {
    constexpr int64_t kRows = 32;
    const auto stripe = [&](int64_t s) {
      const int64_t i = s * kRows, rows = std::min(kRows, ld - i);
      multiply<T>(rows, cols, ld, f + i * ld, ld, 1, in, stride, out + i * stride, stride, T(-1));
    };
    if (ld * ld * cols < (int64_t{1} << 20)) {
      for (int64_t s = 0; s * kRows < ld; ++s) stripe(s);
    } else {
      parallel((ld + kRows - 1) / kRows, stripe);
    }
  }

  void forward() {
    for (T* p : {x, port, this->y}) std::memset(p, 0, sizeof(T) * ld * ld);
    std::memset(carried, 0, sizeof(T) * ld * lm);
    this->loaded = -1;
    Step& step = this->steps[0][0];
    for (int64_t k = m - 1; k >= 0; --k) {
      this->add_line(k, step);
      this->follow(step, 0, lm);
      series[k] = step.series;
      if (!step.series) continue;
      std::memcpy(scales + k * ld, step.scale, sizeof(T) * ld);
      T* f = kept_f + k * ld * ld;
      for (int64_t i = 0; i < ld; ++i)
        std::memcpy(f + i * ld, x + i * ld, sizeof(T) * (i / Work::kBlock + 1) * Work::kBlock);
      for (int64_t i = 0; i < ld; ++i)
        for (int64_t j = (i / Work::kBlock + 1) * Work::kBlock; j < ld; ++j) f[i * ld + j] = f[j * ld + i];
      const int64_t c0 = k / w * w;
      T tile[w * w] __attribute__((aligned(64)));
      for (int64_t j = 0; j < ld; j += w) {
        for (int64_t c = c0; c < lm; c += w) {
          gather_lines(carried + j * lm + c, lm, w, tile);
          for (int64_t l = 0; l < w; ++l) pack(kept_n + begins[k] + (c - c0 + l) * ld + j) = pack(tile + l * w);
        }
      }
    }
  }

  void solve() {
    forward();
    std::memset(bar_n, 0, sizeof(T) * ld * lm);
    std::memset(bar_y, 0, sizeof(T) * ld * ld);
    for (int64_t k = 0; k < m; ++k)
      for (int64_t j = 0; j < n; ++j)
        bar_n[j * lm + k] = gain[(a.down.flip ? m - 1 - k : k) * n + (a.across.flip ? n - 1 - j : j)];
    this->loaded = -1;
    for (int64_t k = 0; k < m; ++k) {
      if (series[k]) through(k);
      line_gain(k);
    }
  }

  // Gradients before what is in series behind line k, from those behind it.
  void through(int64_t k) {
    const T *f = kept_f + k * ld * ld, *s = scales + k * ld, *after = kept_n + begins[k];
    const int64_t c0 = k / w * w, live = lm - c0;
    for (int64_t i = 0; i < ld; ++i) {
      const T back = T(1) / s[i];
      v[i] = back;
      for (int64_t c = c0; c < lm; c += w) pack(left + i * lm + c) = pack(bar_n + i * lm + c) *= back;
    }
    subtract(f, left + c0, bar_n + c0, lm, live);
    for (int64_t i = 0; i < ld; ++i)
      for (int64_t j = 0; j < ld; j += w) pack(right + i * ld + j) = pack(bar_y + i * ld + j) *= v[i] * pack(v + j);
    subtract(f, right, bar_y, ld, ld);
    std::memcpy(right, bar_y, sizeof(T) * ld * ld);
    subtract(right, f, bar_y, ld, ld);
    // (s^-1 bar N)(s N')^T; N' is scaled where the product is.
    std::memset(right, 0, sizeof(T) * ld * ld);
    constexpr int64_t kRows = 32;
    const auto stripe = [&](int64_t q) {
      const int64_t i = q * kRows, rows = std::min(kRows, ld - i);
      multiply<T>(rows, ld, live, bar_n + i * lm + c0, lm, 1, after, ld, right + i * ld, ld, T(1));
    };
    if (ld * ld * live < (int64_t{1} << 20)) {
      for (int64_t q = 0; q * kRows < ld; ++q) stripe(q);
    } else {
      parallel((ld + kRows - 1) / kRows, stripe);
    }
    for (int64_t i = 0; i < ld; ++i)
      for (int64_t j = 0; j < ld; j += w) pack(right + i * ld + j) *= pack(s + j);
    for (int64_t i = 0; i < ld; i += w) {
      T tile[w * w] __attribute__((aligned(64)));
      for (int64_t j = 0; j < ld; j += w) {
        gather_lines(right + j * ld + i, ld, w, tile);  // tile[l, .] = right[j + ., i + l]
        for (int64_t l = 0; l < w; ++l) {
          T* row = bar_y + (i + l) * ld + j;
          const Pack<T> both = T(0.5) * (pack(right + (i + l) * ld + j) + pack(tile + l * w));
          pack(row) = s[i + l] * (pack(row) - both) * pack(s + j);
        }
      }
    }
    for (int64_t i = 0; i < ld; ++i)
      for (int64_t c = c0; c < lm; c += w) pack(bar_n + i * lm + c) *= s[i];
  }

  // The gradient of the cells of line k.
  void line_gain(int64_t k) {
    if (this->loaded != k / w) {
      this->loaded = k / w;
      this->load(this->loaded * w);
    }
    const int64_t l = k % w;
    this->make_port(l, one);  // for g, open; the port is rebuilt below as A^-1
    const auto t = [&](int64_t j) { return line.t[j * w + l]; };
    const auto s = [&](int64_t j) { return line.s[j * w + l]; };
    // right <- C bar H, rows by sweeps.
    for (int64_t c = 0; c < ld; c += w) {
      Pack<T> norton{};
      for (int64_t j = n - 1; j >= 0; --j) {
        pack(solved + j * ld + c) = norton;  // of position j + 1
        norton = g[j] * pack(bar_y + j * ld + c) + (j + 1 < n ? t(j) * norton : Pack<T>{});
      }
      Pack<T> drop = line.z[l] * norton;
      for (int64_t j = 0; j < n; ++j) {
        const Pack<T> next = pack(solved + j * ld + c);
        pack(right + j * ld + c) = pack(bar_y + j * ld + c) - drop;
        if (j + 1 < n) drop = t(j) * drop + s(j) * next;
      }
    }
    // A^-1, rows and columns, times g.
    T diagonal = line.z[l];
    for (int64_t j = 0; j < ld; ++j) v[j] = 0;
    for (int64_t j = 0; j < n; ++j) {
      if (j > 0) {
        for (int64_t c = 0; c < j; c += w) pack(v + c) *= t(j - 1);
        diagonal = t(j - 1) * (t(j - 1) * diagonal + line.r[(j - 1) * line.r_stride + l]);
      }
      v[j] = diagonal;
      for (int64_t q = 0; q <= j; ++q) solved[q * ld + j] = solved[j * ld + q] = v[q];
    }
    // bar h through C.
    T norton = 0;
    for (int64_t j = n - 1; j >= 0; --j) {
      one[j] = norton;
      norton = g[j] * bar_n[j * lm + k] + (j + 1 < n ? t(j) * norton : T(0));
    }
    T drop = line.z[l] * norton;
    for (int64_t j = n; j < ld; ++j) g[j] = 0;
    for (int64_t j = 0; j < n; ++j) {
      Pack<T> sum{};
      for (int64_t c = 0; c < ld; c += w)
        sum += c + w <= n ? pack(right + j * ld + c) * pack(solved + j * ld + c) * pack(g + c) : Pack<T>{};
      T value = static_cast<T>(sum_lanes<T>(sum));
      for (int64_t c = n / w * w; c < n; ++c) value += right[j * ld + c] * solved[j * ld + c] * g[c];
      const T from_h = (bar_n[j * lm + k] - drop) * open[j];
      a.out[(a.down.flip ? m - 1 - k : k) * n + (a.across.flip ? n - 1 - j : j)] = right[j * ld + j] - value + from_h;
      if (j + 1 < n) drop = t(j) * drop + s(j) * one[j];
    }
  }
};

template <class T>
inline int64_t effective_scratch(const Effective<T>& a, const Parallel& parallel) {
  EffectiveWork<T> work(a, parallel);
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

template <class T>
inline int64_t effective_transpose_scratch(const Effective<T>& a, const Parallel& parallel) {
  EffectiveTranspose<T> work(a, nullptr, parallel);
  Arena arena;
  work.plan(arena);
  return arena.used;
}

template <class T>
inline void effective_transpose(const Effective<T>& a, const T* gain, char* scratch, const Parallel& parallel) {
  EffectiveTranspose<T> work(a, gain, parallel);
  Arena arena{scratch, 0};
  work.plan(arena);
  work.solve();
}

}  // namespace XBAR_ISA
}  // namespace xbar
