// Elementary functions to the rounding of float32, from their series on a reduced range.
#pragma once

#include "xbar/lanes.h"

namespace xbar {
inline namespace XBAR_ISA {

constexpr float kLn2High = 0.693359375f;  // nine bits, so that its product with an exponent is exact
constexpr float kLn2Low = -2.12194440e-4f;

// ln x for a normal x > 0: x = 2^e m, m in [sqrt 1/2, sqrt 2), ln m = 2 artanh((m - 1)/(m + 1)).
template <class F>
XBAR_FN F log(F x) {
  auto exponent = as_int(bits_of(x) - 0x3f3504f3u) >> 23;  // of x / sqrt 1/2
  F e = to_float(exponent);
  F m = float_of(bits_of(x) - (as_uint(exponent) << 23));
  F s = (m - 1.0f) / (m + 1.0f);
  F t = s * s;
  F p = ((t * (1.0f / 9.0f) + 1.0f / 7.0f) * t + 1.0f / 5.0f) * t + 1.0f / 3.0f;
  return e * kLn2High + (s * 2.0f + (s * t * p * 2.0f + e * kLn2Low));
}

// e^x, clamped to [e^-87, e^88].
template <class F>
XBAR_FN F exp(F x) {
  x = clip(x, F{} - 87.0f, F{} + 88.0f);
  F n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // nearest integer
  F r = (x - n * kLn2High) - n * kLn2Low;
  // The series to r^7, in an order that keeps the chain of operations short.
  F t = r * r;
  F low = (1.0f + r) + t * (0.5f + r * (1.0f / 6));
  F high = (1.0f / 24 + r * (1.0f / 120)) + t * (1.0f / 720 + r * (1.0f / 5040));
  F p = low + (t * t) * high;
  return p * float_of(as_uint(to_int(n) + 127) << 23);
}

// sin and cos of f quarter turns, |f| <= 1/2.
template <class F>
XBAR_FN void sincos_quarter(F f, F* sin, F* cos) {
  F x = f * 1.57079633f;
  F t = x * x;
  *sin = x + x * t * (((t * (1.0f / 362880) - 1.0f / 5040) * t + 1.0f / 120) * t - 1.0f / 6);
  *cos = (((((t * (-1.0f / 3628800) + 1.0f / 40320) * t - 1.0f / 720) * t + 1.0f / 24) * t - 0.5f) * t) + 1.0f;
}

}  // namespace XBAR_ISA
}  // namespace xbar
