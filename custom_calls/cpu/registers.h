// Registers of cells in memory, and lists without gaps.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "xbar/lanes.h"

namespace xbar {
inline namespace XBAR_ISA {

template <class V, class T>
XBAR_FN V load(const T* ptr, int lanes) {
  V v{};
  if (lanes >= kLanes) {
    std::memcpy(&v, ptr, sizeof v);
  } else {
    for (int i = 0; i < lanes; ++i) v[i] = ptr[i];
  }
  return v;
}

template <class V, class T>
XBAR_FN void store(T* ptr, V v, int lanes) {
  if (lanes >= kLanes) {
    std::memcpy(ptr, &v, sizeof v);
  } else {
    for (int i = 0; i < lanes; ++i) ptr[i] = v[i];
  }
}

XBAR_FN Words lane_index() {
  Words v{};
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<uint32_t>(i);
  return v;
}

// The lanes where `mask` holds, written without gaps (up to a register may be written); how many there are.
XBAR_FN int compress(uint32_t* out, Words v, Ints mask) {
#if defined(__AVX512F__)
  const __mmask16 m = _mm512_movepi32_mask((__m512i)mask);
  const __m512i packed = _mm512_maskz_compress_epi32(m, (__m512i)v);
  _mm512_storeu_si512(out, packed);
  return __builtin_popcount(m);
#else
  int n = 0;
  for (int i = 0; i < kLanes; ++i) {
    out[n] = v[i];
    n -= mask[i];
  }
  return n;
#endif
}

// The inverse: consecutive numbers to the lanes where `mask` holds.
XBAR_FN Floats expand(const float* in, Ints mask) {
#if defined(__AVX512F__)
  const __mmask16 m = _mm512_movepi32_mask((__m512i)mask);
  return (Floats)_mm512_maskz_expand_ps(m, _mm512_loadu_ps(in));
#else
  Floats v{};
  int n = 0;
  for (int i = 0; i < kLanes; ++i) {
    v[i] = in[n];
    n -= mask[i];
  }
  return v;
#endif
}

XBAR_FN int how_many(Ints mask) {
#if defined(__AVX512F__)
  return __builtin_popcount(_mm512_movepi32_mask((__m512i)mask));
#else
  int n = 0;
  for (int i = 0; i < kLanes; ++i) n -= mask[i];
  return n;
#endif
}

}  // namespace XBAR_ISA
}  // namespace xbar
