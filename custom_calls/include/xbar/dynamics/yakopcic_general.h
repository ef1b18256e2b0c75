// Yakopcic's device, with a sinh law for each of its two parts.
#pragma once

#include "xbar/yakopcic_motion.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace dynamics {

template <class F>
struct yakopcic_general : YakopcicMotion<F, 8> {
  enum { kCodes = 0, kFirstOfMotion = 8, kParameters = 18 };  // of the current 8, of the motion 9, the first state
  using YakopcicMotion<F, kFirstOfMotion>::YakopcicMotion;
};

}  // namespace dynamics
}  // namespace XBAR_ISA
}  // namespace xbar
