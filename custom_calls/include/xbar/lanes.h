// One arithmetic for a single cell and for a pack of cells.
//
// The physics of a cell is written once, over a type F that is either float (one CUDA thread) or Floats
// (as many cells as the CPU's registers hold, in the compiler's vector extension).
// Results are the same numbers in each, provided the compiler does not fuse multiplications and additions.
#pragma once

#include <cstdint>
#include <cstring>

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
#endif

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
template <class T>
XBAR_FN T clip(T x, T low, T high) {
  return minimum(high, maximum(low, x));  // in this order what is not a number stays so
}

}  // namespace XBAR_ISA
}  // namespace xbar
