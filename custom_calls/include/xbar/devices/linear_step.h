// The step falls linearly with the weight: s D (1 - gamma w / b_s), b_s the bound in the direction of the pulse.
// gamma = 1 is the soft-bounds device.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct linear_step {
  // gamma / b of each direction, and 1 where the cycle-to-cycle spread is relative to the step at w, 0 to D.
  enum { kSlopeUp = kShape, kSlopeDown, kRelative, kParameters };

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    F y = 1.0f - select(up, p(kSlopeUp), p(kSlopeDown)) * w;
    return bounded_step(w, up, noise, y, select(p(kRelative) != 0.0f, y, F{} + 1.0f), p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
