// Window functions: xbar_jax/devices/windows.py.
#pragma once

#include "xbar/math.h"

namespace xbar {
inline namespace XBAR_ISA {

enum Window { kNone, kJoglekar, kBiolek, kProdromakis, kZha, kWindows };

// The window at N states s; `down` is 1 where s falls, 0 where it rises. All are 1 - (1 - u)^p, with u free of
// cancellation at both ends.
template <int N, class F>
XBAR_FN void window(int32_t code, const F* s, F down, F p, F j, F* w) {
  if (code == kNone) {
    for (int k = 0; k < N; ++k) w[k] = F{} + 1.0f;
    return;
  }
  const F quarter = F{} + (code == kZha ? 0.25f : 1.0f), whole = F{} + (code == kJoglekar ? 4.0f : 1.0f);
  for (int k = 0; k < N; ++k) {
    const F at = clip(s[k], F{}, F{} + 1.0f);
    const F far = at - down;
    w[k] = code == kJoglekar || code == kProdromakis ? whole * at * (1.0f - at) : quarter * (1.0f - far) * (1.0f + far);
  }
  if (any(p != 1.0f)) {
    for (int k = 0; k < N; ++k) w[k] = -expm1(p * log_of_rest(w[k]));
  }
  if (code == kProdromakis || code == kZha) {
    for (int k = 0; k < N; ++k) w[k] = j * w[k];
  }
}

}  // namespace XBAR_ISA
}  // namespace xbar
