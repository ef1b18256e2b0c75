// Yakopcic's device, with one sinh law for the current.
#pragma once

#include "xbar/yakopcic_motion.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct yakopcic : YakopcicMotion<F, 3> {
  enum { kCodes = 0, kA1 = kCodes, kA2, kB, kParameters = 12 };
  using YakopcicMotion<F, kB + 1>::YakopcicMotion;
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
