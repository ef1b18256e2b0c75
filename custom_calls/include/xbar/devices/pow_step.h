// The step is a power of the distance from the bound: om = (b+ - w)/(b+ - b-), up om^gamma, down (1 - om)^gamma.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct pow_step {
  // The exponent of each direction, and 1 / (b+ - b-).
  enum { kGammaUp = kShape, kGammaDown, kInverseRange, kParameters };

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    F x = select(up, p(kUpper) - w, w - p(kLower)) * p(kInverseRange);
    x = maximum(x, F{} + 1e-30f);  // 0^gamma through the logarithm
    F y = exp(log(x) * select(up, p(kGammaUp), p(kGammaDown)));
    return bounded_step(w, up, noise, y, y, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
