// JART VCM v1b. The state is ln N; hopping of vacancies in the field and at the temperature that the current makes.
#pragma once

#include "xbar/flow.h"
#include "xbar/jart_current.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct jart : Smooth {
  enum { kLaw, kCodes };
  // clang-format off
  enum {
    kNMin = kCodes, kNMax, kNLow, kNHigh, kNPlug, kR, kRDet, kLCell, kLD, kZ, kMu, kAStar, kEpsS, kEpsPhi, kPhi0, kPhiN,
    kT0, kRTh0, kRThReset, kRTiox, kR0, kRThLine, kAlphaLine, kA, kNu0, kDW, kP, kFitN0, kFitA0, kFitA2, kFitA3, kFitB0,
    kFitB1, kFitC0, kFitC1, kFitC2, kFitC3, kFitD0, kFitD1, kFitD2, kFitD3, kFitF0, kFitF1, kFitF2, kFitF3, kFitG0,
    kFitG1, kFitH0, kFitH1, kFitH2, kFitH3, kFitJ, kFitK, kParameters
  };
  // clang-format on

  JartCircuit<F> c;
  F least, most, n_plug, d_w, field_disc, field_cell, per, p, edge;
  F fit[5];  // |I| = |fit0 + fit1 exp(-fit2 ln(1 + exp(fit3 - fit4 x)))|

  jart() = default;
  template <class P>
  XBAR_FN jart(F v, const P& q, const Codes& codes) {
    constexpr float kKelvin = 8.617333262e-5f;  // k/e, V/K
    constexpr float kCharge = 1.602176634e7f;   // e 1e26, C/m^3
    const auto negative = v < 0.0f;
    const F n_min = q(kNMin), n_max = q(kNMax), r = q(kR), l_d = q(kLD), l_cell = q(kLCell), z = q(kZ), phi0 = q(kPhi0);
    least = log(maximum(n_min, q(kNLow)));
    most = log(minimum(n_max, q(kNHigh)));
    n_plug = q(kNPlug);
    d_w = q(kDW);
    p = select(negative, q(kP), -q(kP));
    edge = select(negative, log(n_max), log(n_min));

    const F area = 3.14159265f * r * r, across = kCharge * z * q(kMu) * area, wide = q(kRDet) / r;
    c.side = select(negative, F{} - 1.0f, F{} + 1.0f);
    c.u = absolute(v);
    c.kt0 = kKelvin * q(kT0);
    c.heat = kKelvin * q(kRTh0) * wide * wide * select(negative, F{} + 1.0f, q(kRThReset));
    c.phi0 = phi0;
    c.psi0 = phi0 - q(kPhiN);
    c.amp = area * q(kAStar) * (1.0f / (kKelvin * kKelvin));
    const F r_0 = q(kR0), eps_phi = q(kEpsPhi);
    c.r3 = q(kAlphaLine) * q(kRThLine) * r_0 * r_0;
    c.plug = (l_cell - l_d) / (across * n_plug);
    c.leads = q(kRTiox) + r_0;
    c.disc = l_d / across;
    c.lift = 7.504042037f / (eps_phi * eps_phi * eps_phi) * z;
    c.w00 = 0.1856638288f * square_root(z / q(kEpsS));

    const F per_field = z * q(kA) / (3.14159265f * d_w);
    field_disc = select(negative, per_field / l_d, F{});
    field_cell = select(negative, F{}, per_field / l_cell);
    per = c.side * (0.5f * (q(kA) / l_d) * q(kNu0));
    if (codes[kLaw] != 0) fit_of(v, q);
  }

  template <class P>
  XBAR_FN void fit_of(F v, const P& q) {
    const auto negative = v < 0.0f;
    const F m = minimum(v, F{}), a3 = q(kFitA3), small = exp_or_zero(-q(kFitA2) / a3);
    const F al = -q(kFitA0) * small * expm1(-m / a3) / (1.0f + small * exp_or_zero(-m / a3));
    const F be = -q(kFitB1) * expm1(-m) - q(kFitB0) * m;
    const F c0 = q(kFitC2) * exp_or_zero(-m / q(kFitC3)) + q(kFitC1) * m - q(kFitC0);
    const F d0 = q(kFitD2) * exp_or_zero(-m / q(kFitD3)) + q(kFitD1) * m - q(kFitD0);
    const F power = pow_from_zero(-m / q(kFitF2), q(kFitF3));
    const F f = q(kFitF0) + (q(kFitF1) - q(kFitF0)) / (1.0f + power);
    const F t = maximum(v, F{});
    const F h = q(kFitH0) + q(kFitH1) * t + q(kFitH2) * exp_or_zero(-q(kFitH3) * t);
    fit[0] = select(negative, -al, F{});
    fit[1] = select(negative, -be, -q(kFitG0) * expm1(-q(kFitG1) * t));
    fit[2] = select(negative, f, 1.0f / q(kFitK));
    fit[3] = select(negative, d0 * log(maximum(c0, F{} + 1e-6f)), log(h) + q(kFitJ) * log(q(kFitN0)));
    fit[4] = select(negative, d0, q(kFitJ));
  }

  XBAR_FN F low() const { return least; }
  XBAR_FN F high() const { return most; }

  template <int N>
  XBAR_FN void rates(const Codes& codes, const F* x, F* f) const {
    F n[N], i[N];
    for (int k = 0; k < N; ++k) n[k] = exp_or_zero(x[k]);
    const JartNodes<N, F> nodes(c, n);
    if (codes[kLaw] == 0) {
      jart_current<N>(c, nodes, i);
    } else {
      for (int k = 0; k < N; ++k) {
        const F y = fit[3] - fit[4] * x[k];
        const F share = maximum(y, F{}) + log1p(exp_or_zero(-absolute(y)));
        i[k] = absolute(fit[0] + fit[1] * exp_or_zero(-fit[2] * share));
      }
    }
    for (int k = 0; k < N; ++k) {
      const F over = maximum(c.u - i[k] * (c.leads + c.r3 * i[k] * i[k]), F{});
      const F inverse = reciprocal(c.kt0 + c.heat * i[k] * over);
      const F y = field_disc * i[k] * nodes.r_disc[k] + field_cell * over;
      // sqrt(1 - y^2) - y acos y, acos by Abramowitz and Stegun 4.4.46; a field of y >= 1 leaves no barrier.
      const F z = minimum(y, F{} + 1.0f);
      F acos = F{} - 0.0012624911f;
      acos = 0.0308918810f + z * (-0.0170881256f + z * (0.0066700901f + z * acos));
      acos = 1.5707963050f + z * (-0.2145988016f + z * (0.0889789874f + z * (-0.0501743046f + z * acos)));
      const F lowered = square_root(1.0f - z) * (square_root(1.0f + z) - z * acos);
      const F hops = exp_or_zero(-d_w * lowered * inverse) * expm1(-3.14159265f * d_w * y * inverse);
      const F window = -expm1(p * (x[k] - edge));
      f[k] = per * (n_plug * reciprocal(n[k]) + 1.0f) * hops * window;
    }
  }
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
