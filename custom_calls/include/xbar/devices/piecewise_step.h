// The step interpolates linearly between nodes that divide [b-, b+] evenly; any number of nodes, at least two.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct piecewise_step {
  // Parameters behind the common ones: the nodes of an up pulse, then as many of a down pulse.
  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    const int64_t nodes = (p.count() - kShape) / 2;
    F t = (w - p(kLower)) / (p(kUpper) - p(kLower)) * static_cast<float>(nodes - 1);
    F y = F{};
    for (int64_t k = 0; k < nodes; ++k) {
      F distance = t - static_cast<float>(k);
      F hat = maximum(1.0f - maximum(distance, -distance), F{});
      y = y + hat * select(up, p(kShape + k), p(kShape + nodes + k));
    }
    return bounded_step(w, up, noise, y, y, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
