// A team of threads that work on one array together: the threads of a block on a GPU, one thread on the host.
//
// A kernel that synchronises is written as a sequence of passes over items. Every thread of the team runs the whole
// sequence, takes its share of each pass and waits for the others at its end; sums are the same for all of them, so
// that all take the same branches, and do not depend on timing.
#pragma once

#include <cstdint>

#include "xbar/random.h"

namespace xbar {

// `Crew` has: int rank, size; void wait() const; double total(double) const; double most(double) const. The last two
// combine a number of each thread into one for all.
template <class Crew>
struct Team : Crew {
  XBAR_FN explicit Team(const Crew& crew) : Crew(crew) {}

  // fn(k) for k in [0, n).
  template <class Fn>
  XBAR_FN void each(int n, const Fn& fn) const {
    for (int k = this->rank; k < n; k += this->size) fn(k);
    this->wait();
  }

  // fn(i, j) for every cell, neighbouring threads at neighbouring j.
  template <class Fn>
  XBAR_FN void each(int rows, int cols, const Fn& fn) const {
    walk(rows, cols, fn);
    this->wait();
  }

  template <class Fn>
  XBAR_FN double sum(int64_t n, const Fn& fn) const {
    double s = 0;
    for (int64_t k = this->rank; k < n; k += this->size) s += static_cast<double>(fn(k));
    return this->total(s);
  }

  template <class Fn>
  XBAR_FN double sum(int rows, int cols, const Fn& fn) const {
    double s = 0;
    walk(rows, cols, [&](int i, int j) { s += static_cast<double>(fn(i, j)); });
    return this->total(s);
  }

  // Largest magnitude of what fn gives; not a number if one is not.
  template <class Fn>
  XBAR_FN double largest(int n, const Fn& fn) const {
    double most = 0;
    for (int k = this->rank; k < n; k += this->size) most = larger(most, magnitude(static_cast<double>(fn(k))));
    return this->most(most);
  }

  template <class Fn>
  XBAR_FN double largest(int rows, int cols, const Fn& fn) const {
    double most = 0;
    walk(rows, cols, [&](int i, int j) { most = larger(most, magnitude(static_cast<double>(fn(i, j)))); });
    return this->most(most);
  }

  XBAR_FN static double magnitude(double x) { return x < 0 ? -x : x; }
  XBAR_FN static double larger(double a, double b) { return b > a || b != b ? b : a; }

 private:
  // The cells of this thread, without a division for each.
  template <class Fn>
  XBAR_FN void walk(int rows, int cols, const Fn& fn) const {
    const int down = this->size / cols, across = this->size % cols;
    int i = this->rank / cols, j = this->rank % cols;
    while (i < rows) {
      fn(i, j);
      i += down;
      j += across;
      if (j >= cols) {
        j -= cols;
        ++i;
      }
    }
  }
};

// Memory of two kinds, handed out piece by piece: the small fast one as long as it lasts. Without bases it only counts.
struct Places {
  char *fast, *slow;
  int64_t fast_size;
  int64_t fast_used = 0, slow_used = 0;

  XBAR_FN Places(char* fast_, int64_t fast_size_, char* slow_) : fast(fast_), slow(slow_), fast_size(fast_size_) {}

  template <class T>
  XBAR_FN T* take(int64_t n) {
    const int64_t bytes = (n * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    const bool fits = fast_used + bytes <= fast_size;
    int64_t& used = fits ? fast_used : slow_used;
    char* const base = fits ? fast : slow;
    T* const out = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += bytes;
    return out;
  }
};

}  // namespace xbar
