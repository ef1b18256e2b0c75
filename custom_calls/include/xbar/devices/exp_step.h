// The step shrinks exponentially towards the bound: y = max(0, 1 - A e^(+-gamma z)), z = 2 a w / (b+ - b-) + b,
// which is max(0, 1 - c e^(k w)) with c = A e^(+-gamma b) and k = +-2 gamma a / (b+ - b-).
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct exp_step {
  // c and k of each direction.
  enum { kScaleUp = kShape, kScaleDown, kRateUp, kRateDown, kParameters };

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    F y = 1.0f - select(up, p(kScaleUp), p(kScaleDown)) * exp(select(up, p(kRateUp), p(kRateDown)) * w);
    y = maximum(y, F{});
    return bounded_step(w, up, noise, y, y, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
