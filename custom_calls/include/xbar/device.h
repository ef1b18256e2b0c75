// What every pulsed device shares: its parameters, by number, and the bounded step.
//
// A device is a struct with one static function
//
//   template <class F, class M, class P> static F step(F w, M up, F noise, const P& p);
//
// and kParameters, the least number of parameters it takes. step gives the weight after one pulse, up where `up` holds
// and down elsewhere; `noise` is a standard normal number. p(k) is parameter k of the cell, p.gather(k) one whose
// number differs from cell to cell. The first five mean the same for every device; how many follow is free.
#pragma once

#include "xbar/math.h"

namespace xbar {
inline namespace XBAR_ISA {

enum Parameter { kStepUp, kStepDown, kUpper, kLower, kSpread, kShape };

// w + s D [y + sigma n (y or 1)] inside the bounds: s is the sign of the pulse, D the step of that
// direction, y the relative step at w, sigma the cycle-to-cycle spread.
template <class F, class M, class P>
XBAR_FN F bounded_step(F w, M up, F noise, F y, F spread_of, const P& p) {
  F step = select(up, p(kStepUp), -p(kStepDown));
  return clip(w + step * (y + p(kSpread) * noise * spread_of), p(kLower), p(kUpper));
}

}  // namespace XBAR_ISA
}  // namespace xbar
