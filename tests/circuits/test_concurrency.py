"""Many independent solves in one program finish: no kernel waits for another's threads."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb


@pytest.mark.timeout(240)
def test_forty_solves_and_effective_conductances_in_one_program():
    rng = np.random.default_rng(0)
    sets = [jnp.asarray(rng.uniform(1e-5, 1e-3, (2, 16, 12)), jnp.float32) for _ in range(40)]
    v = jnp.asarray(rng.uniform(0, 1, 16), jnp.float32)
    # a lead per line takes the general solve at the end, the one place with a LAPACK call
    wires = xb.Wires(r_word=5.0, r_bit=5.0, r_bottom=jnp.full(12, 3.0, jnp.float32))

    @jax.jit
    def program(sets):
        solved = [jax.vmap(lambda g: xb.solve(g, wires, left=v).i_bottom)(g) for g in sets]
        effective = [v @ jax.vmap(lambda g: xb.effective_conductance(g, wires))(g) for g in sets]
        return jnp.stack(solved), jnp.stack(effective)

    for _ in range(10):
        solved, effective = jax.block_until_ready(program(sets))
    np.testing.assert_allclose(solved, effective, rtol=0, atol=2e-5 * float(jnp.abs(solved).max()))
