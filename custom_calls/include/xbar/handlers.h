// What the CPU and the CUDA handlers share: operands into arguments, with every shape checked, and the library's table.
#pragma once

#include <string>
#include <string_view>

#include "xbar/device_names.h"
#include "xbar/operands.h"

namespace xbar {

constexpr int kMaxParameters = 1024;

using Buffer = ffi::AnyBuffer;
using Result = ffi::Result<ffi::AnyBuffer>;

inline bool is(const Buffer& b, ffi::DataType type) { return b.element_type() == type; }

inline int64_t axis(const Buffer& b, int from_the_end) { return b.dimensions()[b.dimensions().size() - from_the_end]; }

inline ffi::Error too_few(std::string_view device, int64_t least) {
  return invalid(std::string(device) + " takes at least " + std::to_string(least) +
                 " parameters: the library and the Python package are not of the same version");
}

// Pulses on every array of a batch; trains, or counts with row_trains null.
struct PulseCall {
  Batch batch;
  int64_t rows = 0, cols = 0, samples = 0, words = 0;
  Buffer w_in, first, second, keys, origin;
  bool counted;
  const ffi::RemainingArgs& parameters;
  Buffer w_out, total;
  int64_t only;

  // `one` and `two` are row and column trains, or `one` alone counts.
  PulseCall(Buffer w, Buffer one, Buffer two, bool counted_, Buffer key, Buffer start, const ffi::RemainingArgs& all,
            Result out, Result n, int64_t only_)
      : batch(out->dimensions(), 2),
        w_in(w),
        first(one),
        second(two),
        keys(key),
        origin(start),
        counted(counted_),
        parameters(all),
        w_out(*out),
        total(*n),
        only(only_) {}

  ffi::Error check() {
    Operand o;
    if (only < -1 || only > 1) return invalid("only must be -1, 0 or 1");
    if (!is(w_in, ffi::DataType::F32) || !o.bind(batch, w_in.dimensions(), 2))
      return invalid("w must be float32 [rows, cols]");
    rows = axis(w_in, 2);
    cols = axis(w_in, 1);
    if (!is(w_out, ffi::DataType::F32) || axis(w_out, 2) != rows || axis(w_out, 1) != cols ||
        !is(total, ffi::DataType::S32) || !o.bind(batch, total.dimensions(), 2) || axis(total, 2) != rows ||
        axis(total, 1) != cols)
      return invalid("the results must be float32 and int32 [rows, cols]");
    if (!is(keys, ffi::DataType::U32) || !o.bind(batch, keys.dimensions(), 2) || axis(keys, 1) != 2)
      return invalid("keys must be uint32 [samples, 2]");
    samples = axis(keys, 2);
    if (!is(origin, ffi::DataType::U32) || !o.bind(batch, origin.dimensions(), 1) || axis(origin, 1) != 2)
      return invalid("origin must be uint32 [2]");
    if (counted) {
      if (!is(first, ffi::DataType::S32) || !o.bind(batch, first.dimensions(), 3) || axis(first, 1) != cols ||
          axis(first, 2) != rows || axis(first, 3) != samples)
        return invalid("counts must be int32 [samples, rows, cols]");
    } else {
      if (!is(first, ffi::DataType::U32) || !o.bind(batch, first.dimensions(), 3) || axis(first, 1) != rows ||
          axis(first, 3) != samples)
        return invalid("row_trains must be uint32 [samples, words, rows]");
      words = axis(first, 2);
      if (!is(second, ffi::DataType::U32) || !o.bind(batch, second.dimensions(), 3) || axis(second, 1) != cols ||
          axis(second, 2) != words || axis(second, 3) != samples)
        return invalid("col_trains must be uint32 [samples, words, cols]");
    }
    if (parameters.size() < 5 || parameters.size() > kMaxParameters)
      return invalid("a device has at least 5 parameters and at most " + std::to_string(kMaxParameters));
    CellParameter p;
    for (size_t k = 0; k < parameters.size(); ++k) {
      if (!bind_parameter(batch, *parameters.get<Buffer>(k), rows, cols, 0, &p))
        return invalid("parameter " + std::to_string(k) + " must be float32 [rows or 1, cols or 1]");
    }
    return ffi::Error::Success();
  }

  // The arrays behind one index of the outer batch axes; their parameters are written to `out`.
  PulseArguments at(int64_t outer, CellParameter* out) const {
    const auto input = [&](const Buffer& b, auto* data, int core) {
      Operand o;
      o.bind(batch, b.dimensions(), core);
      return o.at(data, outer);
    };
    PulseArguments a{};
    a.arrays = batch.arrays;
    a.rows = rows;
    a.cols = cols;
    a.samples = samples;
    a.words = words;
    a.w_in = input(w_in, static_cast<const float*>(w_in.typed_data<float>()), 2);
    a.w = input(w_out, w_out.typed_data<float>(), 2);
    a.pulses = input(total, total.typed_data<int32_t>(), 2);
    a.keys = input(keys, static_cast<const uint32_t*>(keys.typed_data<uint32_t>()), 2);
    a.origin = input(origin, static_cast<const uint32_t*>(origin.typed_data<uint32_t>()), 1);
    if (counted) {
      a.counts = input(first, static_cast<const int32_t*>(first.typed_data<int32_t>()), 3);
    } else {
      a.row_trains = input(first, static_cast<const uint32_t*>(first.typed_data<uint32_t>()), 3);
      a.col_trains = input(second, static_cast<const uint32_t*>(second.typed_data<uint32_t>()), 3);
    }
    a.only = only;
    a.n_parameters = static_cast<int64_t>(parameters.size());
    for (size_t k = 0; k < parameters.size(); ++k)
      bind_parameter(batch, *parameters.get<Buffer>(k), rows, cols, outer, out + k);
    return a;
  }
};

struct TrainCall {
  Batch batch;
  Buffer thresholds, slots, keys, line;
  Buffer out;
  int64_t samples = 0, lines = 0, words = 0;

  TrainCall(Buffer t, Buffer n, Buffer key, Buffer first, Result trains)
      : batch(trains->dimensions(), 3), thresholds(t), slots(n), keys(key), line(first), out(*trains) {}

  ffi::Error check() {
    Operand o;
    words = axis(out, 2);
    if (!is(thresholds, ffi::DataType::S32) || !o.bind(batch, thresholds.dimensions(), 2))
      return invalid("thresholds must be int32 [samples, lines]");
    samples = axis(thresholds, 2);
    lines = axis(thresholds, 1);
    if (!is(slots, ffi::DataType::S32) || !o.bind(batch, slots.dimensions(), 1) || axis(slots, 1) != samples)
      return invalid("slots must be int32 [samples]");
    if (!is(out, ffi::DataType::U32) || axis(out, 1) != lines || axis(out, 3) != samples)
      return invalid("the result must be uint32 [samples, words, lines]");
    if (!is(keys, ffi::DataType::U32) || !o.bind(batch, keys.dimensions(), 2) || axis(keys, 1) != 2 ||
        axis(keys, 2) != samples)
      return invalid("keys must be uint32 [samples, 2]");
    if (!is(line, ffi::DataType::U32) || !o.bind(batch, line.dimensions(), 0)) return invalid("line must be uint32");
    return ffi::Error::Success();
  }

  TrainArguments at(int64_t outer) const {
    Operand t, n, k, l, r;
    t.bind(batch, thresholds.dimensions(), 2);
    n.bind(batch, slots.dimensions(), 1);
    k.bind(batch, keys.dimensions(), 2);
    l.bind(batch, line.dimensions(), 0);
    r.bind(batch, out.dimensions(), 3);
    return {batch.arrays,
            samples,
            words,
            lines,
            t.at<const int32_t>(thresholds.typed_data<int32_t>(), outer),
            n.at<const int32_t>(slots.typed_data<int32_t>(), outer),
            k.at<const uint32_t>(keys.typed_data<uint32_t>(), outer),
            l.at<const uint32_t>(line.typed_data<uint32_t>(), outer),
            r.at(out.typed_data<uint32_t>(), outer)};
  }
};

struct ReadCall {
  Batch batch;
  Buffer g, v, std, key, origin;
  Buffer out;
  int64_t rows = 0, cols = 0;

  ReadCall(Buffer conductance, Buffer voltage, Buffer spread, Buffer words, Buffer first, Result i)
      : batch(i->dimensions(), 1), g(conductance), v(voltage), std(spread), key(words), origin(first), out(*i) {}

  ffi::Error check() {
    Operand o;
    CellParameter p;
    if (!is(g, ffi::DataType::F32) || !o.bind(batch, g.dimensions(), 2))
      return invalid("g must be float32 [rows, cols]");
    rows = axis(g, 2);
    cols = axis(g, 1);
    if (!is(v, ffi::DataType::F32) || !o.bind(batch, v.dimensions(), 1) || axis(v, 1) != rows)
      return invalid("v must be float32 [rows]");
    if (!is(out, ffi::DataType::F32) || axis(out, 1) != cols) return invalid("the result must be float32 [cols]");
    if (!bind_parameter(batch, std, rows, cols, 0, &p)) return invalid("std must be float32 [rows or 1, cols or 1]");
    if (!is(key, ffi::DataType::U32) || !o.bind(batch, key.dimensions(), 1) || axis(key, 1) != 2)
      return invalid("key must be uint32 [2]");
    if (!is(origin, ffi::DataType::U32) || !o.bind(batch, origin.dimensions(), 1) || axis(origin, 1) != 2)
      return invalid("origin must be uint32 [2]");
    return ffi::Error::Success();
  }

  ReadArguments at(int64_t outer) const {
    Operand og, ov, ok, oo, oi;
    og.bind(batch, g.dimensions(), 2);
    ov.bind(batch, v.dimensions(), 1);
    ok.bind(batch, key.dimensions(), 1);
    oo.bind(batch, origin.dimensions(), 1);
    oi.bind(batch, out.dimensions(), 1);
    CellParameter p;
    bind_parameter(batch, std, rows, cols, outer, &p);
    return {batch.arrays,
            rows,
            cols,
            og.at<const float>(g.typed_data<float>(), outer),
            ov.at<const float>(v.typed_data<float>(), outer),
            p,
            ok.at<const uint32_t>(key.typed_data<uint32_t>(), outer),
            oo.at<const uint32_t>(origin.typed_data<uint32_t>(), outer),
            oi.at(out.typed_data<float>(), outer)};
  }
};

}  // namespace xbar

#define XBAR_VISIBLE extern "C" __attribute__((visibility("default")))

// A handler under its own name, so that the loader finds it.
#define XBAR_HANDLER(symbol, function, binding, traits)                  \
  XBAR_VISIBLE XLA_FFI_Error* symbol(XLA_FFI_CallFrame* frame) {         \
    static auto* handler = binding.To(xbar::function, traits).release(); \
    return handler->Call(frame);                                         \
  }

#define XBAR_NO_TRAITS \
  std::initializer_list<xla::ffi::Traits> {}

// The calls on cells; `context` binds what its handlers take in front of the operands, `more` names further calls.
#define XBAR_LIBRARY(context, traits, platform, detail, more)                                                      \
  XBAR_HANDLER(xbar_coincidences, coincidences,                                                                    \
               context.Arg<xbar::Buffer>()                                                                         \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .RemainingArgs()                                                                                \
                   .Ret<xbar::Buffer>()                                                                            \
                   .Ret<xbar::Buffer>()                                                                            \
                   .Attr<std::string_view>("device")                                                               \
                   .Attr<int64_t>("only"),                                                                         \
               traits)                                                                                             \
  XBAR_HANDLER(xbar_pulses, pulses,                                                                                \
               context.Arg<xbar::Buffer>()                                                                         \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .RemainingArgs()                                                                                \
                   .Ret<xbar::Buffer>()                                                                            \
                   .Ret<xbar::Buffer>()                                                                            \
                   .Attr<std::string_view>("device"),                                                              \
               traits)                                                                                             \
  XBAR_HANDLER(                                                                                                    \
      xbar_trains, trains,                                                                                         \
      context.Arg<xbar::Buffer>().Arg<xbar::Buffer>().Arg<xbar::Buffer>().Arg<xbar::Buffer>().Ret<xbar::Buffer>(), \
      traits)                                                                                                      \
  XBAR_HANDLER(xbar_read, read,                                                                                    \
               context.Arg<xbar::Buffer>()                                                                         \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Arg<xbar::Buffer>()                                                                            \
                   .Ret<xbar::Buffer>(),                                                                           \
               traits)                                                                                             \
  XBAR_VISIBLE int xbar_ffi_major() { return XLA_FFI_API_MAJOR; }                                                  \
  XBAR_VISIBLE int xbar_ffi_minor() { return XLA_FFI_API_MINOR; }                                                  \
  XBAR_VISIBLE const char* xbar_platform() { return platform; }                                                    \
  XBAR_VISIBLE const char* xbar_detail() { return detail; }                                                        \
  XBAR_VISIBLE const char* xbar_devices() { return XBAR_DEVICE_NAMES; }                                            \
  XBAR_VISIBLE const char* xbar_targets() { return "xbar_coincidences xbar_pulses xbar_trains xbar_read" more; }
