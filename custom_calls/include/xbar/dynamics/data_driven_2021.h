// dR/dt = s (r - R)^2 towards r, both s and r given by the voltage.
#pragma once

#include "xbar/flow.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct data_driven_2021 : Smooth {
  enum { kCodes };
  enum { kA = kCodes, kB, kAP, kAN, kTP, kTN, kRP0, kRP1, kRN0, kRN1, kROn, kROff, kParameters };

  F s, r, least, most;

  data_driven_2021() = default;
  template <class P>
  XBAR_FN data_driven_2021(F v, const P& q, const Codes&) {
    const auto up = v > 0.0f;
    s = select(up, q(kAP), q(kAN)) * expm1(minimum(absolute(v) / select(up, q(kTP), q(kTN)), F{} + 80.0f));
    r = select(up, q(kRP0) + q(kRP1) * v, q(kRN0) + q(kRN1) * v);
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
    for (int i = 0; i < N; ++i) {
      const F left = r - x[i];
      f[i] = select(s * left > 0.0f, s * (left * left), F{});
    }
  }
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
