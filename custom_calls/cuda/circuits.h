// The circuit calls: a team of threads for each array and right-hand side, a thread for each running sum.
#pragma once

#include "launch.h"
#include "xbar/circuit_calls.h"
#include "xbar/line_cg_team.h"

#define XBAR_CIRCUIT_CALLS " xbar_cell_currents xbar_running_sum"

namespace xbar {

template <class T>
struct CellCurrentsLaunch {
  CellCurrentsBatch<T> all;
  int64_t fast, slow;  // bytes of each team
  char* scratch;
};

template <class T>
XBAR_TEAM_GLOBAL cell_currents_kernel(const XBAR_GRID_CONSTANT CellCurrentsLaunch<T> l) {
  char* const memory = team_memory();
  const Team<BlockCrew> team{BlockCrew(memory)};
  Places places(memory + kCrewBytes, l.fast - kCrewBytes, l.scratch + blockIdx.x * l.slow);
  const LineVectors<T> vectors(static_cast<int>(l.all.first.rows), static_cast<int>(l.all.first.cols), places);
  for (int64_t k = blockIdx.x; k < l.all.arrays; k += gridDim.x) {
    const CellCurrents<T> a = l.all.of(k);
    TeamSolve<T, BlockCrew>(team, a, vectors)();
    team.wait();
  }
}

template <class T>
static ffi::Error solve_currents(const CellCurrentsCall& call, Stream stream, Scratch& scratch) {
  const int64_t rows = call.rows, cols = call.cols, arrays = call.batch.outer * call.batch.arrays;
  if (rows * cols == 0 || arrays == 0) return ffi::Error::Success();
  if (rows > INT32_MAX / 2 || cols > INT32_MAX / 2 || (rows + 1) * (cols + 1) > INT32_MAX)
    return invalid("an array may have 2^31 cells at most");
  CellCurrentsLaunch<T> l{};
  int64_t most = 0;
  ffi::Error error = fast_memory(&most);
  if (error.failure()) return error;
  Places places(nullptr, most - kCrewBytes, nullptr);
  LineVectors<T>(static_cast<int>(rows), static_cast<int>(cols), places);
  l.fast = kCrewBytes + places.fast_used;
  l.slow = places.slow_used;
  const int64_t lines = rows > cols ? rows : cols;
  const int threads = lines <= 32 ? 128 : lines <= 64 ? 256 : kTeamThreads;
  int64_t teams = 0;
  error = team_room(cell_currents_kernel<T>, threads, l.fast, &teams);
  if (error.failure()) return error;
  if (teams > call.batch.arrays) teams = call.batch.arrays;
  if (l.slow > 0) {
    const int64_t room = kMostScratch / l.slow;
    if (teams > room) teams = room > 1 ? room : 1;
    const std::optional<void*> memory = scratch.Allocate(static_cast<size_t>(teams * l.slow), 16);
    if (!memory) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for the solve");
    l.scratch = static_cast<char*>(*memory);
  }
  for (int64_t outer = 0; outer < call.batch.outer && error.success(); ++outer) {
    l.all = call.at<T>(outer);
    error = launch_teams(cell_currents_kernel<T>, teams, threads, l.fast, stream, l);
  }
  return error;
}

static ffi::Error run_currents(const CellCurrentsCall& call, Stream stream, Scratch& scratch) {
  const ffi::Error error = call.check();
  if (error.failure()) return error;
  return is(call.g, ffi::DataType::F64) ? solve_currents<double>(call, stream, scratch)
                                        : solve_currents<float>(call, stream, scratch);
}

#if defined(XBAR_STANDIN)
static ffi::Error cell_currents(XBAR_CELL_CURRENTS_PARAMETERS) {
  Scratch scratch;
#else
static ffi::Error cell_currents(Stream stream, Scratch scratch, XBAR_CELL_CURRENTS_PARAMETERS) {
#endif
  return run_currents(CellCurrentsCall(XBAR_CELL_CURRENTS_ARGUMENTS), stream, scratch);
}

template <class T>
struct RunningSum {
  const T* x;
  T* y;
  int64_t arrays, n, count;
  bool reverse;
};

// One line: neighbouring threads take neighbouring lines.
template <class T>
XBAR_FN void running_sum_line(const RunningSum<T>& a, int64_t item) {
  const int64_t first = item / a.count * a.n * a.count + item % a.count + (a.reverse ? (a.n - 1) * a.count : 0);
  const int64_t step = a.reverse ? -a.count : a.count;
  const T* __restrict__ x = a.x + first;
  T* __restrict__ y = a.y + first;
  T total = 0;
  for (int64_t k = 0; k < a.n; ++k) {
    total += x[k * step];
    y[k * step] = total;
  }
}

template <class T>
XBAR_GLOBAL running_sum_kernel(const XBAR_GRID_CONSTANT RunningSum<T> a) {
  over_grid(a.arrays * a.count, [&](int64_t item) { running_sum_line(a, item); });
}

template <class T>
static ffi::Error sum_lines(const Buffer& x, Result& y, bool reverse, Stream stream) {
  const int64_t n = axis(x, 2), count = axis(x, 1), arrays = static_cast<int64_t>(x.element_count()) / (n * count);
  const RunningSum<T> a{x.typed_data<T>(), y->typed_data<T>(), arrays, n, count, reverse};
  return launch(running_sum_kernel<T>, arrays * count, stream, a);
}

static ffi::Error running_sum(XBAR_STREAM Buffer x, Result y, int64_t reverse) {
  if (x.dimensions().size() < 2 || x.element_type() != y->element_type() || x.element_count() != y->element_count())
    return invalid("x must be [n, count], and the result like it");
  if (!is(x, ffi::DataType::F64) && !is(x, ffi::DataType::F32)) return invalid("x must be float32 or float64");
  if (x.element_count() == 0) return ffi::Error::Success();
  return is(x, ffi::DataType::F64) ? sum_lines<double>(x, y, reverse != 0, stream)
                                   : sum_lines<float>(x, y, reverse != 0, stream);
}

}  // namespace xbar

XBAR_HANDLER(xbar_cell_currents, cell_currents, XBAR_CELL_CURRENTS_BINDING(XBAR_TEAM_CONTEXT), XBAR_NO_TRAITS)
XBAR_HANDLER(xbar_running_sum, running_sum, XBAR_RUNNING_SUM_BINDING(XBAR_CONTEXT), XBAR_TRAITS)
