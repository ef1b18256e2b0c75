// Cell currents by a team of threads: conjugate gradients on the bit-line drops with all lines solved exactly, as
// LineSolver of xbar_jax/circuits/network.py does with method line_cg.
//
// There is no coarse correction here: the methods auto and two_level run the lines alone. That changes the number of
// iterations (it grows with the square root of N^2 r g), not the result. Each right-hand side factors its lines anew,
// also where arrays share one network: two sweeps, beside two in every iteration.
//
// Everything in the vectors below is counted from the near terminals; the arrays of the call are turned round where
// they are read and written. Lines lie side by side in memory, position after position, so that the threads of
// neighbouring lines meet neighbouring addresses: bit lines in [rows, ld], word lines in a transposed copy, [cols,
// ldt]. Both leading dimensions are odd, for a transposition without bank conflicts.
#pragma once

#include "xbar/circuits.h"
#include "xbar/team.h"

namespace xbar {

#if defined(__CUDA_ARCH__)
#define XBAR_UNROLL _Pragma("unroll")
#else
#define XBAR_UNROLL
#endif

// The vectors of a solve, those of the sweeps first: what does not fit into the fast memory of a team is left to the
// slow.
template <class T>
struct LineVectors {
  int ld, ldt;
  T *z_word, *z_bit, *off_word, *off_bit;  // [rows], [cols]: near impedance; what a floating line misses
  T *x, *z;                                // word lines [cols, ldt]; bit lines [rows, ld]
  T *t_word, *s_word, *t_bit, *s_bit;      // factors, as x and z, less one position
  T *res, *p, *dp, *g, *b, *miss;          // [rows, ld]

  XBAR_FN LineVectors(int rows, int cols, Places& places) : ld(cols | 1), ldt(rows | 1) {
    const int64_t word = static_cast<int64_t>(cols) * ldt, bit = static_cast<int64_t>(rows) * ld;
    z_word = places.take<T>(rows);
    z_bit = places.take<T>(cols);
    off_word = places.take<T>(rows);
    off_bit = places.take<T>(cols);
    x = places.take<T>(word);
    z = places.take<T>(bit);
    t_word = places.take<T>(word - ldt);
    t_bit = places.take<T>(bit - ld);
    s_word = places.take<T>(word - ldt);
    s_bit = places.take<T>(bit - ld);
    res = places.take<T>(bit);
    p = places.take<T>(bit);
    dp = places.take<T>(bit);
    g = places.take<T>(bit);
    b = places.take<T>(bit);
    miss = places.take<T>(bit);
  }
};

// Line l of a bundle of n nodes, counted from the near terminals; `turned`: lines are counted from the last.
template <class T>
struct Line {
  const T* r;
  int64_t along;
  T near, far;
  int32_t ends;
  int n;

  XBAR_FN Line(const Bundle<T>& b, int nodes, int lines, bool turned, int l) : n(nodes) {
    const int line = turned ? lines - 1 - l : l;
    r = b.r + line * b.across + (b.flip && n > 1 ? (n - 2) * b.along : 0);
    along = b.flip ? -b.along : b.along;
    near = b.near[line];
    far = b.far[line];
    ends = b.ends[line];
  }

  XBAR_FN T segment(int k) const { return r[k * along]; }
  XBAR_FN bool near_on() const { return ends & Bundle<T>::kNear; }
  XBAR_FN bool far_on() const { return ends & Bundle<T>::kFar; }
  XBAR_FN bool cut() const { return ends & Bundle<T>::kCut; }
  XBAR_FN bool loose() const { return ends == 0; }

  // Factors of W^-1 + g; g, t and s are `stride` apart from node to node. Returns z.
  XBAR_FN T factor(const T* g, T* t, T* s, int stride) const {
    const bool open = cut() && near_on() && far_on();
    const T tiny = static_cast<T>(1e-20);
    T y = g[(n - 1) * stride];
    if (far_on()) y += T(1) / (far > tiny ? far : tiny);
    for (int k = n - 2; k >= 0; --k) {
      const T ohm = segment(k), tk = T(1) / (T(1) + ohm * y);
      t[k * stride] = open ? T(0) : tk;
      s[k * stride] = open ? (y > 0 ? T(1) / y : T(0)) : ohm * tk;
      y = open ? g[k * stride] : g[k * stride] + tk * y;
    }
    return near_on() ? near / (T(1) + near * y) : (y > 0 ? T(1) / y : T(0));
  }

  // v <- W v: drops of drawn currents. Returns the sum of the currents.
  XBAR_FN T drops(T* v, int stride) const {
    T suffix = 0, weighted = 0;
    for (int k = n - 1; k >= 0; --k) {
      suffix += v[k * stride];
      v[k * stride] = suffix;
      if (far_on() && k > 0) weighted += segment(k - 1) * suffix;
    }
    const T last = v[(n - 1) * stride];
    T drop = near * suffix, back = 0;  // back: current out of the far terminal
    if (far_on()) {
      T whole = near + far;
      for (int k = 0; k + 1 < n; ++k) whole += segment(k);
      back = !near_on() ? suffix : cut() ? last : (near * suffix + weighted) / (whole > 0 ? whole : T(1));
      T segments = 0;
      if (!near_on())
        for (int k = 0; k + 1 < n; ++k) segments += segment(k) * (v[(k + 1) * stride] - back);
      drop = near_on() ? near * (suffix - back) : far * suffix - segments;
    }
    T through = 0;
    for (int k = 0; k < n; ++k) {
      if (k > 0) drop += segment(k - 1) * through;
      // The next node is read before it is written in the next turn.
      through = (k + 1 < n ? v[(k + 1) * stride] : T(0)) - back;
      v[k * stride] = drop;
    }
    if (far_on() && cut()) v[(n - 1) * stride] = far * back;
    return suffix;
  }
};

// v <- (W^-1 + g)^-1 v along a line. What a stretch of the sweep needs is loaded ahead of its chain of operations.
template <class T>
XBAR_FN void ladder_solve(const T* t, const T* s, T z, T* v, int n, int stride) {
  constexpr int kAhead = 8;
  T tk[kAhead], sk[kAhead], vk[kAhead];
  T norton = v[(n - 1) * stride];
  int k = n - 2;
  for (; k >= kAhead - 1; k -= kAhead) {
    XBAR_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      tk[u] = t[(k - u) * stride];
      vk[u] = v[(k - u) * stride];
    }
    XBAR_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      norton = vk[u] + tk[u] * norton;
      v[(k - u) * stride] = norton;
    }
  }
  for (; k >= 0; --k) {
    norton = v[k * stride] + t[k * stride] * norton;
    v[k * stride] = norton;
  }
  T a = z * norton;
  v[0] = a;
  k = 0;
  for (; k + kAhead < n; k += kAhead) {
    XBAR_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      tk[u] = t[(k + u) * stride];
      sk[u] = s[(k + u) * stride];
      vk[u] = v[(k + u + 1) * stride];
    }
    XBAR_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      a = tk[u] * a + sk[u] * vk[u];
      v[(k + u + 1) * stride] = a;
    }
  }
  for (; k + 1 < n; ++k) {
    a = t[k * stride] * a + s[k * stride] * v[(k + 1) * stride];
    v[(k + 1) * stride] = a;
  }
}

template <class T, class Crew>
struct TeamSolve {
  const Team<Crew>& team;
  const CellCurrents<T>& a;
  const LineVectors<T>& v;
  const int rows, cols;

  XBAR_FN TeamSolve(const Team<Crew>& on, const CellCurrents<T>& of, const LineVectors<T>& in)
      : team(on), a(of), v(in), rows(static_cast<int>(of.rows)), cols(static_cast<int>(of.cols)) {}

  // Where things are in the arrays of the call.
  XBAR_FN int row(int i) const { return a.bit.flip ? rows - 1 - i : i; }
  XBAR_FN int col(int j) const { return a.word.flip ? cols - 1 - j : j; }
  XBAR_FN int cell(int i, int j) const { return row(i) * cols + col(j); }
  // And in the vectors.
  XBAR_FN int at(int i, int j) const { return i * v.ld + j; }
  XBAR_FN int at_word(int i, int j) const { return j * v.ldt + i; }

  XBAR_FN Line<T> word(int i) const { return {a.word, cols, rows, a.bit.flip, i}; }
  XBAR_FN Line<T> bit(int j) const { return {a.bit, rows, cols, a.word.flip, j}; }

  // x <- A^-1 x, word lines.
  XBAR_FN void solve_words() const {
    team.each(rows, [&](int i) { ladder_solve(v.t_word + i, v.s_word + i, v.z_word[i], v.x + i, cols, v.ldt); });
  }

  // z <- D^-1 res, bit lines, after b += alpha p and res -= alpha z; returns res . z.
  XBAR_FN double precondition(T alpha) const {
    team.each(rows, cols, [&](int i, int j) {
      const int e = at(i, j);
      v.b[e] += alpha * v.p[e];
      v.z[e] = v.res[e] -= alpha * v.z[e];
    });
    team.each(cols, [&](int j) { ladder_solve(v.t_bit + j, v.s_bit + j, v.z_bit[j], v.z + j, rows, v.ld); });
    return team.sum(rows, cols, [&](int i, int j) { return v.res[at(i, j)] * v.z[at(i, j)]; });
  }

  // p <- z + beta p, dp <- D z + beta dp, z <- S p = dp - g A^-1 g p; returns p . z.
  XBAR_FN double direction(T beta) const {
    team.each(rows, cols, [&](int i, int j) {
      const int e = at(i, j);
      const T p = v.z[e] + beta * v.p[e];
      v.p[e] = p;
      v.dp[e] = v.res[e] + beta * v.dp[e];
      v.x[at_word(i, j)] = v.g[e] * p;
    });
    solve_words();
    return team.sum(rows, cols, [&](int i, int j) {
      const int e = at(i, j);
      const T q = v.dp[e] - v.g[e] * v.x[at_word(i, j)];
      v.z[e] = q;
      return v.p[e] * q;
    });
  }

  // i += di with (I + g W) di = miss to a relative `reduction`; returns the iterations.
  XBAR_FN int32_t correct(double reduction, int32_t most) const {
    // The total of a floating line returns at its near node.
    team.each(rows, cols,
              [&](int i, int j) { v.x[at_word(i, j)] = v.miss[at(i, j)] - (j == 0 ? v.off_word[i] : T(0)); });
    solve_words();
    team.each(rows, cols, [&](int i, int j) {
      const int e = at(i, j);
      v.res[e] = v.miss[e] - v.g[e] * v.x[at_word(i, j)] - (i == 0 ? v.off_bit[j] : T(0));
      v.b[e] = v.p[e] = v.dp[e] = v.z[e] = 0;
    });
    double rz = 0, start = 0;
    T alpha = 0;
    int32_t k = 0;
    for (;; ++k) {
      const double next = precondition(alpha);
      if (k == 0) start = next;
      const T beta = k == 0 ? T(0) : static_cast<T>(next / rz);
      rz = next;
      if (!(rz > reduction * reduction * start) || k >= most) break;
      const double pq = direction(beta);
      if (!(pq > 0)) {
        ++k;
        break;
      }
      alpha = static_cast<T>(rz / pq);
    }
    team.each(rows, cols, [&](int i, int j) {
      const int e = at(i, j);
      v.z[e] = v.miss[e] - v.g[e] * v.b[e];
      v.x[at_word(i, j)] = v.z[e] - (j == 0 ? v.off_word[i] : T(0));
    });
    solve_words();
    team.each(rows, cols, [&](int i, int j) {
      const int e = at(i, j);
      a.i[cell(i, j)] += v.z[e] - v.g[e] * v.x[at_word(i, j)];
    });
    team.each(rows, [&](int i) {
      if (word(i).loose()) a.phi_word[row(i)] += v.x[at_word(i, 0)];
    });
    team.each(cols, [&](int j) {
      if (bit(j).loose()) a.phi_bit[col(j)] += v.b[at(0, j)];
    });
    return k;
  }

  // miss <- c - (I + g W) i, and what floating lines miss; returns the largest magnitude of them.
  XBAR_FN double violation() const {
    team.each(rows, cols, [&](int i, int j) { v.x[at_word(i, j)] = v.z[at(i, j)] = a.i[cell(i, j)]; });
    team.each(rows, [&](int i) {
      const Line<T> line = word(i);
      const T sum = line.drops(v.x + i, v.ldt);
      v.off_word[i] = line.loose() ? a.q_word[row(i)] - sum : T(0);
    });
    team.each(cols, [&](int j) {
      const Line<T> line = bit(j);
      const T sum = line.drops(v.z + j, v.ld);
      v.off_bit[j] = line.loose() ? a.q_bit[col(j)] - sum : T(0);
    });
    const double cells = team.largest(rows, cols, [&](int i, int j) {
      const int e = at(i, j), from = cell(i, j);
      const T drop = v.x[at_word(i, j)] + a.phi_word[row(i)] + (v.z[e] + a.phi_bit[col(j)]);
      return v.miss[e] = a.c[from] - a.i[from] - v.g[e] * drop;
    });
    const double words = team.largest(rows, [&](int i) { return v.off_word[i]; });
    const double bits = team.largest(cols, [&](int j) { return v.off_bit[j]; });
    return team.larger(team.larger(cells, words), bits);
  }

  // Factors all lines.
  XBAR_FN void factor() const {
    team.each(rows, cols, [&](int i, int j) { v.x[at_word(i, j)] = v.g[at(i, j)] = a.g[cell(i, j)]; });
    team.each(rows, [&](int i) { v.z_word[i] = word(i).factor(v.x + i, v.t_word + i, v.s_word + i, v.ldt); });
    team.each(cols, [&](int j) { v.z_bit[j] = bit(j).factor(v.g + j, v.t_bit + j, v.s_bit + j, v.ld); });
  }

  // Ohm's law is violated by g W_b times what Kirchhoff's law is: this much more, about, than the energy norm says.
  XBAR_FN double amplification() const {
    const int64_t across = a.bit.across ? cols : 1, segments = (a.bit.along ? rows - 1 : 1) * across;
    const double g = team.sum(rows, cols, [&](int i, int j) { return v.g[at(i, j)]; });
    // The operand r may hold no segment where there is one row.
    const double r =
        rows < 2
            ? 0.0
            : team.sum(
                  segments, [&](int64_t k) { return a.bit.r[k / across * a.bit.along + k % across * a.bit.across]; });
    const double mean =
        g / (static_cast<double>(rows) * cols) * (segments > 0 ? r / static_cast<double>(segments) : 0.0);
    const double out = mean > 0 ? 0.5 * sqrt(mean) * rows : 1.0;
    return out > 1.0 && out < 1e300 ? out : 1.0;
  }

  XBAR_FN void operator()() const {
    constexpr double kProgress = 0.9;   // a refinement that gains less has stalled
    constexpr int kStalls = 2;          // so many in a row: rounding is reached
    constexpr double kRounding = 16.0;  // eps of the largest source current: what rounding allows
    constexpr double kEpsilon = sizeof(T) == 4 ? 1.1920928955078125e-07 : 2.220446049250313e-16;
    factor();
    team.each(rows, cols, [&](int i, int j) {
      const int e = cell(i, j);
      a.i[e] = a.start ? a.start[e] : T(0);
    });
    team.each(rows, [&](int i) { a.phi_word[i] = 0; });
    team.each(cols, [&](int j) { a.phi_bit[j] = 0; });
    const double cells = team.largest(rows, cols, [&](int i, int j) { return a.c[cell(i, j)]; });
    const double words = team.largest(rows, [&](int i) { return a.q_word[i]; });
    const double bits = team.largest(cols, [&](int j) { return a.q_bit[j]; });
    const double rounding = kRounding * kEpsilon * team.larger(team.larger(cells, words), bits);
    // What a first pass leaves is smooth, and amplified by the square of that.
    double amplified = amplification(), before = 0, reduction = 0;
    const double smooth = 4.0 * amplified * amplified;
    int stalled = 0;
    int32_t steps = 0;
    for (bool first = true;; first = false) {
      const double worst = violation();
      const double size = team.largest(rows, cols, [&](int i, int j) { return a.i[cell(i, j)]; });
      const double tol = static_cast<double>(a.tol), goal = tol * size + rounding;
      if (!first) {
        const double seen = worst / before / reduction;
        amplified = seen > amplified ? seen : amplified;
        amplified = smooth > amplified ? smooth : amplified;
        stalled = worst <= kProgress * before ? 0 : stalled + 1;
      }
      if (!(worst > goal) || stalled >= kStalls || steps >= a.max_steps) {
        if (team.rank == 0) {
          *a.steps = steps;
          *a.residual = static_cast<T>(worst > 0 ? worst / (size > 0 ? size : 1.0) : worst);
          *a.reached = worst <= goal;
        }
        return;
      }
      // The size of i is not known before the first pass; the tolerance then stands for it.
      reduction = 0.3 * (size > 0 ? goal / worst : tol) / amplified;
      reduction = reduction < 4.0 * kEpsilon ? 4.0 * kEpsilon : reduction > 1e-2 ? 1e-2 : reduction;
      before = worst;
      steps += correct(reduction, a.max_steps - steps);
    }
  }
};

}  // namespace xbar
