// Registers of float or double, and the dense products of the circuit kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace xbar {
inline namespace XBAR_ISA {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

template <class T>
struct PackOf {
  typedef T type __attribute__((vector_size(kBytes), aligned(kBytes), may_alias));
  using Word = typename std::conditional<sizeof(T) == 8, int64_t, int32_t>::type;
  typedef Word index __attribute__((vector_size(kBytes)));
};
template <class T>
using Pack = typename PackOf<T>::type;
template <class T>
constexpr int kWidth = kBytes / static_cast<int>(sizeof(T));

template <class T>
inline int64_t padded(int64_t n) {
  return (n + kWidth<T> - 1) / kWidth<T> * kWidth<T>;
}

template <class T>
inline Pack<T>& pack(T* p) {
  return *reinterpret_cast<Pack<T>*>(p);
}
template <class T>
inline const Pack<T>& pack(const T* p) {
  return *reinterpret_cast<const Pack<T>*>(p);
}

template <class T>
inline double sum_lanes(const Pack<T>& x) {
  double s = 0;
  for (int l = 0; l < kWidth<T>; ++l) s += static_cast<double>(x[l]);
  return s;
}
template <class T>
inline T max_lanes(const Pack<T>& x) {
  T m = x[0];
  for (int l = 1; l < kWidth<T>; ++l) m = (x[l] <= m) | (m != m) ? m : x[l];
  return m;
}
// NaN counts as larger than anything, on either side, so that it is not lost.
template <class P>
inline P larger(P m, P x) {
  return ((x <= m) | (m != m)) ? m : x;
}
template <class P>
inline P magnitude(P x) {
  return x < 0 ? -x : x;
}

// Exchanges the off-diagonal blocks of size H of two rows of a tile.
template <class T, int H, size_t... I>
inline void exchange(Pack<T>& a, Pack<T>& b, std::index_sequence<I...>) {
  using Index = typename PackOf<T>::index;
  using Word = typename PackOf<T>::Word;
  constexpr int w = kWidth<T>;
  const Index low = {static_cast<Word>((I & H) == 0 ? I : w + I - H)...};
  const Index high = {static_cast<Word>((I & H) == 0 ? I + H : w + I)...};
  const Pack<T> x = __builtin_shuffle(a, b, low), y = __builtin_shuffle(a, b, high);
  a = x;
  b = y;
}

template <class T, int H>
inline void transpose_stage(Pack<T>* x) {
  if constexpr (H < kWidth<T>) {
    for (int i = 0; i < kWidth<T>; ++i) {
      if ((i & H) == 0) exchange<T, H>(x[i], x[i + H], std::make_index_sequence<kWidth<T>>());
    }
    transpose_stage<T, 2 * H>(x);
  }
}

// Rows of `a` (stride lda), as many as a register is wide, become columns of `out` (one register each), n columns.
template <class T>
inline void gather_lines(const T* a, int64_t lda, int64_t n, T* out) {
  constexpr int w = kWidth<T>;
  for (int64_t j = 0; j < n; j += w) {
    Pack<T> x[w];
    for (int l = 0; l < w; ++l) x[l] = pack(a + l * lda + j);
    transpose_stage<T, 1>(x);
    for (int l = 0; l < w; ++l) pack(out + (j + l) * w) = x[l];
  }
}

// c += sign * a b over M rows and N registers; a(i, k) = a[i * ai + k * ak], b and c row-major.
template <class T, int M, int N>
inline void multiply_tile(int64_t depth, const T* a, int64_t ai, int64_t ak, const T* b, int64_t ldb, T* c, int64_t ldc,
                          T sign) {
  constexpr int w = kWidth<T>;
  Pack<T> sum[M][N] = {};
  for (int64_t k = 0; k < depth; ++k) {
    for (int n = 0; n < N; ++n) {
      const Pack<T> y = pack(b + k * ldb + n * w);
      for (int m = 0; m < M; ++m) sum[m][n] += a[m * ai + k * ak] * y;
    }
  }
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) pack(c + m * ldc + n * w) += sign * sum[m][n];
}

#if defined(__AVX512F__)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif

template <class T, int N>
inline void multiply_column(int64_t rows, int64_t depth, const T* a, int64_t ai, int64_t ak, const T* b, int64_t ldb,
                            T* c, int64_t ldc, T sign) {
  int64_t i = 0;
  for (; i + kTileRows <= rows; i += kTileRows)
    multiply_tile<T, kTileRows, N>(depth, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, sign);
  for (int rest = static_cast<int>(rows - i); rest > 0; --rest, ++i)
    multiply_tile<T, 1, N>(depth, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, sign);
}

// c += sign * a b. `cols`, ldb and ldc are multiples of the width; b and c are aligned.
template <class T>
inline void multiply(int64_t rows, int64_t cols, int64_t depth, const T* a, int64_t ai, int64_t ak, const T* b,
                     int64_t ldb, T* c, int64_t ldc, T sign) {
  constexpr int w = kWidth<T>;
  int64_t j = 0;
  for (; j + 2 * w <= cols; j += 2 * w) multiply_column<T, 2>(rows, depth, a, ai, ak, b + j, ldb, c + j, ldc, sign);
  for (; j < cols; j += w) multiply_column<T, 1>(rows, depth, a, ai, ak, b + j, ldb, c + j, ldc, sign);
}

}  // namespace XBAR_ISA
}  // namespace xbar
