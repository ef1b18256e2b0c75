// d gap/dt = -nu0 exp(-ea e/(k T)) sinh(gamma a0 e v/(t_ox k T)), up to the gap where the field is too weak.
#pragma once

#include "xbar/flow.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct stanford_pku : Smooth {
  enum { kCodes };
  enum {
    kI0 = kCodes,
    kG0,
    kV0,
    kT0,
    kRth,
    kGamma0,
    kBeta,
    kTOx,
    kFMin,
    kNu0,
    kEa,
    kA0,
    kDelta,
    kTCrit,
    kTSmth,
    kTRef,
    kGapInit,
    kROn,
    kROff,
    kParameters
  };

  F heat, per_gap, kt0, gamma0, beta, force, ea, speed, edge, least, most;

  stanford_pku() = default;
  template <class P>
  XBAR_FN stanford_pku(F v, const P& q, const Codes&) : gamma0(q(kGamma0)), beta(q(kBeta)), ea(q(kEa)) {
    constexpr float kKelvin = 8.617333262e-5f, kVRange = 0.1f;
    const F i0 = q(kI0), g0 = q(kG0), v0 = q(kV0), t_ox = q(kTOx);
    per_gap = -1.0f / g0;
    kt0 = kKelvin * q(kT0);
    heat = kKelvin * q(kRth) * i0 * (v * sinh(v / v0));
    force = q(kA0) / t_ox * v;
    speed = select(v > 0.0f, -0.5f * q(kNu0), 0.5f * q(kNu0));
    const F unit = log(i0 * sinh(kVRange / v0) * (1.0f / kVRange));
    least = g0 * (unit + log(q(kROn)));
    most = g0 * (unit + log(q(kROff)));

    const F size = absolute(v), room = gamma0 - q(kFMin) * t_ox / select(size > 0.0f, size, F{} + 1.0f);
    const auto some = (size > 0.0f) & (room > 0.0f) & (beta > 0.0f);
    const auto always = (size > 0.0f) & (room >= 0.0f) & (beta <= 0.0f);
    edge = 1e-9f * pow(select(some, room / beta, F{} + 1.0f), F{} + 1.0f / 3);
    edge = select(some, edge, select(always, F{} + 1.0f, F{} - 1.0f));
    most = select((v < 0.0f) & (edge > least), minimum(edge, most), most);
  }

  XBAR_FN F low() const { return least; }
  XBAR_FN F high() const { return most; }

  template <int N>
  XBAR_FN void rates(const Codes&, const F* x, F* f) const {
    constexpr float kHottest = 8.617333262e7f;  // k T/e, V
    for (int i = 0; i < N; ++i) {
      const F inverse = reciprocal(kt0 + minimum(heat * exp_or_zero(x[i] * per_gap), F{} + kHottest));
      const F scaled = x[i] * 1e9f;
      const F y = absolute((gamma0 - beta * (scaled * scaled * scaled)) * force) * inverse;
      // exp(-ea/kT) sinh(y) by one exponential, so that none of them overflows.
      const F rate = speed * (exp_or_zero(y - ea * inverse) * -expm1(-2.0f * y));
      f[i] = select(x[i] <= edge, rate, F{});
    }
  }
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
