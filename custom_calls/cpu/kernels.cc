#include "kernels.h"

#include <cstdlib>
#include <cstring>

#include "circuit_kernels.h"
#include "evolve_kernels.h"

namespace xbar {

#if defined(__x86_64__)
namespace sse2 {
extern const Kernels table;
extern const CircuitKernels circuit_table;
extern const EvolveKernels evolve_table;
}  // namespace sse2
namespace avx2 {
extern const Kernels table;
extern const CircuitKernels circuit_table;
extern const EvolveKernels evolve_table;
}  // namespace avx2
namespace avx512 {
extern const Kernels table;
extern const CircuitKernels circuit_table;
extern const EvolveKernels evolve_table;
}  // namespace avx512
#else
namespace generic {
extern const Kernels table;
extern const CircuitKernels circuit_table;
extern const EvolveKernels evolve_table;
}  // namespace generic
#endif

struct Chosen {
  const Kernels& cells;
  const CircuitKernels& circuits;
  const EvolveKernels& motion;
};

static Chosen choose() {
#if defined(__x86_64__)
  const char* wanted = std::getenv("XBAR_ISA");
  if (wanted && !*wanted) wanted = nullptr;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (wide && (!wanted || !std::strcmp(wanted, "avx512")))
    return {avx512::table, avx512::circuit_table, avx512::evolve_table};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && (!wanted || std::strcmp(wanted, "sse2")))
    return {avx2::table, avx2::circuit_table, avx2::evolve_table};
  return {sse2::table, sse2::circuit_table, sse2::evolve_table};
#else
  return {generic::table, generic::circuit_table, generic::evolve_table};
#endif
}

static const Chosen& chosen() {
  static const Chosen sets = choose();
  return sets;
}

const Kernels& kernels() { return chosen().cells; }
const CircuitKernels& circuit_kernels() { return chosen().circuits; }
const EvolveKernels& evolve_kernels() { return chosen().motion; }

}  // namespace xbar
