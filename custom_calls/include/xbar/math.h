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

// e^x that is 0 below e^-87.
template <class F>
XBAR_FN F exp_or_zero(F x) {
  return select(x < -87.0f, F{}, exp(x));
}

#if !defined(__CUDACC__) && defined(__AVX512F__)
// The same to the last place; AVX-512 rounds and scales by a power of two in one instruction each.
XBAR_FN Floats exp_or_zero(Floats x) {
  x = clip(x, Floats{} - 200.0f, Floats{} + 88.0f);
  const Floats n = (Floats)_mm512_roundscale_ps((__m512)(x * 1.44269504f), 0);
  const Floats r = (x - n * kLn2High) - n * kLn2Low;
  const Floats t = r * r;
  const Floats low = (1.0f + r) + t * (0.5f + r * (1.0f / 6));
  const Floats high = (1.0f / 24 + r * (1.0f / 120)) + t * (1.0f / 720 + r * (1.0f / 5040));
  return (Floats)_mm512_scalef_ps((__m512)(low + (t * t) * high), (__m512)n);
}
#endif

// a^b for a normal a > 0.
template <class F>
XBAR_FN F pow(F a, F b) {
  return exp_or_zero(b * log(a));
}

// a^b for a >= 0, where 0^b is 0.
template <class F>
XBAR_FN F pow_from_zero(F a, F b) {
  return select(a > 1e-37f, pow(maximum(a, F{} + 1e-37f), b), F{});
}

// ln(1 - u) for 0 <= u < 1, as accurate where u is small.
template <class F>
XBAR_FN F log_of_rest(F u) {
  F y = maximum(1.0f - u, F{} + 1e-37f);
  auto exponent = as_int(bits_of(y) - 0x3f3504f3u) >> 23;
  F e = to_float(exponent);
  F m = float_of(bits_of(y) - (as_uint(exponent) << 23));
  F s = select(exponent == 0, -u, m - 1.0f) / (m + 1.0f);
  F t = s * s;
  F p = ((t * (1.0f / 9.0f) + 1.0f / 7.0f) * t + 1.0f / 5.0f) * t + 1.0f / 3.0f;
  return e * kLn2High + (s * 2.0f + (s * t * p * 2.0f + e * kLn2Low));
}

// ln(1 + u) for u >= 0, as accurate where u is small.
template <class F>
XBAR_FN F log1p(F u) {
  return log_of_rest(-u);
}

// e^x - 1, as accurate where x is small; x clamped as in exp.
template <class F>
XBAR_FN F expm1(F x) {
  x = clip(x, F{} - 87.0f, F{} + 88.0f);
  F n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  F r = (x - n * kLn2High) - n * kLn2Low;
  F t = r * r;
  F low = r + t * (0.5f + r * (1.0f / 6));
  F high = (1.0f / 24 + r * (1.0f / 120)) + t * (1.0f / 720 + r * (1.0f / 5040));
  F power = float_of(as_uint(to_int(n) + 127) << 23);
  return (low + (t * t) * high) * power + (power - 1.0f);
}

#if !defined(__CUDACC__) && defined(__AVX512F__)
XBAR_FN Floats expm1(Floats x) {
  x = clip(x, Floats{} - 87.0f, Floats{} + 88.0f);
  const Floats n = (Floats)_mm512_roundscale_ps((__m512)(x * 1.44269504f), 0);
  const Floats r = (x - n * kLn2High) - n * kLn2Low;
  const Floats t = r * r;
  const Floats low = r + t * (0.5f + r * (1.0f / 6));
  const Floats high = (1.0f / 24 + r * (1.0f / 120)) + t * (1.0f / 720 + r * (1.0f / 5040));
  const Floats power = (Floats)_mm512_scalef_ps((__m512)(Floats{} + 1.0f), (__m512)n);
  return (low + (t * t) * high) * power + (power - 1.0f);
}
#endif

// sinh x, finite for any x: e^|x| is clamped as in exp.
template <class F>
XBAR_FN F sinh(F x) {
  F e = expm1(absolute(x));
  F y = 0.5f * (e + e / (e + 1.0f));
  return select(x < 0.0f, -y, y);
}

// 1/x for a normal x, to the last place.
template <class F>
XBAR_FN F reciprocal(F x) {
  return 1.0f / x;
}
#if !defined(__CUDACC__) && defined(__AVX512F__)
template <>
XBAR_FN Floats reciprocal(Floats x) {
  Floats y = (Floats)_mm512_rcp14_ps((__m512)x);
  return y + y * (1.0f - x * y);
}
#endif

// x^(1/4) for x > 0, to a few parts in a thousand at least: for the choice of a width.
template <class F>
XBAR_FN F fourth_root(F x) {
#if !defined(__CUDACC__) && defined(__AVX512F__)
  if constexpr (sizeof(F) == 64) return (F)_mm512_rsqrt14_ps(_mm512_rsqrt14_ps((__m512)x));
#elif !defined(__CUDACC__) && defined(__AVX2__)
  if constexpr (sizeof(F) == 32) return (F)_mm256_rsqrt_ps(_mm256_rsqrt_ps((__m256)x));
#elif !defined(__CUDACC__) && defined(__SSE2__)
  if constexpr (sizeof(F) == 16) return (F)_mm_rsqrt_ps(_mm_rsqrt_ps((__m128)x));
#endif
  return square_root(square_root(x));
}

}  // namespace XBAR_ISA
}  // namespace xbar
