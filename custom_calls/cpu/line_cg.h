// Cell currents on a CPU: conjugate gradients on the bit-line drops, all lines solved exactly, and for arrays whose
// wires weigh much a coarse correction with the smooth modes of the array. See xbar_jax/circuits/network.py.
//
// Everything is counted from the near terminals. Vectors over cells are row-major with padded rows; word lines are
// worked on in blocks of as many as a register is wide, transposed on the way in and out. An iteration is two passes:
// one over blocks of word lines, one over ranges of bit lines; both run in parallel for a large array. The pieces do
// not depend on the number of threads, so that neither does the result.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "lines.h"

namespace xbar {
inline namespace XBAR_ISA {

constexpr double kProgress = 0.9;            // a refinement that gains less has stalled
constexpr int kStalls = 2;                   // so many in a row: rounding is reached
constexpr double kRounding = 16.0;           // eps of the largest source current: what rounding allows
constexpr int64_t kParallelCells = 1 << 15;  // cells from which one solve uses several threads
constexpr double kTwoLevelFrom = 100.0;      // N^2 r g from which the coarse correction pays
constexpr double kModesBelow = 2.0;          // modes with a wire conductance below this many mean conductances

// One array with its lines factored; shared by every right-hand side.
template <class T>
struct Array {
  static constexpr int w = kWidth<T>;
  const CellCurrents<T>* a = nullptr;
  int64_t rows, cols, ld, blocks;
  T *g = nullptr, *g_word = nullptr;  // [rows, ld]; blocked [blocks][cols][w], padded to [blocks][ld][w]
  Ladder<T> bit;
  Ladder<T>* words = nullptr;  // one for each block
  // Coarse space: modes of the mean word and bit line, and what the correction multiplies their product by.
  // Ohm's law is violated by g W_b times what Kirchhoff's law is: this much more, about, than the energy norm says.
  double amplification = 1.0;
  int64_t word_modes = 0, bit_modes = 0, word_pad = 0, most_word = 0, most_bit = 0;
  T *q_word = nullptr, *q_word_t = nullptr, *q_bit = nullptr, *gain = nullptr;

  static int64_t cap(int64_t n) { return std::min<int64_t>(n, std::max<int64_t>(32, n / 4)); }

  void plan(Arena& arena, const CellCurrents<T>& arguments, Ladder<T>* ladders) {
    a = &arguments;
    rows = a->rows;
    cols = a->cols;
    ld = padded<T>(cols);
    blocks = padded<T>(rows) / w;
    g = arena.take<T>(blocks * w * ld);
    g_word = arena.take<T>(blocks * ld * w);
    bit = Ladder<T>::make(arena, rows, ld, uniform(a->bit));
    words = ladders;
    for (int64_t b = 0; b < blocks; ++b) {
      const Ladder<T> f = Ladder<T>::make(arena, cols, w, uniform(a->word));
      if (arena.base) words[b] = f;
    }
    most_word = a->method == Method::kLines ? 0 : cap(cols);
    most_bit = a->method == Method::kLines ? 0 : cap(rows);
    q_word = arena.take<T>(ld * padded<T>(most_word));
    q_word_t = arena.take<T>(most_word * ld);
    q_bit = arena.take<T>(blocks * w * most_bit);
    gain = arena.take<T>(most_bit * padded<T>(most_word));
  }

  static bool uniform(const Bundle<T>& b) { return b.along == 0; }

  int64_t row(int64_t i) const { return a->bit.flip ? rows - 1 - i : i; }
  int64_t col(int64_t j) const { return a->word.flip ? cols - 1 - j : j; }

  // Copies [rows, cols] in; padding is 0.
  void load(const T* from, T* to) const {
    for (int64_t i = 0; i < blocks * w; ++i) {
      T* out = to + i * ld;
      if (i >= rows || !from) {
        std::memset(out, 0, sizeof(T) * ld);
        continue;
      }
      const T* in = from + row(i) * cols;
      if (a->word.flip) {
        for (int64_t j = 0; j < cols; ++j) out[j] = in[cols - 1 - j];
      } else {
        std::memcpy(out, in, sizeof(T) * cols);
      }
      for (int64_t j = cols; j < ld; ++j) out[j] = 0;
    }
  }

  void store(const T* from, T* to) const {
    for (int64_t i = 0; i < rows; ++i) {
      const T* in = from + i * ld;
      T* out = to + row(i) * cols;
      if (a->word.flip) {
        for (int64_t j = 0; j < cols; ++j) out[cols - 1 - j] = in[j];
      } else {
        std::memcpy(out, in, sizeof(T) * cols);
      }
    }
  }

  void factor() {
    load(a->g, g);
    bit.load(a->bit, 0, cols, cols, a->word.flip);
    bit.factor(g);
    // A ladder's divisions wait for each other: some blocks of word lines are factored in step.
    constexpr int64_t kInStep = 4;
    for (int64_t first = 0; first < blocks; first += kInStep) {
      const int64_t last = std::min(blocks, first + kInStep);
      const auto of = [&](int64_t b) { return g_word + b * ld * w; };
      for (int64_t b = first; b < last; ++b) {
        gather_lines(g + b * w * ld, ld, ld, of(b));
        words[b].load(a->word, b * w, std::min<int64_t>(w, rows - b * w), rows, a->bit.flip);
        words[b].begin(of(b));
      }
      for (int64_t k = cols - 2; k >= 0; --k)
        for (int64_t b = first; b < last; ++b) words[b].step(of(b), k);
      for (int64_t b = first; b < last; ++b) words[b].finish();
    }
    make_coarse();
  }

  // Angles of the lowest eigenvectors x_j = cos(theta j - phi) of a line with resistances near and far (in segments) at
  // its ends: theta (n - 1) - phi_near - phi_far = k pi with tan phi = (cos theta - 1 + 1 / near) / sin theta.
  static double phase(double theta, double conductance) {
    return std::atan2(std::cos(theta) - 1.0 + conductance, std::sin(theta));
  }

  struct Line {
    double r, near, far;  // mean segment, ohm; end conductances in units of 1 / r
  };

  Line mean_line(const Ladder<T>* set, int64_t count, int64_t lines) const {
    double r = 0, near = 0, far = 0;
    int64_t segments = 0, seen = 0;
    for (int64_t b = 0; b < count; ++b) {
      const Ladder<T>& f = set[b];
      for (int64_t l = 0; l < f.m && seen < lines; ++l, ++seen) {
        for (int64_t k = 0; k < (f.r_stride ? f.n - 1 : 1) && f.n > 1; ++k, ++segments)
          r += static_cast<double>(f.r[k * f.r_stride + l]);
        near += f.near_on[l] > 0 ? 1.0 / std::max(1e-6, static_cast<double>(f.near[l])) : 0.0;
        far += f.far_on[l] > 0 ? 1.0 / std::max(1e-6, static_cast<double>(f.far[l])) : 0.0;
      }
    }
    r = segments ? r / static_cast<double>(segments) : 0.0;
    return {r, r * near / static_cast<double>(lines), r * far / static_cast<double>(lines)};
  }

  // Modes of a line of n nodes with 2 - 2 cos theta < bound: angles and phases.
  static int64_t modes(const Line& line, int64_t n, double bound, int64_t most, double* theta, double* phi) {
    int64_t k = 0;
    for (; k < most && k < n; ++k) {
      double low = 0.0, high = M_PI;
      const auto excess = [&](double x) {
        return x * static_cast<double>(n - 1) - phase(x, line.near) - phase(x, line.far) -
               M_PI * static_cast<double>(k);
      };
      for (int turn = 0; turn < 45; ++turn) {
        const double middle = 0.5 * (low + high);
        (excess(middle) < 0 ? low : high) = middle;
      }
      theta[k] = 0.5 * (low + high);
      phi[k] = phase(theta[k], line.near);
      if (2.0 - 2.0 * std::cos(theta[k]) > bound) break;
    }
    return k;
  }

  void make_coarse() {
    word_modes = bit_modes = 0;
    double sum = 0;
    for (int64_t i = 0; i < rows; ++i) {
      Pack<T> part{};
      for (int64_t j = 0; j < ld; j += w) part += pack(g + i * ld + j);
      sum += sum_lanes<T>(part);
    }
    const double mean = sum / static_cast<double>(rows * cols);
    const Line across = mean_line(words, blocks, rows), down = mean_line(&bit, 1, cols);
    amplification = std::max(1.0, 0.5 * std::sqrt(mean * down.r) * static_cast<double>(rows));
    if (!std::isfinite(amplification)) amplification = 1.0;
    if (a->method == Method::kLines) return;
    const double weight =
        0.5 * mean * (across.r * static_cast<double>(cols * cols) + down.r * static_cast<double>(rows * rows));
    if (!(mean > 0) || !std::isfinite(weight) || (a->method == Method::kAuto && weight < kTwoLevelFrom)) return;
    if (!(across.r > 0 && down.r > 0)) return;  // the modes of a line without resistance are infinitely stiff
    constexpr int64_t kMost = 1024;
    double theta_w[kMost], phi_w[kMost], theta_b[kMost], phi_b[kMost];
    word_modes = modes(across, cols, kModesBelow * mean * across.r, std::min(most_word, kMost), theta_w, phi_w);
    bit_modes = modes(down, rows, kModesBelow * mean * down.r, std::min(most_bit, kMost), theta_b, phi_b);
    if (word_modes == 0 || bit_modes == 0) {
      word_modes = bit_modes = 0;
      return;
    }
    word_pad = padded<T>(word_modes);
    std::memset(q_word, 0, sizeof(T) * ld * word_pad);
    std::memset(q_word_t, 0, sizeof(T) * word_modes * ld);
    std::memset(q_bit, 0, sizeof(T) * blocks * w * bit_modes);
    std::memset(gain, 0, sizeof(T) * bit_modes * word_pad);
    fill(cols, word_modes, theta_w, phi_w, [&](int64_t j, int64_t k, double x) {
      q_word[j * word_pad + k] = static_cast<T>(x);
      q_word_t[k * ld + j] = static_cast<T>(x);
    });
    fill(rows, bit_modes, theta_b, phi_b,
         [&](int64_t i, int64_t k, double x) { q_bit[i * bit_modes + k] = static_cast<T>(x); });
    for (int64_t k = 0; k < bit_modes; ++k) {
      for (int64_t l = 0; l < word_modes; ++l) {
        const double beta = (2.0 - 2.0 * std::cos(theta_b[k])) / down.r,
                     alpha = (2.0 - 2.0 * std::cos(theta_w[l])) / across.r;
        const double lines = (beta + mean) / mean;
        gain[k * word_pad + l] =
            static_cast<T>(lines * lines * (1.0 / (beta + mean * alpha / (alpha + mean)) - 1.0 / (beta + mean)));
      }
    }
  }

  template <class Put>
  static void fill(int64_t n, int64_t count, const double* theta, const double* phi, const Put& put) {
    for (int64_t k = 0; k < count; ++k) {
      double norm = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double x = std::cos(theta[k] * static_cast<double>(j) - phi[k]);
        norm += x * x;
      }
      norm = 1.0 / std::sqrt(norm);
      for (int64_t j = 0; j < n; ++j) put(j, k, norm * std::cos(theta[k] * static_cast<double>(j) - phi[k]));
    }
  }
};

// The solve for one right-hand side.
template <class T>
struct LineCG {
  static constexpr int w = kWidth<T>;
  const Array<T>& array;
  const Parallel& parallel;
  int64_t rows, cols, ld, blocks, ranges, range, groups, group;
  T *c, *i, *miss, *b, *res, *p, *dp, *q, *z;                   // [rows, ld]
  T *q_word, *q_bit, *off_word, *off_bit, *phi_word, *phi_bit;  // floating lines: totals, what they miss, potentials
  T* buffer;                                                    // a block of word lines for each group: 2 [ld, w]
  T *coarse, *partial, *spread;  // [bit_modes, word_pad], one such for each group, [bit_modes, ld]
  T* projected;                  // for each group [w, word_pad]
  double* sums;                  // for each piece
  int64_t span;

  LineCG(const Array<T>& of, const Parallel& on) : array(of), parallel(on) {
    rows = of.rows;
    cols = of.cols;
    ld = of.ld;
    blocks = of.blocks;
    // Pieces of a pass. One if the array is small; else enough for several threads.
    const bool large = rows * cols >= kParallelCells;
    group = large ? std::max<int64_t>(1, (blocks + 15) / 16) : blocks;
    groups = (blocks + group - 1) / group;
    range = large ? std::max<int64_t>(w, padded<T>((ld + 3) / 4)) : ld;
    ranges = (ld + range - 1) / range;
    span = std::max(groups, ranges);
  }

  void plan(Arena& arena) {
    const int64_t cells = blocks * w * ld;
    for (T** v : {&c, &i, &miss, &b, &res, &p, &dp, &q, &z}) *v = arena.take<T>(cells);
    for (T** v : {&q_word, &off_word, &phi_word}) *v = arena.take<T>(blocks * w);
    for (T** v : {&q_bit, &off_bit, &phi_bit}) *v = arena.take<T>(ld);
    buffer = arena.take<T>(groups * 2 * ld * w);
    const int64_t pad = padded<T>(array.most_word);
    coarse = arena.take<T>(array.most_bit * pad);
    partial = arena.take<T>(groups * array.most_bit * pad);
    spread = arena.take<T>(array.most_bit * ld);
    projected = arena.take<T>(groups * w * pad);
    sums = arena.take<double>(3 * span);
  }

  bool two_level() const { return array.word_modes > 0; }

  double total(const double* x, int64_t n) const {
    double s = 0;
    for (int64_t k = 0; k < n; ++k) s += x[k];
    return s;
  }

  // body(block, buffers) for every block of word lines; returns the sum of what it returns.
  template <class Body>
  double over_blocks(const Body& body) {
    parallel(groups, [&](int64_t k) {
      double s = 0;
      T* mine = buffer + k * 2 * ld * w;
      for (int64_t blk = k * group; blk < std::min(blocks, (k + 1) * group); ++blk)
        s += body(blk, mine, mine + ld * w, k);
      sums[k] = s;
    });
    return total(sums, groups);
  }

  template <class Body>
  double over_ranges(const Body& body) {
    parallel(ranges, [&](int64_t k) { sums[k] = body(k * range, std::min(ld, (k + 1) * range)); });
    return total(sums, ranges);
  }

  // x [w rows of the block] <- A^-1 x, word lines; `y` is a second buffer. Both are [ld, w].
  void word_solve(int64_t blk, T* x, T* y) const {
    const Ladder<T>& f = array.words[blk];
    Pack<T> norton = pack(x + (cols - 1) * w);
    for (int64_t j = cols - 2; j >= 0; --j) {
      pack(y + j * w) = norton;  // of position j + 1
      norton = pack(x + j * w) + pack(f.t + j * w) * norton;
    }
    Pack<T> v = pack(f.z) * norton;
    pack(x) = v;
    for (int64_t j = 0; j + 1 < cols; ++j) {
      v = pack(f.t + j * w) * v + pack(f.s + j * w) * pack(y + j * w);
      pack(x + (j + 1) * w) = v;
    }
    for (int64_t j = cols; j < ld; ++j) pack(x + j * w) = Pack<T>{};
  }

  // rows of the block: out = sign(x) ... given as `put(row of the block, column, solved)`, a register at a time.
  template <class Put>
  void scatter(const T* x, const Put& put) const {
    for (int64_t j = 0; j < ld; j += w) {
      Pack<T> tile[w];
      for (int l = 0; l < w; ++l) tile[l] = pack(x + (j + l) * w);
      transpose_stage<T, 1>(tile);
      for (int l = 0; l < w; ++l) put(l, j, tile[l]);
    }
  }

  // z <- D^-1 (res + extra) on columns [l0, l1); returns res . z. `extra` may be null. With `alpha` first b += alpha p
  // and res -= alpha q, in the same sweep.
  double bit_solve(T alpha, const T* extra, int64_t l0, int64_t l1) {
    const Ladder<T>& f = array.bit;
    for (int64_t k = rows - 1; k >= 0; --k) {
      for (int64_t at = k * ld + l0; at < k * ld + l1; at += w) {
        Pack<T> r = pack(res + at);
        if (alpha != 0) {
          pack(b + at) += alpha * pack(p + at);
          r -= alpha * pack(q + at);
          pack(res + at) = r;
        }
        if (extra) r += pack(extra + at);
        pack(z + at) = k + 1 < rows ? r + pack(f.t + at) * pack(z + at + ld) : r;
      }
    }
    Pack<T> sum{};
    double out = 0;
    for (int64_t l = l0; l < l1; l += w) {
      pack(z + l) *= pack(f.z + l);
      sum += pack(z + l) * pack(res + l);
    }
    for (int64_t k = 1; k < rows; ++k) {
      for (int64_t at = k * ld + l0; at < k * ld + l1; at += w) {
        const int64_t before = at - ld;
        const Pack<T> v = pack(f.t + before) * pack(z + before) + pack(f.s + before) * pack(z + at);
        pack(z + at) = v;
        sum += v * pack(res + at);
      }
      if (sizeof(T) == 4 && k % 16 == 0) {
        out += sum_lanes<T>(sum);
        sum = Pack<T>{};
      }
    }
    return out + sum_lanes<T>(sum);
  }

  // z <- M^-1 res, after b += alpha p and res -= alpha q; returns res . z. Leaves D z - res in q where there is a
  // coarse space: with P = D^-1 g Q the correction is P gain P^T, so that D of it is g Q (...) and no wire is inverted.
  double precondition(T alpha) {
    const double lines = over_ranges([&](int64_t l0, int64_t l1) { return bit_solve(alpha, nullptr, l0, l1); });
    if (!two_level()) return lines;
    const int64_t mb = array.bit_modes, mw = array.word_modes, pad = array.word_pad;
    over_blocks([&](int64_t blk, T* x, T*, int64_t k) {
      T *mine = partial + k * mb * pad, *r = projected + k * w * pad;
      if (blk == k * group) std::memset(mine, 0, sizeof(T) * mb * pad);
      std::memset(r, 0, sizeof(T) * w * pad);
      const int64_t first = blk * w * ld;
      for (int64_t e = 0; e < w * ld; e += w) pack(x + e) = pack(array.g + first + e) * pack(z + first + e);
      multiply<T>(w, pad, cols, x, ld, 1, array.q_word, pad, r, pad, T(1));
      multiply<T>(mb, pad, w, array.q_bit + blk * w * mb, 1, mb, r, pad, mine, pad, T(1));
      return 0.0;
    });
    for (int64_t e = 0; e < mb * pad; ++e) {
      T x = 0;
      for (int64_t k = 0; k < groups; ++k) x += partial[k * mb * pad + e];
      coarse[e] = array.gain[e] * x;
    }
    std::memset(spread, 0, sizeof(T) * mb * ld);
    multiply<T>(mb, ld, mw, coarse, pad, 1, array.q_word_t, ld, spread, ld, T(1));
    return over_ranges([&](int64_t l0, int64_t l1) {
      for (int64_t k = 0; k < rows; ++k) std::memset(q + k * ld + l0, 0, sizeof(T) * (l1 - l0));
      multiply<T>(rows, l1 - l0, mb, array.q_bit, mb, 1, spread + l0, ld, q + l0, ld, T(1));
      for (int64_t k = 0; k < rows; ++k)
        for (int64_t at = k * ld + l0; at < k * ld + l1; at += w) pack(q + at) *= pack(array.g + at);
      return bit_solve(T(0), q, l0, l1);
    });
  }

  // x <- g A^-1 g x of a block, or g A^-1 x.
  void through_word(int64_t blk, T* x, T* y, bool twice) const {
    const T* gw = array.g_word + blk * ld * w;
    if (twice)
      for (int64_t j = 0; j < ld * w; j += w) pack(x + j) *= pack(gw + j);
    word_solve(blk, x, y);
    for (int64_t j = 0; j < ld * w; j += w) pack(x + j) *= pack(gw + j);
  }

  // p <- z + beta p, dp <- D z + beta dp, q <- S p = dp - g A^-1 g p; returns p . q.
  double direction(T beta) {
    return over_blocks([&](int64_t blk, T* x, T* y, int64_t) {
      const int64_t first = blk * w * ld;
      for (int64_t e = first; e < first + w * ld; e += w) {
        pack(p + e) = pack(z + e) + beta * pack(p + e);
        Pack<T> dz = pack(res + e);
        if (two_level()) dz += pack(q + e);
        pack(dp + e) = dz + beta * pack(dp + e);
      }
      gather_lines(p + first, ld, ld, x);
      through_word(blk, x, y, true);
      Pack<T> sum{};
      scatter(x, [&](int l, int64_t j, Pack<T> v) {
        const int64_t e = first + l * ld + j;
        const Pack<T> out = pack(dp + e) - v;
        pack(q + e) = out;
        sum += pack(p + e) * out;
      });
      return sum_lanes<T>(sum);
    });
  }

  // miss <- c - (I + g W) i; returns its largest magnitude, and that of i in `size`.
  T violation(T* size) {
    over_ranges([&](int64_t l0, int64_t l1) {
      array.bit.drops(i, z, l0, l1);
      if (!array.bit.floats) return 0.0;
      for (int64_t l = l0; l < l1; l += w) {
        Pack<T> sum{};
        for (int64_t k = 0; k < rows; ++k) {
          sum += pack(i + k * ld + l);
          pack(z + k * ld + l) += pack(phi_bit + l);
        }
        pack(off_bit + l) = pack(array.bit.loose + l) * (pack(q_bit + l) - sum);
      }
      return 0.0;
    });
    T* most = reinterpret_cast<T*>(sums + span);  // two for each group
    over_blocks([&](int64_t blk, T* x, T*, int64_t k) {
      const int64_t first = blk * w * ld;
      gather_lines(i + first, ld, ld, x);
      const Ladder<T>& f = array.words[blk];
      if (f.floats) {
        Pack<T> sum{};
        for (int64_t j = 0; j < cols; ++j) sum += pack(x + j * w);
        pack(off_word + blk * w) = pack(f.loose) * (pack(q_word + blk * w) - sum);
      }
      f.drops(x, x, 0, w);
      if (f.floats)
        for (int64_t j = 0; j < cols; ++j) pack(x + j * w) += pack(phi_word + blk * w);
      for (int64_t j = cols; j < ld; ++j) pack(x + j * w) = Pack<T>{};
      Pack<T> worst{}, large{};
      scatter(x, [&](int l, int64_t j, Pack<T> v) {
        const int64_t e = first + l * ld + j;
        const Pack<T> out = pack(c + e) - pack(i + e) - pack(array.g + e) * (v + pack(z + e));
        pack(miss + e) = out;
        worst = larger(worst, magnitude(out));
        large = larger(large, magnitude(pack(i + e)));
      });
      const bool fresh = blk == k * group;
      most[2 * k] = larger(fresh ? T(0) : most[2 * k], max_lanes<T>(worst));
      most[2 * k + 1] = larger(fresh ? T(0) : most[2 * k + 1], max_lanes<T>(large));
      return 0.0;
    });
    T worst = 0, large = 0;
    for (int64_t k = 0; k < groups; ++k) {
      worst = larger(worst, most[2 * k]);
      large = larger(large, most[2 * k + 1]);
    }
    for (int64_t k = 0; k < blocks * w; ++k) worst = larger(worst, magnitude(off_word[k]));
    for (int64_t k = 0; k < ld; ++k) worst = larger(worst, magnitude(off_bit[k]));
    *size = large;
    return worst;
  }

  // i += di with (I + g W) di = miss to a relative `reduction`; returns the iterations.
  int32_t correct(double reduction, int32_t most) {
    over_blocks([&](int64_t blk, T* x, T* y, int64_t) {
      const int64_t first = blk * w * ld;
      gather_lines(miss + first, ld, ld, x);
      pack(x) -= pack(off_word + blk * w);
      through_word(blk, x, y, false);
      scatter(x, [&](int l, int64_t j, Pack<T> v) {
        const int64_t e = first + l * ld + j;
        pack(res + e) = pack(miss + e) - v;
        pack(b + e) = pack(p + e) = pack(dp + e) = pack(z + e) = Pack<T>{};
      });
      return 0.0;
    });
    for (int64_t l = 0; l < ld; l += w) pack(res + l) -= pack(off_bit + l);
    double rz = precondition(T(0)), start = rz, beta = 0;
    int32_t k = 0;
    const double goal = reduction * reduction;
    while (rz > goal * start && k < most) {
      const double pq = direction(static_cast<T>(beta));
      ++k;
      if (!(pq > 0)) break;
      const double next = precondition(static_cast<T>(rz / pq));
      beta = next / rz;
      rz = next;
    }
    over_blocks([&](int64_t blk, T* x, T* y, int64_t) {
      const int64_t first = blk * w * ld;
      for (int64_t e = first; e < first + w * ld; e += w)
        pack(q + e) = pack(miss + e) - pack(array.g + e) * pack(b + e);
      gather_lines(q + first, ld, ld, x);
      pack(x) -= pack(off_word + blk * w);
      word_solve(blk, x, y);
      pack(phi_word + blk * w) += pack(array.words[blk].loose) * pack(x);
      const T* gw = array.g_word + blk * ld * w;
      for (int64_t j = 0; j < ld * w; j += w) pack(x + j) *= pack(gw + j);
      scatter(x, [&](int l, int64_t j, Pack<T> v) {
        const int64_t e = first + l * ld + j;
        pack(i + e) += pack(q + e) - v;
      });
      return 0.0;
    });
    for (int64_t l = 0; l < ld; l += w) pack(phi_bit + l) += pack(array.bit.loose + l) * pack(b + l);
    return k;
  }

  void solve(const CellCurrents<T>& a) {
    array.load(a.c, c);
    array.load(a.start, i);
    std::memset(z + rows * ld, 0, sizeof(T) * (blocks * w - rows) * ld);
    std::memset(q + rows * ld, 0, sizeof(T) * (blocks * w - rows) * ld);
    for (int64_t k = 0; k < blocks * w; ++k) {
      q_word[k] = k < rows ? a.q_word[array.row(k)] : T(0);
      off_word[k] = k < rows ? array.words[k / w].loose[k % w] * q_word[k] : T(0);
      phi_word[k] = 0;
    }
    for (int64_t k = 0; k < ld; ++k) {
      q_bit[k] = k < cols ? a.q_bit[array.col(k)] : T(0);
      off_bit[k] = k < cols ? array.bit.loose[k] * q_bit[k] : T(0);
      phi_bit[k] = 0;
    }
    T source = 0;
    for (int64_t k = 0; k < blocks * w; ++k) source = larger(source, magnitude(q_word[k]));
    for (int64_t k = 0; k < ld; ++k) source = larger(source, magnitude(q_bit[k]));
    for (int64_t e = 0; e < rows * ld; ++e) source = larger(source, magnitude(c[e]));
    T size = 0, worst = source, before = 0;
    if (a.start) {
      worst = violation(&size);
    } else {
      std::memcpy(miss, c, sizeof(T) * blocks * w * ld);
    }
    const T rounding = static_cast<T>(kRounding) * std::numeric_limits<T>::epsilon() * source;
    const auto goal = [&] { return a.tol * size + rounding; };
    int32_t steps = 0;
    // What a first pass leaves is smooth, and amplified by the square of that.
    const double smooth = 4.0 * array.amplification * array.amplification;
    double amplification = array.amplification;
    int stalled = 0;
    while (worst > goal() && stalled < kStalls && steps < a.max_steps) {
      // The size of i is not known before the first pass; the tolerance then stands for it.
      const double wanted =
          size > 0 ? static_cast<double>(goal()) / static_cast<double>(worst) : static_cast<double>(a.tol);
      const double reduction = std::clamp(0.3 * wanted / amplification, 4.0 * std::numeric_limits<T>::epsilon(), 1e-2);
      const int32_t used = correct(reduction, a.max_steps - steps);
      before = worst;
      worst = violation(&size);
      steps += used;
      const double seen = static_cast<double>(worst) / static_cast<double>(before) / reduction;
      amplification = std::max({amplification, smooth, seen});
      stalled = worst <= static_cast<T>(kProgress) * before ? 0 : stalled + 1;
    }
    array.store(i, a.i);
    for (int64_t k = 0; k < rows; ++k) a.phi_word[array.row(k)] = phi_word[k];
    for (int64_t k = 0; k < cols; ++k) a.phi_bit[array.col(k)] = phi_bit[k];
    *a.steps = steps;
    *a.residual = worst > 0 ? worst / (size > 0 ? size : T(1)) : worst;
    *a.reached = worst <= goal();
  }
};

// Bytes of scratch for the array and for one right-hand side.
template <class T>
inline void cell_currents_scratch(const CellCurrents<T>& a, int64_t* shared, int64_t* own) {
  Arena arena;
  Array<T> array;
  array.plan(arena, a, nullptr);
  *shared = arena.used + array.blocks * static_cast<int64_t>(sizeof(Ladder<T>)) + 256 +
            static_cast<int64_t>(sizeof(Array<T>));
  const Parallel serial{nullptr, nullptr};
  LineCG<T> cg(array, serial);
  Arena more;
  cg.plan(more);
  *own = more.used;
}

// Factors the lines of an array into `shared`.
template <class T>
inline void cell_currents_factor(const CellCurrents<T>& a, char* shared) {
  auto* array = new (shared) Array<T>;
  auto* ladders = reinterpret_cast<Ladder<T>*>(shared + (sizeof(Array<T>) + 63) / 64 * 64);
  const int64_t blocks = padded<T>(a.rows) / kWidth<T>;
  Arena arena{reinterpret_cast<char*>(ladders), 0};
  arena.take<Ladder<T>>(blocks);
  array->plan(arena, a, ladders);
  array->factor();
}

// Solves for one right-hand side with the factors in `shared`.
template <class T>
inline void cell_currents_solve(const CellCurrents<T>& a, const char* shared, char* own, const Parallel& parallel) {
  LineCG<T> cg(*reinterpret_cast<const Array<T>*>(shared), parallel);
  Arena arena{own, 0};
  cg.plan(arena);
  cg.solve(a);
}

}  // namespace XBAR_ISA
}  // namespace xbar
