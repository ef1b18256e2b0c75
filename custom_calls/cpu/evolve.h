// Motion of dynamic cells on a CPU.
//
// Cells need different numbers of panels, or none. Of some hundred neighbouring cells, those that move are listed
// without gaps, with all that their voltage decides; the list is worked off a register at a time, and a cell that has
// arrived makes room for the next one of the list.
#pragma once

#include <algorithm>

#include "evolve_kernels.h"
#include "registers.h"
#include "xbar/flow.h"

namespace xbar {
inline namespace XBAR_ISA {
namespace {

constexpr int kListed = 512;       // cells of a list
constexpr int kRoom = kLanes / 4;  // lanes that are filled again together, at least

// Parameters of the cells of one register.
struct CellsOfRegister {
  const CellParameter* all;
  int64_t array, row, col;
  int lanes;
  XBAR_FN Floats operator()(int k) const {
    const float* ptr = all[k].at(array, row, col);
    return all[k].col_stride == 0 ? Floats{} + *ptr : load<Floats>(ptr, lanes);
  }
};

template <class Device>
struct List {
  using Cells = Motion<Floats, Device>;
  static constexpr int kRegisters = sizeof(Cells) / sizeof(Floats);
  static_assert(sizeof(Cells) % sizeof(Floats) == 0, "a device holds nothing but registers");

  alignas(64) float numbers[kRegisters][kListed + kLanes];
  alignas(64) int32_t cells[kListed + kLanes];  // which one of the array
  int count = 0;

  XBAR_FN void add(const Cells& motion, Ints cell, Ints moving) {
    Floats registers[kRegisters];
    std::memcpy(registers, &motion, sizeof motion);
    int n = 0;
    for (int r = 0; r < kRegisters; ++r)
      n = compress(reinterpret_cast<uint32_t*>(numbers[r] + count), bits_of(registers[r]), moving);
    compress(reinterpret_cast<uint32_t*>(cells + count), as_uint(cell), moving);
    count += n;
  }
};

struct Results {
  float* d;
  int32_t *end, *panels;
};

// Moves all cells of the list.
template <class Device>
__attribute__((noinline)) void work_off(List<Device>& list, const Codes& codes, const Results& out) {
  using Cells = typename List<Device>::Cells;
  constexpr int kRegisters = List<Device>::kRegisters;
  if (list.count == 0) return;
  for (int i = 0; i < kLanes; ++i) list.cells[list.count + i] = -1;
  Cells motion;
  std::memset(static_cast<void*>(&motion), 0, sizeof motion);
  Ints cell = Ints{} - 1;
  uint32_t open = 0;
  int next = 0;
  while (true) {
    if (next < list.count && kLanes - __builtin_popcount(open) >= kRoom) {
      const Ints room = cell < 0;
      Floats registers[kRegisters];
      std::memcpy(registers, &motion, sizeof motion);
      for (int r = 0; r < kRegisters; ++r) registers[r] = room ? expand(list.numbers[r] + next, room) : registers[r];
      std::memcpy(static_cast<void*>(&motion), registers, sizeof motion);
      cell = room ? (Ints)expand(reinterpret_cast<const float*>(list.cells + next), room) : cell;
      next += how_many(room);
      open = mask_of(cell >= 0);
    }
    if (open == 0) return;
    motion.step(codes);
    uint32_t done = open & mask_of(motion.end >= 0);
    if (done == 0) continue;
    open &= ~done;
    alignas(64) float d[kLanes];
    alignas(64) int32_t at[kLanes], end[kLanes], panels[kLanes];
    store(d, motion.displacement(), kLanes);
    store(at, cell, kLanes);
    store(end, motion.end, kLanes);
    store(panels, motion.panels, kLanes);
    cell = motion.end >= 0 ? Ints{} - 1 : cell;
    for (; done; done &= done - 1) {
      const int lane = __builtin_ctz(done);
      out.d[at[lane]] = d[lane];
      out.end[at[lane]] = end[lane];
      out.panels[at[lane]] = panels[lane];
    }
  }
}

// Cells [first, last) of one array, counted along its rows.
template <template <class> class Device>
void run_evolve(const EvolveArguments& a, const CellParameter* parameters, int64_t array, int64_t first, int64_t last) {
  const Codes codes = codes_of<Device<Floats>>(parameters, array);
  List<Device<Floats>> list;
  const float *x = a.x.of(array), *v = a.v.of(array), *t = a.t.of(array);
  const int64_t base = first;  // so that 32 bits count the cells
  const Results out = {a.d.of(array) + base, a.end.of(array) + base, a.panels.of(array) + base};
  for (int64_t i = first; i < last;) {
    const int64_t row = i / a.cols, col = i % a.cols;
    const int lanes = static_cast<int>(std::min<int64_t>({kLanes, last - i, a.cols - col}));
    const Floats volts = load<Floats>(v + i, lanes), time = time_at(volts, load<Floats>(t + i, lanes));
    Floats d{};
    Ints end = Ints{} + kStill, panels{};
    if (any(time != 0.0f)) {
      const CellsOfRegister cells{parameters, array, row, col, lanes};
      Motion<Floats, Device<Floats>> motion(Device<Floats>(volts, cells, codes), codes, load<Floats>(x + i, lanes),
                                            time);
      d = d + motion.displacement();
      Ints moving = (motion.end < 0) & ((Ints)lane_index() < lanes);
      if (any(moving)) {
        // The first panel at once: many cells need no second one.
        motion.step(codes);
        d = moving ? motion.displacement() : d;
        end = moving ? motion.end : end;
        panels = moving ? motion.panels : panels;
        moving = moving & (end < 0);
        if (any(moving)) {
          if (list.count + kLanes > kListed) {
            work_off(list, codes, out);
            list.count = 0;
          }
          list.add(motion, (Ints)lane_index() + static_cast<int32_t>(i - base), moving);
        }
      }
    }
    store(out.d + (i - base), d, lanes);
    store(out.end + (i - base), end, lanes);
    store(out.panels + (i - base), panels, lanes);
    i += lanes;
  }
  work_off(list, codes, out);
}

}  // namespace
}  // namespace XBAR_ISA
}  // namespace xbar
