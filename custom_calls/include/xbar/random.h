// Counter-based random numbers: threefry-2x32 with 20 rounds (Salmon et al., SC 2011), as in jax.random.
#pragma once

#include "xbar/math.h"

namespace xbar {
inline namespace XBAR_ISA {

template <int R, class U>
XBAR_FN void threefry_round(U& a, U& b) {
  a = a + b;
  b = (b << R) | (b >> (32 - R));
  b = b ^ a;
}

template <int A, int B, int C, int D, class U>
XBAR_FN void threefry_rounds(U& a, U& b) {
  threefry_round<A>(a, b);
  threefry_round<B>(a, b);
  threefry_round<C>(a, b);
  threefry_round<D>(a, b);
}

// Encrypts the counter (a, b) under the key (k0, k1), in place.
template <class U, class K>
XBAR_FN void threefry(K k0, K k1, U& a, U& b) {
  K k2 = k0 ^ k1 ^ 0x1bd11bdau;
  a = a + k0;
  b = b + k1;
  threefry_rounds<13, 15, 26, 6>(a, b);
  a = a + k1;
  b = b + k2 + 1u;
  threefry_rounds<17, 29, 16, 24>(a, b);
  a = a + k2;
  b = b + k0 + 2u;
  threefry_rounds<13, 15, 26, 6>(a, b);
  a = a + k0;
  b = b + k1 + 3u;
  threefry_rounds<17, 29, 16, 24>(a, b);
  a = a + k1;
  b = b + k2 + 4u;
  threefry_rounds<13, 15, 26, 6>(a, b);
  a = a + k2;
  b = b + k0 + 5u;
}

// Two independent standard normal numbers from two random words (Box and Muller, 1958): the radius is
// sqrt(-2 ln u), u of 24 bits inside (0, 1); the angle is 24 bits of a quarter turn and two of the quadrant.
template <class U, class F>
XBAR_FN void normal_pair(U a, U b, F* first, F* second) {
  F u = (to_float(as_int(a >> 8)) + 0.5f) * 5.9604644775390625e-8f;
  F radius = square_root(log(u) * -2.0f);
  F sin, cos;
  sincos_quarter(to_float(as_int((b & 0x3fffffffu) >> 6)) * 5.9604644775390625e-8f - 0.5f, &sin, &cos);
  U odd = (b >> 30) & 1u, upper = b >> 31;
  F x = select(odd != 0u, sin, cos), y = select(odd != 0u, cos, sin);
  // Quadrants 0..3: (c, s), (-s, c), (-c, -s), (s, -c).
  *first = radius * float_of(bits_of(x) ^ ((odd ^ upper) << 31));
  *second = radius * float_of(bits_of(y) ^ (upper << 31));
}

}  // namespace XBAR_ISA
}  // namespace xbar
