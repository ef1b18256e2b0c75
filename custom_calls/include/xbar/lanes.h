// One arithmetic for a single cell and for a pack of cells.
//
// The physics of a cell is written once, over a type F that is either float (one CUDA thread) or Floats
// (as many cells as the CPU's registers hold, in the compiler's vector extension).
// Results are the same numbers in each, provided the compiler does not fuse multiplications and additions.
#pragma once

#include <cstdint>
#include <cstring>

#if !defined(__CUDACC__) && defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__CUDACC__)
#define XBAR_FN __host__ __device__ __forceinline__
#else
#define XBAR_FN inline __attribute__((always_inline))
#endif

// Each instruction set compiles its own copy of the physics, kept apart by this namespace.
#ifndef XBAR_ISA
#define XBAR_ISA scalar
#endif

namespace xbar {
inline namespace XBAR_ISA {

XBAR_FN uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
#endif
}

XBAR_FN float float_of(uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
#endif
}

XBAR_FN int32_t as_int(uint32_t x) { return static_cast<int32_t>(x); }
XBAR_FN uint32_t as_uint(int32_t x) { return static_cast<uint32_t>(x); }
XBAR_FN float to_float(int32_t x) { return static_cast<float>(x); }
XBAR_FN int32_t to_int(float x) { return static_cast<int32_t>(x); }
XBAR_FN float square_root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
XBAR_FN int32_t popcount(uint32_t x) {
#if defined(__CUDA_ARCH__)
  return __popc(x);
#else
  return __builtin_popcount(x);
#endif
}

// The condition of one cell.
XBAR_FN uint32_t mask_of(bool condition) { return condition; }
XBAR_FN uint32_t mask_of(int32_t condition) { return condition != 0; }

#if !defined(__CUDACC__)
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
// One register of cells.
typedef float Floats __attribute__((vector_size(4 * kLanes), aligned(4 * kLanes), may_alias));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes), aligned(4 * kLanes), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes), aligned(4 * kLanes), may_alias));

XBAR_FN Words bits_of(Floats x) { return (Words)x; }
XBAR_FN Floats float_of(Words u) { return (Floats)u; }
XBAR_FN Ints as_int(Words x) { return (Ints)x; }
XBAR_FN Words as_uint(Ints x) { return (Words)x; }
XBAR_FN Floats to_float(Ints x) { return __builtin_convertvector(x, Floats); }
XBAR_FN Ints to_int(Floats x) { return __builtin_convertvector(x, Ints); }
XBAR_FN Floats square_root(Floats x) {
  Floats y;
  for (int i = 0; i < kLanes; ++i) y[i] = __builtin_sqrtf(x[i]);
  return y;
}
XBAR_FN Ints popcount(Words x) {
  x = x - ((x >> 1) & 0x55555555u);
  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return (Ints)((x * 0x01010101u) >> 24);
}
// One bit a cell.
XBAR_FN uint32_t mask_of(Ints condition) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)condition);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)condition));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)condition));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (condition[i] != 0) << i;
  return bits;
#endif
}
#endif

// a < b and a <= b. On AVX-512 a condition is a mask register; combined as a vector it would be taken apart.
template <class T>
XBAR_FN auto below(T a, T b) {
  return a < b;
}
template <class T>
XBAR_FN auto at_most(T a, T b) {
  return a <= b;
}
template <class M>
XBAR_FN auto opposite(M a) {
  return !a;
}
#if !defined(__CUDACC__) && defined(__AVX512F__)
struct Mask {
  __mmask16 bits;
};
XBAR_FN Mask below(Floats a, Floats b) { return {_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ)}; }
XBAR_FN Mask at_most(Floats a, Floats b) { return {_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ)}; }
XBAR_FN Mask at_most(Ints a, Ints b) { return {_mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, _MM_CMPINT_LE)}; }
XBAR_FN Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.bits & b.bits)}; }
XBAR_FN Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.bits | b.bits)}; }
XBAR_FN Mask opposite(Mask a) { return {static_cast<__mmask16>(~a.bits)}; }
XBAR_FN uint32_t mask_of(Mask a) { return a.bits; }
#endif

template <class M>
XBAR_FN bool any(M condition) {
  return mask_of(condition) != 0;
}

template <class M, class T>
XBAR_FN T select(M condition, T a, T b) {
  return condition ? a : b;
}
template <class T>
XBAR_FN T minimum(T a, T b) {
  return a < b ? a : b;
}
template <class T>
XBAR_FN T maximum(T a, T b) {
  return a > b ? a : b;
}
#if !defined(__CUDACC__) && defined(__AVX512F__)
XBAR_FN Floats select(Mask condition, Floats a, Floats b) {
  return (Floats)_mm512_mask_blend_ps(condition.bits, (__m512)b, (__m512)a);
}
XBAR_FN Ints select(Mask condition, Ints a, Ints b) {
  return (Ints)_mm512_mask_blend_epi32(condition.bits, (__m512i)b, (__m512i)a);
}
// One instruction each, which the compiler does not find; of two equal numbers the second, as above.
XBAR_FN Floats minimum(Floats a, Floats b) { return (Floats)_mm512_min_ps((__m512)a, (__m512)b); }
XBAR_FN Floats maximum(Floats a, Floats b) { return (Floats)_mm512_max_ps((__m512)a, (__m512)b); }
#endif
template <class T>
XBAR_FN T clip(T x, T low, T high) {
  return minimum(high, maximum(low, x));  // in this order what is not a number stays so
}
template <class T>
XBAR_FN T absolute(T x) {
  return float_of(bits_of(x) & 0x7fffffffu);
}

}  // namespace XBAR_ISA
}  // namespace xbar
