// dx/dt = mu r_on/d^2 i(x, v) window(x), beyond either threshold.
#pragma once

#include "xbar/flow.h"
#include "xbar/windows.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct linear_ion_drift : Smooth {
  enum { kWindow, kCodes };
  enum { kROn = kCodes, kROff, kMu, kD, kVOn, kVOff, kXInit, kP, kJ, kParameters };

  F k, r_on, r_off, down, p, j;

  linear_ion_drift() = default;
  template <class P>
  XBAR_FN linear_ion_drift(F v, const P& q, const Codes&) : r_on(q(kROn)), r_off(q(kROff)), p(q(kP)), j(q(kJ)) {
    const auto moves = (v >= q(kVOn)) | (v <= q(kVOff));
    const F d = q(kD);
    k = select(moves, q(kMu) / d * r_on / d * v, F{});
    down = select(k < 0.0f, F{} + 1.0f, F{});
  }

  XBAR_FN F low() const { return F{}; }
  XBAR_FN F high() const { return F{} + 1.0f; }

  template <int N>
  XBAR_FN void rates(const Codes& codes, const F* x, F* f) const {
    window<N>(codes[kWindow], x, down, p, j, f);
    for (int i = 0; i < N; ++i) f[i] = k * f[i] * reciprocal(r_on * x[i] + r_off * (1.0f - x[i]));
  }
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
