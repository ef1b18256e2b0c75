// Launches, on a GPU or on the host.
//
// With XBAR_STANDIN the same kernels are compiled for the host, and a launch runs its grid one thread after another;
// none of our kernels synchronises, so that is a faithful order. It lets their index code run where there is no GPU.
#pragma once

#include "xbar/handlers.h"

namespace xbar {

constexpr int kThreads = 128;

#if defined(XBAR_STANDIN)

#define XBAR_GLOBAL static void
#define XBAR_GRID_CONSTANT
#define XBAR_STREAM
#define XBAR_CONTEXT xla::ffi::Ffi::Bind()
#define XBAR_TRAITS XBAR_NO_TRAITS

struct Index {
  unsigned x;
};
inline thread_local Index blockIdx, threadIdx, blockDim, gridDim;
static constexpr int stream = 0;
inline bool g_refuse_next_launch = false;

template <class Kernel, class Arguments>
ffi::Error launch(Kernel kernel, int64_t items, int, const Arguments& arguments) {
  if (g_refuse_next_launch) {
    g_refuse_next_launch = false;
    return ffi::Error(ffi::ErrorCode::kInternal, "kernel launch failed: too many resources requested for launch");
  }
  // A grid that is smaller than the work, so that the stride over the grid is exercised too.
  blockDim.x = 32;
  gridDim.x = static_cast<unsigned>(items / 64 + 1);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments);
  }
  return ffi::Error::Success();
}

#else

#define XBAR_GLOBAL static __global__ void __launch_bounds__(xbar::kThreads)
#define XBAR_GRID_CONSTANT __grid_constant__
#define XBAR_STREAM cudaStream_t stream,
#define XBAR_CONTEXT xla::ffi::Ffi::Bind().Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
// Launches alone: no allocation, no synchronisation, no query of the stream.
#define XBAR_TRAITS \
  std::initializer_list<xla::ffi::Traits> { xla::ffi::Traits::kCmdBufferCompatible }

// One thread an item, in a loop over the grid. The status of the launch is returned, never dropped.
template <class Kernel, class Arguments>
ffi::Error launch(Kernel kernel, int64_t items, cudaStream_t stream, const Arguments& arguments) {
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  kernel<<<static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20), kThreads, 0, stream>>>(arguments);
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return ffi::Error::Success();
  return ffi::Error(ffi::ErrorCode::kInternal, std::string("kernel launch failed: ") + cudaGetErrorString(status));
}

#endif

}  // namespace xbar
