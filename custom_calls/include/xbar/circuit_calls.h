// Operands of the circuit calls, checked; shared by the CPU and the CUDA handlers.
#pragma once

#include <string>

#include "xbar/circuits.h"
#include "xbar/handlers.h"

namespace xbar {

// The arrays behind one index of the outer batch axes.
template <class T>
struct CellCurrentsBatch {
  CellCurrents<T> first;
  int64_t arrays;
  bool one_network;  // the arrays differ in right-hand side, guess and tolerance only
  // Strides from one array to the next.
  int64_t g, lines[2][4], c, q[2], start, tol, max_steps;
  const T* tols;
  const int32_t* steps;

  XBAR_FN CellCurrents<T> of(int64_t k) const {
    CellCurrents<T> a = first;
    a.g += k * g;
    advance(a.word, lines[0], k);
    advance(a.bit, lines[1], k);
    a.c += k * c;
    a.q_word += k * q[0];
    a.q_bit += k * q[1];
    if (a.start) a.start += k * start;
    a.tol = tols[k * tol];
    a.max_steps = steps[k * max_steps];
    a.i += k * a.rows * a.cols;
    a.phi_word += k * a.rows;
    a.phi_bit += k * a.cols;
    a.steps += k;
    a.residual += k;
    a.reached += k;
    return a;
  }
};

// Whether a buffer holds arrays of these axes (each of that length, or of 1 where `loose`).
inline bool holds(const Batch& batch, const Buffer& b, ffi::DataType type, std::initializer_list<int64_t> core,
                  bool loose = false) {
  Operand o;
  const int n = static_cast<int>(core.size());
  if (b.element_type() != type || !o.bind(batch, b.dimensions(), n)) return false;
  int k = n;
  for (const int64_t want : core) {
    const int64_t have = axis(b, k--);
    if (have != want && !(loose && have == 1)) return false;
  }
  return true;
}

// A bundle of lines as four operands.
struct BundleOperands {
  Buffer r, near, far, ends;
  bool flip;

  ffi::Error check(const Batch& batch, ffi::DataType real, int64_t nodes, int64_t lines, const char* side) const {
    if (!holds(batch, r, real, {nodes - 1, lines}, true) && !(nodes == 1 && axis(r, 2) <= 1))
      return invalid(std::string(side) + " lines: r must be [segments or 1, lines or 1]");
    if (!holds(batch, near, real, {lines}) || !holds(batch, far, real, {lines}))
      return invalid(std::string(side) + " lines: near and far must be [lines]");
    if (!holds(batch, ends, ffi::DataType::S32, {lines}))
      return invalid(std::string(side) + " lines: ends must be int32 [lines]");
    return ffi::Error::Success();
  }

  // `input(buffer, core, k)` gives the offset of the first array and notes the stride of operand k.
  template <class T, class Input>
  Bundle<T> bind(const Input& input) const {
    Bundle<T> b{};
    b.r = r.typed_data<T>() + input(r, 2, 0);
    b.across = axis(r, 1) == 1 ? 0 : 1;
    b.along = axis(r, 2) == 1 ? 0 : axis(r, 1);
    b.near = near.typed_data<T>() + input(near, 1, 1);
    b.far = far.typed_data<T>() + input(far, 1, 2);
    b.ends = ends.typed_data<int32_t>() + input(ends, 1, 3);
    b.flip = flip;
    return b;
  }
};

template <class T>
XBAR_FN void advance(Bundle<T>& b, const int64_t* stride, int64_t k) {
  b.r += k * stride[0];
  b.near += k * stride[1];
  b.far += k * stride[2];
  b.ends += k * stride[3];
}

struct CellCurrentsCall {
  Batch batch;
  Buffer g;
  BundleOperands word, bit;
  Buffer c, q[2], start, tol, max_steps;
  Buffer i, phi[2], steps, residual, reached;
  int64_t method, rows, cols;

  CellCurrentsCall(Buffer g_, Buffer r_word, Buffer near_word, Buffer far_word, Buffer ends_word, Buffer r_bit,
                   Buffer near_bit, Buffer far_bit, Buffer ends_bit, Buffer c_, Buffer q_word, Buffer q_bit,
                   Buffer start_, Buffer tol_, Buffer max_steps_, Result i_, Result phi_word, Result phi_bit,
                   Result steps_, Result residual_, Result reached_, int64_t word_flip, int64_t bit_flip,
                   int64_t method_)
      : batch(i_->dimensions(), 2),
        g(g_),
        word{r_word, near_word, far_word, ends_word, word_flip != 0},
        bit{r_bit, near_bit, far_bit, ends_bit, bit_flip != 0},
        c(c_),
        q{q_word, q_bit},
        start(start_),
        tol(tol_),
        max_steps(max_steps_),
        i(*i_),
        phi{*phi_word, *phi_bit},
        steps(*steps_),
        residual(*residual_),
        reached(*reached_),
        method(method_),
        rows(axis(i, 2)),
        cols(axis(i, 1)) {}

  ffi::Error check() const {
    const ffi::DataType real = i.element_type(), integer = ffi::DataType::S32;
    if (real != ffi::DataType::F32 && real != ffi::DataType::F64)
      return invalid("the currents must be float32 or float64");
    if (!holds(batch, g, real, {rows, cols})) return invalid("g must be [rows, cols] of the type of the currents");
    if (!holds(batch, c, real, {rows, cols})) return invalid("c must be [rows, cols] of the type of the currents");
    if (!holds(batch, start, real, {rows, cols}, true))
      return invalid("start must be [rows, cols], or [1, 1] for none");
    ffi::Error error = word.check(batch, real, cols, rows, "word");
    if (error.success()) error = bit.check(batch, real, rows, cols, "bit");
    if (error.failure()) return error;
    const int64_t lines[2] = {rows, cols};
    for (int s = 0; s < 2; ++s) {
      if (!holds(batch, q[s], real, {lines[s]}) || !holds(batch, phi[s], real, {lines[s]}))
        return invalid("q and phi must be [lines]");
    }
    if (!holds(batch, tol, real, {}) || !holds(batch, residual, real, {}) || !holds(batch, max_steps, integer, {}) ||
        !holds(batch, steps, integer, {}) || !holds(batch, reached, ffi::DataType::PRED, {}))
      return invalid("tol, max_steps and the status must be scalars");
    if (method < 0 || method > 2) return invalid("method must be 0, 1 or 2");
    return ffi::Error::Success();
  }

  template <class T>
  CellCurrentsBatch<T> at(int64_t outer) const {
    CellCurrentsBatch<T> out{};
    bool same = true;
    const auto input = [&](const Buffer& b, int core, int64_t* stride, bool network) {
      Operand o;
      o.bind(batch, b.dimensions(), core);
      *stride = o.axes > 0 ? o.strides[o.axes - 1] : 0;
      if (network) same &= *stride == 0;
      return o.offset(outer);
    };
    CellCurrents<T>& a = out.first;
    a.rows = rows;
    a.cols = cols;
    a.method = static_cast<Method>(method);
    a.g = g.typed_data<T>() + input(g, 2, &out.g, true);
    const auto lines = [&](int s) {
      return [&, s](const Buffer& b, int core, int k) { return input(b, core, &out.lines[s][k], true); };
    };
    a.word = word.bind<T>(lines(0));
    a.bit = bit.bind<T>(lines(1));
    a.c = c.typed_data<T>() + input(c, 2, &out.c, false);
    a.q_word = q[0].typed_data<T>() + input(q[0], 1, &out.q[0], false);
    a.q_bit = q[1].typed_data<T>() + input(q[1], 1, &out.q[1], false);
    const bool warm = axis(start, 2) == rows && axis(start, 1) == cols;
    const int64_t begin = input(start, 2, &out.start, false);
    a.start = warm ? start.typed_data<T>() + begin : nullptr;
    out.tols = tol.typed_data<T>() + input(tol, 0, &out.tol, false);
    out.steps = max_steps.typed_data<int32_t>() + input(max_steps, 0, &out.max_steps, false);
    const int64_t done = outer * batch.arrays;
    a.i = i.typed_data<T>() + done * rows * cols;
    a.phi_word = phi[0].typed_data<T>() + done * rows;
    a.phi_bit = phi[1].typed_data<T>() + done * cols;
    a.steps = steps.typed_data<int32_t>() + done;
    a.residual = residual.typed_data<T>() + done;
    a.reached = reached.typed_data<bool>() + done;
    out.arrays = batch.arrays;
    out.one_network = same;
    return out;
  }
};

// The effective conductance of every array of a batch.
struct EffectiveCall {
  Batch batch;
  Buffer g;
  BundleOperands across, down;
  Buffer out;
  int64_t rows, cols;

  EffectiveCall(Buffer g_, Buffer r_across, Buffer near_across, Buffer far_across, Buffer ends_across, Buffer r_down,
                Buffer near_down, Buffer far_down, Buffer ends_down, Result g_eff, int64_t across_flip,
                int64_t down_flip)
      : batch(g_eff->dimensions(), 2),
        g(g_),
        across{r_across, near_across, far_across, ends_across, across_flip != 0},
        down{r_down, near_down, far_down, ends_down, down_flip != 0},
        out(*g_eff),
        rows(axis(out, 2)),
        cols(axis(out, 1)) {}

  ffi::Error check() const {
    const ffi::DataType real = out.element_type();
    if (real != ffi::DataType::F32 && real != ffi::DataType::F64)
      return invalid("the result must be float32 or float64");
    if (!holds(batch, g, real, {rows, cols})) return invalid("g must be [rows, cols] of the type of the result");
    const ffi::Error error = across.check(batch, real, cols, rows, "across:");
    return error.failure() ? error : down.check(batch, real, rows, cols, "down:");
  }

  // Of an operand like the result: the part that belongs to one array, or null where it does not fit.
  template <class T>
  const T* like_result(const Buffer& b, int64_t outer, int64_t array) const {
    Operand o;
    if (!holds(batch, b, out.element_type(), {rows, cols})) return nullptr;
    o.bind(batch, b.dimensions(), 2);
    return b.typed_data<T>() + o.offset(outer) + (o.axes > 0 ? array * o.strides[o.axes - 1] : 0);
  }

  template <class T>
  Effective<T> at(int64_t outer, int64_t array) const {
    const auto input = [&](const Buffer& b, int core, int) {
      Operand o;
      o.bind(batch, b.dimensions(), core);
      return o.offset(outer) + (o.axes > 0 ? array * o.strides[o.axes - 1] : 0);
    };
    return {rows,
            cols,
            g.typed_data<T>() + input(g, 2, 0),
            across.bind<T>(input),
            down.bind<T>(input),
            out.typed_data<T>() + (outer * batch.arrays + array) * rows * cols};
  }
};

#define XBAR_EFFECTIVE_TRANSPOSE_BINDING(context) \
  XBAR_ARGS5(XBAR_ARGS5(context)).Ret<xbar::Buffer>().Attr<int64_t>("across_flip").Attr<int64_t>("down_flip")
#define XBAR_EFFECTIVE_BINDING(context) \
  XBAR_ARGS5(context)                   \
      .Arg<xbar::Buffer>()              \
      .Arg<xbar::Buffer>()              \
      .Arg<xbar::Buffer>()              \
      .Arg<xbar::Buffer>()              \
      .Ret<xbar::Buffer>()              \
      .Attr<int64_t>("across_flip")     \
      .Attr<int64_t>("down_flip")
#define XBAR_DROPS_BINDING(context) \
  XBAR_ARGS5(context)               \
      .Arg<xbar::Buffer>()          \
      .Arg<xbar::Buffer>()          \
      .Arg<xbar::Buffer>()          \
      .Arg<xbar::Buffer>()          \
      .Ret<xbar::Buffer>()          \
      .Attr<int64_t>("word_flip")   \
      .Attr<int64_t>("bit_flip")
#define XBAR_CELL_CURRENTS_PARAMETERS                                                                             \
  Buffer g, Buffer r_word, Buffer near_word, Buffer far_word, Buffer ends_word, Buffer r_bit, Buffer near_bit,    \
      Buffer far_bit, Buffer ends_bit, Buffer c, Buffer q_word, Buffer q_bit, Buffer start, Buffer tol,           \
      Buffer max_steps, Result i, Result phi_word, Result phi_bit, Result steps, Result residual, Result reached, \
      int64_t word_flip, int64_t bit_flip, int64_t method
#define XBAR_CELL_CURRENTS_ARGUMENTS                                                                           \
  g, r_word, near_word, far_word, ends_word, r_bit, near_bit, far_bit, ends_bit, c, q_word, q_bit, start, tol, \
      max_steps, i, phi_word, phi_bit, steps, residual, reached, word_flip, bit_flip, method
#define XBAR_ARGS5(context) \
  context.Arg<xbar::Buffer>().Arg<xbar::Buffer>().Arg<xbar::Buffer>().Arg<xbar::Buffer>().Arg<xbar::Buffer>()
#define XBAR_CELL_CURRENTS_BINDING(context)   \
  XBAR_ARGS5(XBAR_ARGS5(XBAR_ARGS5(context))) \
      .Ret<xbar::Buffer>()                    \
      .Ret<xbar::Buffer>()                    \
      .Ret<xbar::Buffer>()                    \
      .Ret<xbar::Buffer>()                    \
      .Ret<xbar::Buffer>()                    \
      .Ret<xbar::Buffer>()                    \
      .Attr<int64_t>("word_flip")             \
      .Attr<int64_t>("bit_flip")              \
      .Attr<int64_t>("method")
#define XBAR_RUNNING_SUM_BINDING(context) context.Arg<xbar::Buffer>().Ret<xbar::Buffer>().Attr<int64_t>("reverse")

}  // namespace xbar
