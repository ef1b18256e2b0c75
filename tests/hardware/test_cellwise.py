"""What a device has for every cell, masks and spreads: it goes with the cells, however the matrix is cut."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.hardware.export import arrays

W = np.linspace(-1, 1, 20).reshape(5, 4).astype(np.float32)
ON = np.zeros((5, 4), bool)
ON[1, 2] = ON[4, 0] = True
STD = np.where(np.arange(20).reshape(5, 4) == 13, 3e-6, 0).astype(np.float32)


def whole(tile, g):
    """Conductances of the weights in the places of the matrix, from [down, across, rows, lines] of its arrays."""
    found = np.full(W.shape, np.nan)
    for one in arrays(tile):
        rows, cols = one.g_plus.shape
        # Spare rows lie above those of the matrix.
        found[one.inputs, one.col : one.col + cols] = g[one.place][-rows:, :cols]
    return found


@pytest.mark.parametrize(("rows", "cols"), [(256, 256), (3, 256), (4, 3)])
def test_masks_and_spreads_go_with_the_cells(rows, cols):
    key = jax.random.key(0)
    mapping = xb.mapping.Offset(g_min=1e-6, g_max=25e-6, per="fixed", w_max=1.0)
    hw = xb.Hardware(rows=rows, cols=cols, mapping=mapping)
    plain = xb.program(W, hw)
    references = plain.tiling.grid[1]
    wide = lambda a: np.concatenate([a, np.zeros((5, references), a.dtype)], axis=1)
    device = xb.devices.Gaussian(program_std=wide(STD), g_max=25e-6, stuck=xb.devices.Stuck(on=wide(ON)))
    tile = xb.program(W, hw.replace(device=device), key=key)
    found, meant = (whole(t, np.asarray(t.conductance(key=key))[0]) for t in (tile, plain))
    np.testing.assert_allclose(found[ON], 25e-6, rtol=1e-6)
    np.testing.assert_array_equal((np.abs(found - meant) > 1e-9) & ~ON, STD > 0)


def test_the_reference_has_a_place_of_its_own():
    key = jax.random.key(0)
    on = np.zeros((5, 5), bool)
    on[2, 4] = True
    device = xb.devices.Gaussian(g_max=25e-6, stuck=xb.devices.Stuck(on=on))
    hw = xb.Hardware(device=device, mapping=xb.mapping.Offset(g_min=1e-6, g_max=25e-6))
    g = np.asarray(xb.program(W, hw, key=key).conductance(key=key))[0, 0, 0]
    np.testing.assert_allclose(g[2, -1], 25e-6, rtol=1e-6)
    assert np.abs(np.delete(g[:, -1], 2) - 25e-6).min() > 1e-6


def test_cells_of_another_matrix_are_named():
    device = xb.devices.Gaussian(program_std=np.zeros((4, 4), np.float32))
    hw = xb.Hardware(device=device, mapping=xb.mapping.Offset())
    with pytest.raises(
        ValueError, match=r"hardware.device.program_std must be a number, \[5, 5\] for the cells .* got \[4, 4\]"
    ):
        xb.program(W, hw, key=jax.random.key(0))
