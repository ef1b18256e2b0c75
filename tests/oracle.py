"""An independent solver: the node equations of Chen (2013), dense, float64, numpy. Shares no code with the package."""

from __future__ import annotations

import numpy as np


def nodal(
    g,
    r_word,
    r_bit,
    *,
    left=None,
    right=None,
    top=None,
    bottom=0.0,
    r_left=None,
    r_right=None,
    r_top=None,
    r_bottom=None,
):
    """Node voltages and terminal currents of one array; every resistance positive, and finite but for open ends.

    ``r_word`` and ``r_bit`` may hold a number for each segment, a terminal resistance one for each line.

    Returns:
      dict with i_left, i_right [rows], i_top, i_bottom [cols], v_word, v_bit [rows, cols].
    """
    g = np.asarray(g, float)
    m, n = g.shape
    r_word, r_bit = np.broadcast_to(r_word, (m, n - 1)), np.broadcast_to(r_bit, (m - 1, n))
    conductance = lambda r, v: 0.0 if v is None else 1.0 / np.asarray(r, float)
    a, b = conductance(r_word[:, 0] if r_left is None else r_left, left), conductance(r_right, right)
    c, d = conductance(r_top, top), conductance(r_bit[-1] if r_bottom is None else r_bottom, bottom)
    a, b, c, d = (np.broadcast_to(x, (k,)) for x, k in ((a, m), (b, m), (c, n), (d, n)))
    volt = lambda v, k: np.broadcast_to(0.0 if v is None else v, (k,)).astype(float)
    p, q, r, s = volt(left, m), volt(right, m), volt(top, n), volt(bottom, n)
    k = np.zeros((2 * m * n, 2 * m * n))
    rhs = np.zeros(2 * m * n)
    u = lambda i, j: i * n + j
    v = lambda i, j: m * n + i * n + j

    def join(x, y, conductance):
        k[x, x] += conductance
        k[y, y] += conductance
        k[x, y] -= conductance
        k[y, x] -= conductance

    def source(x, conductance, voltage):
        k[x, x] += conductance
        rhs[x] += conductance * voltage

    for i in range(m):
        for j in range(n):
            join(u(i, j), v(i, j), g[i, j])
            if j + 1 < n:
                join(u(i, j), u(i, j + 1), 1 / r_word[i, j])
            if i + 1 < m:
                join(v(i, j), v(i + 1, j), 1 / r_bit[i, j])
        source(u(i, 0), a[i], p[i])
        source(u(i, n - 1), b[i], q[i])
    for j in range(n):
        source(v(0, j), c[j], r[j])
        source(v(m - 1, j), d[j], s[j])
    x = np.linalg.solve(k, rhs)
    vw, vb = x[: m * n].reshape(m, n), x[m * n :].reshape(m, n)
    return {
        "i_left": a * (p - vw[:, 0]),
        "i_right": b * (vw[:, -1] - q),
        "i_top": c * (r - vb[0]),
        "i_bottom": d * (vb[-1] - s),
        "v_word": vw,
        "v_bit": vb,
    }


def array(rows, cols, seed=0, low=1e3, high=1e5):
    """Conductances, log-uniform in resistance, and drives."""
    rng = np.random.default_rng(seed)
    return 1 / np.exp(rng.uniform(np.log(low), np.log(high), (rows, cols))), rng.uniform(-1, 1, rows)
