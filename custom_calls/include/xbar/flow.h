// Motion of one state variable under a voltage that is held: xbar_jax/devices/flow.py, in the same steps.
//
// The rate f depends on the state alone, so the time to reach a state is the integral of d xi / f(xi). Panels of it are
// taken in the state, five points each, until the time that is left is met; Newton's step is the last.
//
// A device is a struct of nothing but F: what is left of a cell once its voltage is known. It has
//
//   enum { (codes) ..., (parameters) ..., kParameters };    in the order of the operands, kCodes codes first
//   template <class P> Device(F v, const P& p, const Codes&);            p(k) is parameter k of the cell
//   F low() const, high() const;                                         how far it can go at v
//   template <int N> void rates(const Codes&, const F* x, F* f) const;   dx/dt at N states
//
// and, where its rate has kinks or jumps, kBreaks and break_at(k); otherwise it derives from Smooth.
#pragma once

#include "xbar/evolve.h"
#include "xbar/math.h"

namespace xbar {
inline namespace XBAR_ISA {

constexpr int kNodes = 6;
constexpr int kMostPanels = 256;
// Allowed difference of the two quadratures, and of Newton's last step; both relative.
constexpr float kPanelLimit = 2e-4f, kClose = 1e-4f;
constexpr float kFar = 3e38f;
constexpr float kUlp = 1.1920929e-7f;

struct Smooth {
  enum { kBreaks = 0 };
  XBAR_FN float break_at(int) const { return 0.0f; }
};

// The time of a motion, not a number where the voltage is none: comparisons in a rate can hide that.
template <class F>
XBAR_FN F time_at(F v, F t) {
  return select(at_most(v, v) | at_most(absolute(t), F{}), t, v);
}

// The motion of the cells of one register, or of one cell. Everything is taken along `way`, the sign of the rate.
template <class F, class Device>
struct Motion {
  using Int = decltype(as_int(bits_of(F{})));

  Device device;
  F x, way, room;  // where it begins; +1 or -1; distance to the bound
  F least, most;   // between which its nodes lie
  F left, h;       // time, width of the next panel
  F d;             // distance covered; not a number where the state, its rate or the time is none
  Int trials, panels, end;

  // Open where there is any motion, still elsewhere.
  XBAR_FN Motion(const Device& cell, const Codes& codes, F x_, F t) : device(cell), x(x_), left(t), trials{}, panels{} {
    const F zero{};
    F first;
    device.template rates<1>(codes, &x, &first);
    const auto rises = below(zero, first);
    const F bound = select(rises, device.high(), device.low());
    room = bound - x;
    least = select(rises, F{} - kFar, bound);
    most = select(rises, bound, F{} + kFar);
    end = select(below(zero, first * room) & below(zero, t), Int{} + kOpen, Int{} + kStill);
    way = select(rises, F{} + 1.0f, F{} - 1.0f);
    room = room * way;
    const auto number = at_most(first, first) & at_most(x, x) & at_most(t, t);
    d = select(number | at_most(absolute(t), zero), zero, first + x + t);
    h = minimum(absolute(first) * t, ahead(zero));
  }
  Motion() = default;

  // From a distance to the next break, or to the bound.
  XBAR_FN F ahead(F at) const {
    F to = room - at;
    for (int k = 0; k < Device::kBreaks; ++k) {
      F other = (device.break_at(k) - x) * way - at;
      to = select(below(4 * kUlp * absolute(x), other) & below(other, absolute(to)), other, to);
    }
    return to;
  }

  XBAR_FN F displacement() const { return d * way; }

  // Tries one panel.
  XBAR_FN void step(const Codes& codes) {
    constexpr float kAt[] = {0.5f, 0.21132487f, 0.78867513f, 0.037089950f, 0.96291005f, 1.0f};
    constexpr float kFive[] = {0.31111111f, 0.24545455f, 0.24545455f, 0.098989899f, 0.098989899f};
    F at[kNodes], f[kNodes], inverse[kNodes - 1];
    // From where the panel begins, rounded once: its nodes lie to each other as they should.
    const F here = x + way * d, ahead_of = way * h;
    for (int k = 0; k < kNodes; ++k) at[k] = here + ahead_of * kAt[k];
    for (int k = kNodes - 2; k < kNodes; ++k) at[k] = clip(at[k], least, most);
    device.template rates<kNodes>(codes, at, f);
    const F zero{};
    auto onward = below(zero, h);
    F speed{};
    for (int k = 0; k < kNodes; ++k) {
      f[k] = f[k] * way;
      onward = onward & below(zero, f[k]);
      speed = maximum(speed, f[k]);
    }
    for (int k = 0; k < kNodes - 1; ++k) inverse[k] = reciprocal(f[k]);
    const F pair = inverse[1] + inverse[2];
    const F two = h * (0.5f * pair);
    const F five = h * ((kFive[0] * inverse[0] + kFive[1] * pair) + kFive[3] * (inverse[3] + inverse[4]));
    const F last = f[kNodes - 1];
    const F off = absolute(two - five);

    // What rounding leaves of the state: near an end the rate has few digits left.
    const F digit = kUlp * maximum(absolute(here), d);
    const auto tiny = at_most(h, 4.0f * digit);
    const auto good = onward & (tiny | at_most(off, kPanelLimit * five) | at_most(off * speed, 2.0f * digit));
    const F late = left - five;
    const F newton = h + late * last;
    const F stop = ahead(d);
    const auto close = at_most(absolute(late), kClose * left) & at_most(newton, stop);
    const auto arrived = good & close;
    const auto passed = good & opposite(close) & below(zero, late);
    const auto at_bound = passed & at_most(absolute(room - d), h);
    const auto overshot = good & opposite(close) & below(late, zero);
    const auto stuck = opposite(good) & tiny;

    const F moved = select(arrived, newton, h);
    d = select(at_bound, room, select(arrived | passed, d + moved, d));
    left = select(passed, late, left);
    const F ratio = kPanelLimit * five * reciprocal(maximum(off, F{} + 1e-30f));
    const F factor = 0.9f * fourth_root(select(below(zero, off), ratio, F{} + 1e6f));
    const F wider = minimum(minimum(last * left, clip(factor, F{} + 0.5f, F{} + 8.0f) * h), ahead(d));
    const F inside = clip(newton, 0.05f * h, 0.98f * h);
    const F shrunk = select(onward, clip(factor, F{} + 0.1f, F{} + 0.5f), F{} + 0.25f) * h;
    h = select(passed, wider, select(overshot, inside, shrunk));

    const Int one = Int{} + 1;
    panels = panels + select(arrived | passed, one, Int{});
    trials = trials + one;
    end = select(at_most(Int{} + kMostPanels, trials), Int{} + kSettled, Int{} + kOpen);
    end = select(arrived, Int{} + kMoved, end);
    end = select(at_bound, Int{} + kBound, end);
    end = select(stuck, Int{} + kSettled, end);
  }
};

}  // namespace XBAR_ISA
}  // namespace xbar
