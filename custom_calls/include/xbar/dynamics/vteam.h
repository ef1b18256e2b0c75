// dw/dt = k (v/v_threshold - 1)^a window(w), beyond either threshold.
#pragma once

#include "xbar/flow.h"
#include "xbar/windows.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct vteam : Smooth {
  enum { kWindow, kLaw, kCodes };
  enum {
    kROn = kCodes,
    kROff,
    kWOn,
    kWOff,
    kKOn,
    kKOff,
    kAOn,
    kAOff,
    kVOn,
    kVOff,
    kP,
    kJ,
    kTeamOn,
    kTeamOff,
    kWC,
    kParameters
  };

  F k, on, off, range, down, p, j;

  vteam() = default;
  template <class P>
  XBAR_FN vteam(F v, const P& q, const Codes& codes) : on(q(kWOn)), off(q(kWOff)), range{}, down{}, p{}, j{} {
    const F over_off = (v - q(kVOff)) / q(kVOff), over_on = (v - q(kVOn)) / q(kVOn);
    const auto beyond_off = over_off > 0.0f, beyond_on = over_on > 0.0f;
    k = F{};
    if (any(beyond_off & beyond_on)) {
      k = select(beyond_off, q(kKOff) * pow_from_zero(over_off, q(kAOff)), F{}) +
          select(beyond_on, q(kKOn) * pow_from_zero(over_on, q(kAOn)), F{});
    } else if (any(beyond_off | beyond_on)) {
      const F power = pow_from_zero(maximum(over_off, over_on), select(beyond_off, q(kAOff), q(kAOn)));
      k = select(beyond_off | beyond_on, select(beyond_off, q(kKOff), q(kKOn)) * power, F{});
    }
    if (codes[kWindow] == kWindows) {  // that of TEAM: p and j are its edge and slope
      p = select(k < 0.0f, q(kTeamOn), q(kTeamOff));
      j = select(k < 0.0f, F{} - 1.0f, F{} + 1.0f) / q(kWC);
    } else if (codes[kWindow] != kNone) {
      p = q(kP);
      j = q(kJ);
      range = 1.0f / (off - on);
      down = select(k < 0.0f, F{} + 1.0f, F{});
    }
  }

  XBAR_FN F low() const { return on; }
  XBAR_FN F high() const { return off; }

  template <int N>
  XBAR_FN void rates(const Codes& codes, const F* x, F* f) const {
    if (codes[kWindow] == kWindows) {
      for (int i = 0; i < N; ++i) f[i] = k * exp_or_zero(-exp_or_zero(minimum((x[i] - p) * j, F{} + 80.0f)));
      return;
    }
    F s[N];
    for (int i = 0; i < N; ++i) s[i] = (x[i] - on) * range;
    window<N>(codes[kWindow], s, down, p, j, f);
    for (int i = 0; i < N; ++i) f[i] = k * f[i];
  }
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
