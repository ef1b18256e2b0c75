// The operands of a motion into arguments, with every shape checked.
#pragma once

#include "xbar/evolve.h"
#include "xbar/handlers.h"

namespace xbar {

constexpr int kMostDynamicOperands = 128;  // choices and parameters of a device

struct EvolveCall {
  Batch batch;
  int64_t rows = 0, cols = 0;
  Buffer x, v, t;
  const ffi::RemainingArgs& parameters;
  Buffer d, end, panels;

  EvolveCall(Buffer state, Buffer voltage, Buffer time, const ffi::RemainingArgs& all, Result change, Result how,
             Result steps)
      : batch(change->dimensions(), 2),
        x(state),
        v(voltage),
        t(time),
        parameters(all),
        d(*change),
        end(*how),
        panels(*steps) {}

  ffi::Error check(std::string_view device, int64_t expected, int64_t codes) {
    if (d.dimensions().size() < 2 || !is(d, ffi::DataType::F32)) return invalid("d must be float32 [rows, cols]");
    rows = axis(d, 2);
    cols = axis(d, 1);
    Operand o;
    const auto fits = [&](const Buffer& b, ffi::DataType type) {
      return is(b, type) && o.bind(batch, b.dimensions(), 2) && axis(b, 2) == rows && axis(b, 1) == cols;
    };
    if (!fits(x, ffi::DataType::F32)) return invalid("x must be float32 [rows, cols]");
    if (!fits(v, ffi::DataType::F32)) return invalid("v must be float32 [rows, cols], as x");
    if (!fits(t, ffi::DataType::F32)) return invalid("t must be float32 [rows, cols], as x");
    if (!fits(end, ffi::DataType::S32)) return invalid("end must be int32 [rows, cols]");
    if (!fits(panels, ffi::DataType::S32)) return invalid("panels must be int32 [rows, cols]");
    if (static_cast<int64_t>(parameters.size()) != expected)
      return invalid(std::string(device) + " takes " + std::to_string(expected) + " numbers, got " +
                     std::to_string(parameters.size()) +
                     ": the library and the Python package are not of the same version");
    CellParameter p;
    for (int64_t k = 0; k < expected; ++k) {
      const Buffer b = *parameters.get<Buffer>(static_cast<size_t>(k));
      if (!bind_parameter(batch, b, rows, cols, 0, &p))
        return invalid("parameter " + std::to_string(k) + " must be float32 [rows or 1, cols or 1]");
      if (k < codes && b.element_count() != 1) return invalid("choice " + std::to_string(k) + " must be one number");
    }
    return ffi::Error::Success();
  }

  EvolveArguments at(int64_t outer, CellParameter* out) const {
    const auto of = [&](const Buffer& b, auto* data) {
      Operand o;
      o.bind(batch, b.dimensions(), 2);
      return o.at(data, outer);
    };
    for (size_t k = 0; k < parameters.size(); ++k)
      bind_parameter(batch, *parameters.get<Buffer>(k), rows, cols, outer, out + k);
    return {batch.arrays,
            rows,
            cols,
            of(x, static_cast<const float*>(x.typed_data<float>())),
            of(v, static_cast<const float*>(v.typed_data<float>())),
            of(t, static_cast<const float*>(t.typed_data<float>())),
            of(d, d.typed_data<float>()),
            of(end, end.typed_data<int32_t>()),
            of(panels, panels.typed_data<int32_t>())};
  }
};

}  // namespace xbar

#define XBAR_EVOLVE_PARAMETERS                                                                      \
  Buffer x, Buffer v, Buffer t, ffi::RemainingArgs parameters, Result d, Result end, Result panels, \
      std::string_view device
#define XBAR_EVOLVE_BINDING(context) \
  context.Arg<xbar::Buffer>()        \
      .Arg<xbar::Buffer>()           \
      .Arg<xbar::Buffer>()           \
      .RemainingArgs()               \
      .Ret<xbar::Buffer>()           \
      .Ret<xbar::Buffer>()           \
      .Ret<xbar::Buffer>()           \
      .Attr<std::string_view>("device")
