// One pulse moves the weight by one step, wherever it is.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct constant_step {
  enum { kParameters = kShape };

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    F one = F{} + 1.0f;
    return bounded_step(w, up, noise, one, one, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
