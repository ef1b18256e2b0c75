// Arguments of the circuit kernels: one array, its lines, and what is asked. Arrays are [rows, cols], row-major.
#pragma once

#include <cstdint>
#include <type_traits>

namespace xbar {

// A bundle of parallel lines; see xbar_jax/circuits/lines.py. Segment k of line l is r[k * along + l * across].
template <class T>
struct Bundle {
  enum : int32_t {
    kNear = 1,
    kFar = 2,
    kCut = 4
  };  // bits of `ends`: terminal joined; every segment open
      // none of them: the line floats
  const T* r;
  int64_t along, across;
  const T *near, *far;  // [count] ohm, 0 where open
  const int32_t* ends;  // [count]
  bool flip;            // the near terminal is at the last position
};

enum class Method : int32_t { kAuto = 0, kLines = 1, kTwoLevel = 2 };

// (I + g W) i = c for the cell currents i, beginning at `start` (null: 0); see xbar_jax/circuits/network.py.
template <class T>
struct CellCurrents {
  int64_t rows, cols;
  const T* g;
  Bundle<T> word, bit;
  const T *c, *q_word, *q_bit;  // q: [rows], [cols], what a floating line's cells carry in total
  const T* start;
  T tol;
  int32_t max_steps;
  Method method;
  T *i, *phi_word, *phi_bit;  // phi: potential of the near node of a floating line, as a drop
  int32_t* steps;
  T* residual;
  bool* reached;
};

// The effective conductance of an array that is read from the near ends of `across` to the near ends of `down`:
// rows >= cols lines of `across` are added one by one to the cols lines of `down`.
template <class T>
struct Effective {
  int64_t rows, cols;
  const T* g;
  Bundle<T> across, down;
  T* out;
};

// (W_w + W_b) i: the voltages that cell currents i take along both their lines.
template <class T>
struct Drops {
  int64_t rows, cols;
  Bundle<T> word, bit;
  const T* i;
  T* out;
};

// Calls body(context, k) for k in [0, n), on as many threads as there are; n does not depend on their number.
struct Parallel {
  void* pool;
  void (*run)(void* pool, int64_t n, void (*body)(void*, int64_t), void* context);

  template <class Body>
  void operator()(int64_t n, Body&& body) const {
    if (!pool || n == 1) {
      for (int64_t k = 0; k < n; ++k) body(k);
      return;
    }
    using Plain = typename std::remove_reference<Body>::type;
    run(
        pool, n, [](void* context, int64_t k) { (*static_cast<Plain*>(context))(k); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
};

}  // namespace xbar
