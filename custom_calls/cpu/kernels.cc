#include "kernels.h"

#include <cstdlib>
#include <cstring>

namespace xbar {

#if defined(__x86_64__)
namespace sse2 {
extern const Kernels table;
}
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#else
namespace generic {
extern const Kernels table;
}
#endif

static const Kernels& choose() {
#if defined(__x86_64__)
  const char* wanted = std::getenv("XBAR_ISA");
  if (wanted && !*wanted) wanted = nullptr;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (wide && (!wanted || !std::strcmp(wanted, "avx512"))) return avx512::table;
  if (__builtin_cpu_supports("avx2") && (!wanted || std::strcmp(wanted, "sse2"))) return avx2::table;
  return sse2::table;
#else
  return generic::table;
#endif
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace xbar
