// dx/dt = eta g(v) f(x) of both of Yakopcic's forms. Their numbers from ap on are the same, `First` is the place of ap.
#pragma once

#include "xbar/flow.h"

namespace xbar {
inline namespace XBAR_ISA {

template <class F, int First>
struct YakopcicMotion {
  enum { kBreaks = 2 };
  enum { kAp = First, kAn, kVp, kVn, kAlphaP, kAlphaN, kXp, kXn, kEta };

  // k f: f = exp(alpha (x - edge)) (offset - way x) scale from the edge on, in the direction of the motion.
  F k, alpha, edge, offset, way, scale, xp, xn;

  YakopcicMotion() = default;
  template <class P>
  XBAR_FN YakopcicMotion(F v, const P& q, const Codes&) : xp(q(kXp)), xn(1.0f - q(kXn)) {
    const F vp = q(kVp), vn = q(kVn);
    const auto up = v > vp, down = v < -vn;
    const F threshold = select(up, vp, vn), over = minimum(absolute(v), F{} + 80.0f) - threshold;
    const F g = select(up, q(kAp), -q(kAn)) * exp(threshold) * expm1(over);
    k = select(up | down, q(kEta) * g, F{});
    const auto rises = k > 0.0f;
    alpha = select(rises, -q(kAlphaP), q(kAlphaN));
    edge = select(rises, xp, xn);
    offset = select(rises, F{} + 1.0f, F{});
    way = select(rises, F{} + 1.0f, F{} - 1.0f);
    scale = select(rises, 1.0f / (1.0f - xp), 1.0f / xn);
  }

  XBAR_FN F low() const { return F{}; }
  XBAR_FN F high() const { return F{} + 1.0f; }
  XBAR_FN F break_at(int i) const { return i == 0 ? xp : xn; }

  template <int N>
  XBAR_FN void rates(const Codes&, const F* x, F* f) const {
    for (int i = 0; i < N; ++i) {
      const F beyond = x[i] - edge;
      const F slow = exp_or_zero(alpha * beyond) * ((offset - way * x[i]) * scale);
      f[i] = k * select(beyond * way >= 0.0f, slow, F{} + 1.0f);
    }
  }
};

}  // namespace XBAR_ISA
}  // namespace xbar
