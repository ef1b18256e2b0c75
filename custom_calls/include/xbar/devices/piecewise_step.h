// The step interpolates linearly between nodes that divide [b-, b+] evenly; any number of nodes, at least two.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct piecewise_step {
  // (nodes - 1) / (b+ - b-); then the nodes of an up pulse, and as many of a down pulse.
  enum { kDensity = kShape, kNodes };

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    const int64_t nodes = (p.count() - kNodes) / 2;
    F t = (w - p(kLower)) * p(kDensity);
    F y = F{};
    for (int64_t k = 0; k < nodes; ++k) {
      F distance = t - static_cast<float>(k);
      F hat = maximum(1.0f - maximum(distance, -distance), F{});
      y = y + hat * select(up, p(kNodes + k), p(kNodes + nodes + k));
    }
    return bounded_step(w, up, noise, y, y, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
