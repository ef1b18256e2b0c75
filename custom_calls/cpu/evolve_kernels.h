// The kernels that move dynamic cells, of one instruction set.
#pragma once

#include <string_view>

#include "xbar/evolve.h"

namespace xbar {

struct EvolveKernel {
  const char* device;
  int64_t parameters, codes;  // how many it takes, of which are choices
  void (*run)(const EvolveArguments&, const CellParameter*, int64_t array, int64_t first_cell, int64_t last_cell);
};

struct EvolveKernels {
  const EvolveKernel* all;
  int n_devices;

  const EvolveKernel* find(std::string_view device) const {
    for (int i = 0; i < n_devices; ++i) {
      if (device == all[i].device) return &all[i];
    }
    return nullptr;
  }
};

// Of the instruction set that kernels() chose.
const EvolveKernels& evolve_kernels();

}  // namespace xbar
