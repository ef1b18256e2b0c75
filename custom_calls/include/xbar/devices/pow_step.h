// The step is a power of the distance from the bound: om = (b+ - w)/(b+ - b-), up om^gamma, down (1 - om)^gamma.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct pow_step {
  enum { kGammaUp = kShape, kGammaDown };

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    F om = (p(kUpper) - w) / (p(kUpper) - p(kLower));
    F x = maximum(select(up, om, 1.0f - om), F{} + 1e-30f);  // 0^gamma through the logarithm
    F y = exp(log(x) * select(up, p(kGammaUp), p(kGammaDown)));
    return bounded_step(w, up, noise, y, y, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
