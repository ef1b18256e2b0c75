// Launches, on a GPU or on the host.
//
// With XBAR_STANDIN the same kernels are compiled for the host, and a launch runs its grid one thread after another: a
// faithful order for kernels that do not synchronise. Those that do are written for a team (xbar/team.h), which on the
// host is one thread. It lets their index code run where there is no GPU.
#pragma once

#include <optional>
#include <vector>

#include "xbar/handlers.h"
#include "xbar/team.h"

namespace xbar {

constexpr int kThreads = 128;
constexpr int kTeamThreads = 512;                   // most threads of a team
constexpr int64_t kMostScratch = int64_t{2} << 30;  // bytes; more teams than that allows wait for one another

inline ffi::Error launch_failed(const std::string& why) {
  return ffi::Error(ffi::ErrorCode::kInternal, "kernel launch failed: " + why);
}

#if defined(XBAR_STANDIN)

#define XBAR_GLOBAL static void
#define XBAR_TEAM_GLOBAL static void
#define XBAR_GRID_CONSTANT
#define XBAR_STREAM
#define XBAR_CONTEXT xla::ffi::Ffi::Bind()
#define XBAR_TEAM_CONTEXT xla::ffi::Ffi::Bind()
#define XBAR_TRAITS XBAR_NO_TRAITS

struct Index {
  unsigned x;
};
inline thread_local Index blockIdx, threadIdx, blockDim, gridDim;
using Stream = int;
static constexpr int stream = 0;
inline bool g_refuse_next_launch = false;

inline bool refused() {
  const bool out = g_refuse_next_launch;
  g_refuse_next_launch = false;
  return out;
}

template <class Kernel, class Arguments>
ffi::Error launch(Kernel kernel, int64_t items, int, const Arguments& arguments) {
  if (refused()) return launch_failed("too many resources requested for launch");
  // A grid that is smaller than the work, so that the stride over the grid is exercised too.
  blockDim.x = 32;
  gridDim.x = static_cast<unsigned>(items / 64 + 1);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments);
  }
  return ffi::Error::Success();
}

struct BlockCrew {
  int rank = 0, size = 1;
  explicit BlockCrew(char*) {}
  void wait() const {}
  double total(double x) const { return x; }
  double most(double x) const { return x; }
};
constexpr int64_t kCrewBytes = 0;  // of fast memory

inline thread_local char* t_team_memory = nullptr;
inline char* team_memory() { return t_team_memory; }

struct Scratch {
  std::vector<std::vector<char>> pieces;
  std::optional<void*> Allocate(size_t size, size_t) {
    pieces.emplace_back(size);
    return pieces.back().data();
  }
};

// A team that has little fast memory, so that arrays of all sizes in it, partly in it and beside it are soon met.
inline ffi::Error fast_memory(int64_t* bytes) {
  *bytes = 48 << 10;
  return ffi::Error::Success();
}

template <class Kernel>
ffi::Error team_room(Kernel, int, int64_t, int64_t* teams) {
  *teams = 2;
  return ffi::Error::Success();
}

template <class Kernel, class Arguments>
ffi::Error launch_teams(Kernel kernel, int64_t teams, int, int64_t fast, int, const Arguments& arguments) {
  if (refused()) return launch_failed("too many resources requested for launch");
  std::vector<char> memory(static_cast<size_t>(fast));
  t_team_memory = memory.data();
  gridDim.x = static_cast<unsigned>(teams);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) kernel(arguments);
  return ffi::Error::Success();
}

#else

#define XBAR_GLOBAL static __global__ void __launch_bounds__(xbar::kThreads)
#define XBAR_TEAM_GLOBAL static __global__ void __launch_bounds__(xbar::kTeamThreads)
#define XBAR_GRID_CONSTANT __grid_constant__
#define XBAR_STREAM cudaStream_t stream,
#define XBAR_CONTEXT xla::ffi::Ffi::Bind().Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
#define XBAR_TEAM_CONTEXT XBAR_CONTEXT.Ctx<xla::ffi::ScratchAllocator>()
// Launches alone: no allocation, no synchronisation, no query of the stream.
#define XBAR_TRAITS \
  std::initializer_list<xla::ffi::Traits> { xla::ffi::Traits::kCmdBufferCompatible }

using Stream = cudaStream_t;
using Scratch = ffi::ScratchAllocator;

inline ffi::Error checked(cudaError_t status) {
  if (status == cudaSuccess) return ffi::Error::Success();
  cudaGetLastError();  // so that the next launch is not blamed
  return launch_failed(cudaGetErrorString(status));
}

// One thread an item, in a loop over the grid. The status of the launch is returned, never dropped.
template <class Kernel, class Arguments>
ffi::Error launch(Kernel kernel, int64_t items, cudaStream_t stream, const Arguments& arguments) {
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  kernel<<<static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20), kThreads, 0, stream>>>(arguments);
  return checked(cudaGetLastError());
}

// The threads of a block, whole warps; `slots` holds a number for each warp.
struct BlockCrew {
  int rank, size;
  double* slots;

  __device__ __forceinline__ explicit BlockCrew(char* memory)
      : rank(static_cast<int>(threadIdx.x)),
        size(static_cast<int>(blockDim.x)),
        slots(reinterpret_cast<double*>(memory)) {}

  __device__ __forceinline__ void wait() const { __syncthreads(); }

  // In an order that is always the same. Everything before it is done and seen when it returns.
  template <class Op>
  __device__ __forceinline__ double combine(double x, Op op) const {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = op(x, __shfl_down_sync(0xffffffffu, x, step));
    if (rank % 32 == 0) slots[rank / 32] = x;
    __syncthreads();
    x = slots[0];
    for (int k = 1; k < size / 32; ++k) x = op(x, slots[k]);
    __syncthreads();
    return x;
  }

  __device__ __forceinline__ double total(double x) const {
    return combine(x, [](double a, double b) { return a + b; });
  }

  __device__ __forceinline__ double most(double x) const {
    return combine(x, [](double a, double b) { return b > a || b != b ? b : a; });
  }
};
constexpr int64_t kCrewBytes = kTeamThreads / 32 * static_cast<int64_t>(sizeof(double));

__device__ __forceinline__ char* team_memory() {
  extern __shared__ __align__(16) char memory[];
  return memory;
}

// Shared memory that a block may ask for.
inline ffi::Error fast_memory(int64_t* bytes) {
  int device = 0, most = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  *bytes = most;
  return checked(status);
}

// Allows a kernel its shared memory, and counts the teams that the device holds at once.
template <class Kernel>
ffi::Error team_room(Kernel kernel, int threads, int64_t fast, int64_t* teams) {
  int device = 0, processors = 0, each = 0;
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(fast));
  if (status == cudaSuccess) status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess)
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, static_cast<size_t>(fast));
  *teams = static_cast<int64_t>(processors) * (each > 0 ? each : 1);
  return checked(status);
}

// A block a team; the kernel loops over what there is more of.
template <class Kernel, class Arguments>
ffi::Error launch_teams(Kernel kernel, int64_t teams, int threads, int64_t fast, cudaStream_t stream,
                        const Arguments& arguments) {
  kernel<<<static_cast<unsigned>(teams), static_cast<unsigned>(threads), static_cast<size_t>(fast), stream>>>(
      arguments);
  return checked(cudaGetLastError());
}

#endif

template <class Item>
XBAR_FN void over_grid(int64_t items, Item item) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += stride) item(i);
}

}  // namespace xbar
