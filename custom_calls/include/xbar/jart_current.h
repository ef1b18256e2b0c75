// The series circuit of a JART cell, solved for its current: xbar_jax/devices/jart_current.py, in the same steps.
#pragma once

#include "xbar/math.h"

namespace xbar {
inline namespace XBAR_ISA {

// What does not depend on the state; the names are those of Circuit in Python. Lengths are in V where energies are in
// eV.
template <class F>
struct JartCircuit {
  F u, side, kt0, heat, phi0, psi0, amp, r3;
  F plug, leads;      // ohm
  F disc, lift, w00;  // of N = 1
};

// At N states.
template <int N, class F>
struct JartNodes {
  F r[N], r_disc[N], r_hot[N], lift[N], w00[N];

  XBAR_FN JartNodes(const JartCircuit<F>& c, const F* n) {
    for (int k = 0; k < N; ++k) {
      r_disc[k] = c.disc * reciprocal(n[k]);
      r_hot[k] = r_disc[k] + c.plug;
      r[k] = r_hot[k] + c.leads;
      lift[k] = c.lift * n[k];
      w00[k] = c.w00 * square_root(n[k]);
    }
  }

  // The i of i (r + r3 i^2) = d.
  XBAR_FN F ohmic(const JartCircuit<F>& c, int k, F d) const {
    const F inverse = reciprocal(r[k]), line = d * inverse;
    const F share = c.r3 * line * line * inverse;
    F y = 1.0f - share * reciprocal(1.0f + 3.0f * share);
    for (int i = 0; i < 4; ++i) {
      const F square = share * y * y;
      y = y - (y + square * y - 1.0f) * reciprocal(1.0f + 3.0f * square);
    }
    return line * y;
  }

  // The barrier voltage that carries i ampere, with barrier and temperature those of (vs, i).
  XBAR_FN F needed(const JartCircuit<F>& c, int k, F vs, F i) const {
    const F zero{};
    const auto negative = below(c.side, zero);
    const F kt = c.kt0 + c.heat * i * (vs + i * r_hot[k]);
    const F psi = maximum(c.psi0 - c.side * vs, zero);
    const F phi = maximum(c.phi0 - square_root(square_root(lift[k] * psi)), zero);
    const F inverse_kt = reciprocal(kt);
    const F y = w00[k] * inverse_kt, low = exp_or_zero(-2.0f * y), one = reciprocal(1.0f + low);
    // y - tanh y without a difference where y is small, from its continued fraction.
    const F q = minimum(y * y, F{} + 1.0f);
    const F small = y * q * (3465.0f + q * (189.0f + q)) * reciprocal(10395.0f + q * (4725.0f + q * (210.0f + q)));
    const auto few = below(y, F{} + 1.0f);
    const F tanh = select(few, y - small, (1.0f - low) * one);
    const F rest = select(few, small, y - tanh);
    const F sech2 = 4.0f * low * one * one;
    const F scale = select(negative, w00[k] * reciprocal(rest), kt);
    const F inverse = select(negative, tanh * reciprocal(w00[k]), inverse_kt);
    const F tunnel = square_root(3.14159265f * w00[k] * (maximum(vs, F{} + 1e-12f) + phi * sech2));
    const F j = c.amp * kt * select(negative, tunnel, kt);
    return scale * log1p(i * exp_or_zero(phi * inverse) * reciprocal(j));
  }
};

// |I|, A, at N states, from the root of x - W(x) with the lowest barrier voltage x: the secant from the left of it,
// halving where that leaves what is known to hold the root, above the cusp at psi0 where there is none below.
template <int N, class F>
XBAR_FN void jart_current(const JartCircuit<F>& cell, const JartNodes<N, F>& nodes, F* i) {
  using Condition = decltype(below(F{}, F{}));
  constexpr float kUlp = 1.1920929e-7f, kLeast = 1e-9f;
  constexpr int kMost = 64;
  const F zero{};
  JartCircuit<F> c = cell;
  c.u = maximum(cell.u, F{} + kLeast);
  const auto negative = below(c.side, zero);
  F x0[N], f0[N], x1[N], low[N], high[N], root[N];
  Condition upper[N], done[N];
  const auto barrier = [&](int k, F x, F* w) {
    *w = nodes.needed(c, k, x, nodes.ohmic(c, k, c.u - x));
    return (x - *w) * select(negative, square_root(maximum(x, zero)), F{} + 1.0f);
  };
  const F start = select(negative, 0.1f * c.u, zero);
  const F end = select(negative, c.u, minimum(c.psi0, c.u));
  const Condition none = below(zero, zero);
  for (int k = 0; k < N; ++k) {
    F w;
    f0[k] = barrier(k, start, &w);
    x0[k] = start;
    const F tunnelling = clip(start - (start - w) * (1.0f / 1.5f), 0.1f * start, 0.5f * (start + c.u));
    x1[k] = select(negative, tunnelling, minimum(w, 0.5f * end));
    low[k] = select(below(f0[k], zero), start, zero);
    high[k] = select(below(f0[k], zero), end, start);
    root[k] = x1[k];
    upper[k] = done[k] = none;
  }
  for (int count = 0; count < kMost; ++count) {
    Condition all = opposite(none);
    for (int k = 0; k < N; ++k) {
      F w;
      const F f1 = barrier(k, x1[k], &w);
      const auto left = below(f1, zero);
      low[k] = select(left, maximum(low[k], x1[k]), low[k]);
      high[k] = select(left, high[k], minimum(high[k], x1[k]));
      const auto exact = at_most(absolute(x1[k] - w), 2.0f * kUlp * c.u);
      const auto same = at_most(x1[k], x0[k]) & at_most(x0[k], x1[k]);
      const F slope = (f1 - f0[k]) / select(same, F{} + 1.0f, x1[k] - x0[k]);
      const auto rises = below(zero, slope);
      F x2 = x1[k] - f1 / select(rises, slope, F{} + 1.0f);
      auto ended = opposite(negative) & opposite(upper[k]) & below(c.psi0, c.u) & at_most(c.psi0, high[k]) &
                   at_most(high[k], c.psi0) & left & (opposite(rises) | at_most(c.psi0, x2)) & opposite(exact);
      const auto out = opposite(rises) | at_most(x2, low[k]) | at_most(high[k], x2);
      x2 = select(out, 0.5f * (low[k] + high[k]), x2);
      const auto number = at_most(f1, zero) | at_most(zero, f1);
      const auto found =
          exact | (at_most(absolute(x2 - x1[k]), 4.0f * kUlp * c.u) & opposite(ended)) | opposite(number);
      root[k] = select(done[k], root[k], select(found & (opposite(exact & out)), x2, x1[k]));
      done[k] = done[k] | found;
      ended = ended & opposite(done[k]);
      low[k] = select(ended, c.psi0, low[k]);
      high[k] = select(ended, c.u, high[k]);
      x0[k] = select(ended, c.psi0, x1[k]);
      f0[k] = select(ended, zero - 1.0f, f1);
      x1[k] = select(ended, c.psi0 + 0.02f * (c.u - c.psi0), x2);
      root[k] = select(done[k], root[k], x1[k]);
      upper[k] = upper[k] | ended;
      all = all & done[k];
    }
    if (!any(opposite(all))) break;
  }
  const F part = minimum(cell.u * (1.0f / kLeast), F{} + 1.0f);
  for (int k = 0; k < N; ++k) i[k] = nodes.ohmic(c, k, c.u - root[k]) * part;
}

}  // namespace XBAR_ISA
}  // namespace xbar
