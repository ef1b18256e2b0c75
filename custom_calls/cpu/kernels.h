// The kernels of one instruction set, and the choice among those that this processor runs.
#pragma once

#include <string_view>

#include "xbar/pulses.h"

namespace xbar {

struct PulseKernel {
  const char* device;
  int64_t parameters;  // at least
  void (*run)(const PulseArguments&, const CellParameter*, int64_t array, int64_t first_row, int64_t last_row);
};

struct Kernels {
  const char* isa;
  void (*trains)(const TrainArguments&, int64_t array, int64_t first_sample, int64_t last_sample);
  void (*read)(const ReadArguments&, int64_t array, int64_t first_col, int64_t last_col);
  const PulseKernel* pulses;
  int n_devices;

  const PulseKernel* find(std::string_view device) const {
    for (int i = 0; i < n_devices; ++i) {
      if (device == pulses[i].device) return &pulses[i];
    }
    return nullptr;
  }
};

// The widest instruction set of this processor, or the one that the environment names in XBAR_ISA. Chosen once.
const Kernels& kernels();

}  // namespace xbar
