// Operands of a call: leading batch axes, each of the batch's length or of length 1, then the axes of one array.
//
// The last batch axis becomes the `arrays` of one launch; what is in front of it is looped over, because operands that
// are shared along different axes have no single stride.
#pragma once

#include <cstdint>
#include <string>

#include "xbar/pulses.h"
#include "xla/ffi/api/ffi.h"

namespace xbar {

namespace ffi = xla::ffi;

using Dimensions = ffi::Span<const int64_t>;

// The batch of a call: its axes, taken from a result, which always has them in full.
struct Batch {
  int64_t outer = 1, arrays = 1;
  int axes = 0;
  const int64_t* dims = nullptr;

  Batch(Dimensions result, int core) : axes(static_cast<int>(result.size()) - core), dims(result.begin()) {
    for (int k = 0; k + 1 < axes; ++k) outer *= dims[k];
    if (axes > 0) arrays = dims[axes - 1];
  }
};

// Where the arrays of a batch are in an operand whose arrays have `core` axes.
struct Operand {
  int64_t sizes[8] = {}, strides[8] = {};
  int axes = 0;

  bool bind(const Batch& batch, Dimensions dims, int core) {
    axes = batch.axes;
    if (axes > 8 || static_cast<int>(dims.size()) != axes + core) return false;
    int64_t stride = 1;
    for (int k = axes; k < axes + core; ++k) stride *= dims[k];
    for (int k = axes - 1; k >= 0; --k) {
      if (dims[k] != 1 && dims[k] != batch.dims[k]) return false;
      sizes[k] = batch.dims[k];
      strides[k] = dims[k] == 1 ? 0 : stride;
      stride *= dims[k];
    }
    return true;
  }

  int64_t offset(int64_t outer) const {
    int64_t sum = 0;
    for (int k = axes - 2; k >= 0; --k) {
      sum += (outer % sizes[k]) * strides[k];
      outer /= sizes[k];
    }
    return sum;
  }

  template <class T>
  Arrays<T> at(T* data, int64_t outer) const {
    return {data + offset(outer), axes > 0 ? strides[axes - 1] : 0};
  }
};

inline ffi::Error invalid(const std::string& message) { return ffi::Error(ffi::ErrorCode::kInvalidArgument, message); }

// A parameter of the cells of an array: [rows or 1, cols or 1] behind the batch axes.
inline bool bind_parameter(const Batch& batch, const ffi::AnyBuffer& buffer, int64_t rows, int64_t cols, int64_t outer,
                           CellParameter* out) {
  const Dimensions d = buffer.dimensions();
  Operand operand;
  if (buffer.element_type() != ffi::DataType::F32 || !operand.bind(batch, d, 2)) return false;
  const int64_t r = d[d.size() - 2], c = d[d.size() - 1];
  if ((r != 1 && r != rows) || (c != 1 && c != cols)) return false;
  const Arrays<const float> a = operand.at<const float>(buffer.typed_data<float>(), outer);
  // Of two axes of length 1, one may be a true axis of an array with one row or column: a stride of 0 serves both.
  *out = {a.ptr, a.stride, r == 1 ? 0 : static_cast<int32_t>(c), c == 1 ? 0 : 1};
  return true;
}

}  // namespace xbar
