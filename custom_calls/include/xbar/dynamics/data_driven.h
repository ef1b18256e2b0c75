// dR/dt = s (exp(k |r - R|) - 1) towards r, both s and r given by the voltage.
#pragma once

#include "xbar/flow.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct data_driven : Smooth {
  enum { kCodes };
  enum { kA = kCodes, kB, kAP, kAN, kTP, kTN, kKP, kKN, kRP0, kRP1, kRN0, kRN1, kROn, kROff, kParameters };

  F s, r, k, least, most;

  data_driven() = default;
  template <class P>
  XBAR_FN data_driven(F v, const P& q, const Codes&) {
    const auto up = v > 0.0f;
    s = select(up, q(kAP), q(kAN)) * expm1(minimum(select(up, q(kTP), q(kTN)) * absolute(v), F{} + 80.0f));
    r = select(up, q(kRP0) + q(kRP1) * v, q(kRN0) + q(kRN1) * v);
    k = select(up, q(kKP), q(kKN)) * select(s > 0.0f, F{} + 1.0f, F{} - 1.0f);
    least = q(kROn);
    most = q(kROff);
    const auto inside = (r > least) & (r < most);
    least = select(inside & (s < 0.0f), r, least);
    most = select(inside & (s > 0.0f), r, most);
  }

  XBAR_FN F low() const { return least; }
  XBAR_FN F high() const { return most; }

  template <int N>
  XBAR_FN void rates(const Codes&, const F* x, F* f) const {
    for (int i = 0; i < N; ++i) f[i] = s * expm1(maximum((r - x[i]) * k, F{}));
  }
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
