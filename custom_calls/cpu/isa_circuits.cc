// The circuit kernels of one instruction set, compiled as isa_cells.cc is, but with multiplications and additions
// fused: they iterate to a tolerance and do not reproduce bits. No two sets share an inline function.
#include <new>

#include "circuit_kernels.h"
#include "drops.h"
#include "effective.h"
#include "line_cg.h"

namespace xbar {
inline namespace XBAR_ISA {

// Running sums along the first axis of [n, count], lines [first, last).
template <class T>
inline void running_sum(const T* x, T* y, int64_t n, int64_t count, bool reverse, int64_t first, int64_t last) {
  for (int64_t k = 0; k < n; ++k) {
    const int64_t at = (reverse ? n - 1 - k : k) * count, before = at + (reverse ? count : -count);
    for (int64_t l = first; l < last; ++l) y[at + l] = k == 0 ? x[at + l] : y[before + l] + x[at + l];
  }
}

extern const CircuitKernels circuit_table;
const CircuitKernels circuit_table = {
    {cell_currents_scratch<float>, cell_currents_factor<float>, cell_currents_solve<float>, effective_scratch<float>,
     effective_solve<float>, effective_transpose_scratch<float>, effective_transpose<float>, drops_scratch<float>,
     drops_solve<float>, running_sum<float>},
    {cell_currents_scratch<double>, cell_currents_factor<double>, cell_currents_solve<double>,
     effective_scratch<double>, effective_solve<double>, effective_transpose_scratch<double>,
     effective_transpose<double>, drops_scratch<double>, drops_solve<double>, running_sum<double>},
};

}  // namespace XBAR_ISA
}  // namespace xbar
