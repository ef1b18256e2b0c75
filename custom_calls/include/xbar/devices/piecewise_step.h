// The step interpolates linearly between nodes that divide [b-, b+] evenly; any number of nodes, at least two.
#pragma once

#include "xbar/device.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace devices {

struct piecewise_step {
  // (nodes - 1) / (b+ - b-); then the nodes of an up pulse, and as many of a down pulse.
  enum { kDensity = kShape, kNodes, kParameters = kNodes + 4 };

  template <class F>
  XBAR_FN static F hat(F t, F k) {
    return maximum(1.0f - maximum(t - k, k - t), F{});
  }

  template <class F, class M, class P>
  XBAR_FN static F step(F w, M up, F noise, const P& p) {
    const int64_t nodes = (p.count() - kNodes) / 2;
    F t = (w - p(kLower)) * p(kDensity);
    F y = F{};
    if (nodes <= 4) {
      for (int64_t k = 0; k < nodes; ++k)
        y = y + hat(t, F{} + static_cast<float>(k)) * select(up, p(kNodes + k), p(kNodes + nodes + k));
    } else {
      // The two nodes beside t; all other terms of the sum above are 0.
      auto k = to_int(minimum(maximum(t, F{}), F{} + static_cast<float>(nodes - 2)));
      auto first = k + static_cast<int32_t>(kNodes);
      first = select(up, first, first + static_cast<int32_t>(nodes));
      y = hat(t, to_float(k)) * p.gather(first) + hat(t, to_float(k) + 1.0f) * p.gather(first + 1);
    }
    return bounded_step(w, up, noise, y, y, p);
  }
};

}  // namespace devices
}  // namespace XBAR_ISA
}  // namespace xbar
