// The circuit kernels of one instruction set, in both precisions.
#pragma once

#include "xbar/circuits.h"

namespace xbar {

template <class T>
struct CircuitKernelsOf {
  // Bytes of scratch for an array and for each right-hand side in work.
  void (*scratch)(const CellCurrents<T>&, int64_t* shared, int64_t* own);
  void (*factor)(const CellCurrents<T>&, char* shared);
  void (*solve)(const CellCurrents<T>&, const char* shared, char* own, const Parallel&);
  int64_t (*effective_scratch)(const Effective<T>&, const Parallel&);
  void (*effective)(const Effective<T>&, char* scratch, const Parallel&);
  int64_t (*effective_transpose_scratch)(const Effective<T>&, const Parallel&);
  void (*effective_transpose)(const Effective<T>&, const T* gain, char* scratch, const Parallel&);
  int64_t (*drops_scratch)(const Drops<T>&);
  void (*drops)(const Drops<T>&, char* scratch);
  void (*running_sum)(const T* x, T* y, int64_t n, int64_t count, bool reverse, int64_t first, int64_t last);
};

struct CircuitKernels {
  CircuitKernelsOf<float> f32;
  CircuitKernelsOf<double> f64;

  template <class T>
  const CircuitKernelsOf<T>& of() const {
    if constexpr (sizeof(T) == 8) {
      return f64;
    } else {
      return f32;
    }
  }
};

const CircuitKernels& circuit_kernels();

}  // namespace xbar
