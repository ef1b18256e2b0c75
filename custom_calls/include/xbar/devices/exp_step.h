// The step shrinks exponentially towards the bound: y = max(0, 1 - A e^(+-gamma z)), z = 2 a w / (b+ - b-) + b.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct exp_step {
  enum { kAUp = kShape, kADown, kGammaUp, kGammaDown, kA, kB };

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    F z = p(kA) * 2.0f * w / (p(kUpper) - p(kLower)) + p(kB);
    F slope = select(up, p(kGammaUp), -p(kGammaDown));
    F y = maximum(1.0f - select(up, p(kAUp), p(kADown)) * exp(slope * z), F{});
    return bounded_step(w, up, noise, y, y, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
