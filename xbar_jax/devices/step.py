"""What every pulsed device shares: its spread from cell to cell, its state, and pulses on it.

A pulsed device is described by the change of its weight in one pulse. A new one is a class with its own
parameters, :meth:`StepDevice.shape_parameters` and :meth:`StepDevice.step`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax import random
from xbar_jax.devices import kernels
from xbar_jax.devices.check import check_parameters
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, Float, Int, Key, Scalar

# Draws of the key given to init, one for each quantity that differs from cell to cell.
_DRAWS = {
    name: i
    for i, name in enumerate(
        ("dw_min", "up_down", "w_max", "w_min", "lifetime", "diffusion", "reset", "corrupt", "stuck", "reference",
         "gamma_up", "gamma_down")
    )
}  # fmt: skip
# Parts of the key given to a function that changes the state. No two uses of a key share one.
PULSES, LINES, WRITE, DIFFUSION, RESET, PLUS, MINUS, REFRESH = range(8)


@dataclass(kw_only=True)
class StepState:
    """State of an array of pulsed cells.

    Attributes:
      w: [rows, cols] hidden weight, that pulses move.
      offset: [rows, cols] what the weight reads more than ``w``: write noise, drawn anew when a cell is
        written, less the reference of a device that has one.
      cells: per-cell parameters, drawn by ``init``, each [rows, cols].
      pulses: [rows, cols] int32, pulses that each cell has got since ``init``.
    """

    w: Float[Array, "rows cols"]
    offset: Float[Array, "rows cols"]
    cells: dict[str, Float[Array, "rows cols"]]
    pulses: Int[Array, "rows cols"]


@dataclass(kw_only=True)
class StepDevice:
    """Parameters of all pulsed devices; each a scalar or [rows, cols], or [rows, 1] or [1, cols].

    ``init`` draws steps, bounds and rates into the state, so a state belongs to the device that made it; a device
    with other numbers needs a new one.

    Per cell, n a standard normal number of its own for each quantity, and every factor 1 + std n kept
    above 0.01 so that no bound or step changes sign:

        D = dw_min (1 + dw_min_dtod n)   or   dw_min exp(dw_min_dtod n),
        u = up_down + up_down_dtod n,    D_up = D (1 + u),    D_down = D (1 - u),
        b_up = w_max (1 + w_max_dtod n),    b_down = w_min (1 + w_min_dtod n),

    the larger of the two being the upper bound where spread makes them cross.

    Args:
      dw_min: mean size of one step, in units of the weight; also the granularity of pulsed updates.
      dw_min_dtod: its spread from device to device, relative.
      dw_min_std: its spread from cycle to cycle, relative.
      up_down: asymmetry (D_up - D_down)/(D_up + D_down).
      up_down_dtod: its spread from device to device, absolute.
      w_max, w_min: bounds of the weight.
      w_max_dtod, w_min_dtod: their spread from device to device, relative.
      lifetime: mini-batches after which a weight has decayed by a factor e; 0: no decay.
      decay_to: weight that decay tends to.
      diffusion: standard deviation that one mini-batch adds to a weight; 0: none.
      reset: weight after a reset.
      lifetime_dtod, diffusion_dtod: their spreads from device to device, relative.
      reset_dtod: its spread from device to device, absolute.
      reset_std: spread of a reset, absolute.
      write_noise_std: standard deviation of the weight that is read about the hidden one, in units of
        dw_min, drawn anew when a cell is written.
      corrupt_devices_prob: probability that a cell is stuck, at a weight uniform between its bounds.
      log_normal: static; the spread of dw_min is log-normal.

    Reference: Gokmen and Vlasov, Front. Neurosci. 10, 333 (2016); Rasch et al., AICAS 2021.
    """

    dw_min: Scalar = leaf(0.001)
    dw_min_dtod: Scalar = leaf(0.3)
    dw_min_std: Scalar = leaf(0.3)
    up_down: Scalar = leaf(0.0)
    up_down_dtod: Scalar = leaf(0.01)
    w_max: Scalar = leaf(0.6)
    w_min: Scalar = leaf(-0.6)
    w_max_dtod: Scalar = leaf(0.3)
    w_min_dtod: Scalar = leaf(0.3)
    lifetime: Scalar = leaf(0.0)
    lifetime_dtod: Scalar = leaf(0.0)
    decay_to: Scalar = leaf(0.0)
    diffusion: Scalar = leaf(0.0)
    diffusion_dtod: Scalar = leaf(0.0)
    reset: Scalar = leaf(0.0)
    reset_dtod: Scalar = leaf(0.0)
    reset_std: Scalar = leaf(0.01)
    write_noise_std: Scalar = leaf(0.0)
    corrupt_devices_prob: Scalar = leaf(0.0)
    log_normal: bool = static(False)

    # The native kernel (a header of this name in custom_calls/include/xbar/devices), or None.
    kernel: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class with a step of its own does not inherit the kernel of another step."""
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__ and "kernel" not in cls.__dict__:
            cls.kernel = None

    @classmethod
    def from_counts(cls, n_up: Scalar, n_down: Scalar, w_min: Scalar = -0.6, w_max: Scalar = 0.6, **others):
        """A device that needs exactly ``n_up`` constant steps from w_min to w_max, and ``n_down`` back.

        D_up = (w_max - w_min)/n_up and D_down = (w_max - w_min)/n_down, so dw_min is their mean and up_down
        (D_up - D_down)/(D_up + D_down). All spreads are 0 unless given; other parameters as in the constructor. The
        counts hold where the step does not depend on the weight.
        """
        if not is_traced(n_up, n_down) and not (np.all(np.asarray(n_up) > 0) and np.all(np.asarray(n_down) > 0)):
            raise ValueError(f"from_counts: n_up and n_down must be > 0, got {n_up} and {n_down}")
        up, down = (w_max - w_min) / n_up, (w_max - w_min) / n_down
        exact = dict.fromkeys(("dw_min_dtod", "dw_min_std", "up_down_dtod", "w_max_dtod", "w_min_dtod"), 0.0)
        return cls(
            dw_min=(up + down) / 2, up_down=(up - down) / (up + down), w_min=w_min, w_max=w_max, **(exact | others)
        )

    @property
    def granularity(self) -> Array:
        """The step that pulsed updates count in: dw_min, its mean where it is given for each cell."""
        return jnp.mean(jnp.asarray(self.dw_min, jnp.result_type(float)))

    # What one pulse does; a device overrides these.

    @staticmethod
    def step(w: Array, up: Array, noise: Array, p: tuple[Array, ...]) -> Array:
        """Weight after one pulse: up where ``up``, else down; ``noise`` standard normal; p the parameters."""
        raise TypeError("StepDevice is a base: use ConstantStep, LinearStep, SoftBounds, ...")

    def shape_parameters(self, state: StepState) -> tuple[Any, ...]:
        """Parameters of :meth:`step` behind the common five, scalars or [rows, cols]."""
        return ()

    def parameters(self, state: StepState) -> tuple[Float[Array, "..."], ...]:
        """All parameters of :meth:`step`, each [rows or 1, cols or 1]: D_up, D_down, b_up, b_down, std, shape."""
        c = state.cells
        common = (c["step_up"], c["step_down"], c["upper"], c["lower"], self.dw_min_std)
        return tuple(cellwise(x, state.w) for x in (*common, *self.shape_parameters(state)))

    # State.

    def init(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""],
        w: Float[Array, "rows cols"] | None = None,
        row: Scalar = 0,
        col: Scalar = 0,
        dtype: Any = jnp.float32,
    ) -> StepState:
        """Draws the spread from device to device.

        Steps, bounds and rates are drawn into the state here. A device whose numbers are changed needs a state of its
        own: sweep and differentiate with ``init`` inside.

        Args:
          shape: (rows, cols).
          key: typed key.
          w: initial weights, clipped to the bounds of each cell; 0 if None.
          row, col: global index of the array's first cell, by which its spread is indexed.
          dtype: of the state.

        Returns:
          A state whose weights lie inside the bounds of their cells.
        """
        if np.ndim(shape) != 1 or len(shape) != 2 or min(shape) < 1:
            raise ValueError(f"init: shape must be (rows, cols) with at least one cell, got {shape}")
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"init: dtype must be floating point, got {dtype}")
        random.check_one_key("init", key)
        check_parameters(self, (shape[0], shape[1]))
        index = random.array_index(tuple(shape), row, col)
        draw = lambda name: random.cell_normal(key, *index, _DRAWS[name], dtype)
        number = lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), shape)
        spread = lambda name, s: number(getattr(self, name)) * positive_factor(number(s), draw(name))

        if self.log_normal:
            size = number(self.dw_min) * jnp.exp(number(self.dw_min_dtod) * draw("dw_min"))
        else:
            size = spread("dw_min", self.dw_min_dtod)
        u = jnp.clip(number(self.up_down) + number(self.up_down_dtod) * draw("up_down"), -1, 1)
        bounds = spread("w_max", self.w_max_dtod), spread("w_min", self.w_min_dtod)
        cells = {
            "step_up": size * (1 + u),
            "step_down": size * (1 - u),
            "upper": jnp.maximum(*bounds),
            "lower": jnp.minimum(*bounds),
            "lifetime": spread("lifetime", self.lifetime_dtod),
            "diffusion": spread("diffusion", self.diffusion_dtod),
            "reset": number(self.reset) + number(self.reset_dtod) * draw("reset"),
        }
        uniform = lambda name: (
            (random.cell_bits(key, *index, _DRAWS[name]) >> 8).astype(jnp.float32) * jnp.float32(2**-24)
        )
        stuck = uniform("corrupt") < jnp.asarray(self.corrupt_devices_prob, jnp.float32)
        at = cells["lower"] + uniform("stuck").astype(dtype) * (cells["upper"] - cells["lower"])
        for name, value in {"step_up": 0.0, "step_down": 0.0, "upper": at, "lower": at}.items():
            cells[name] = jnp.where(stuck, jnp.asarray(value, dtype), cells[name])
        zero = jnp.zeros(shape, dtype)
        state = StepState(
            w=zero, offset=zero, cells=cells | self.more_cells(cells, draw), pulses=jnp.zeros(shape, jnp.int32)
        )
        state = state.replace(offset=self.fixed_offset(state))
        return self.set_weight(state, zero if w is None else w)

    def more_cells(self, cells: dict[str, Array], draw: Any) -> dict[str, Array]:
        """Further per-cell parameters; ``draw(name)`` gives each cell's own standard normal number."""
        return {}

    def fixed_offset(self, state: StepState) -> Float[Array, "rows cols"]:
        """What the weight reads more than the hidden one, apart from write noise."""
        return jnp.zeros_like(state.w)

    def weight(self, state: StepState) -> Float[Array, "rows cols"]:
        """The weight as it is read."""
        return state.w + state.offset

    def weight_range(self, state: StepState) -> tuple[Array, Array]:
        """Bounds of each cell's weight, write noise apart: ([rows, cols], [rows, cols])."""
        fixed = self.fixed_offset(state)
        return state.cells["lower"] + fixed, state.cells["upper"] + fixed

    def set_weight(self, state: StepState, w: Float[Array, "rows cols"]) -> StepState:
        """Sets the weights exactly, clipped to the bounds of each cell; no write noise is left."""
        if jnp.shape(w) not in ((), state.w.shape):
            raise ValueError(f"set_weight: w must be of shape {state.w.shape}, got {jnp.shape(w)}")
        fixed = self.fixed_offset(state)
        hidden = jnp.asarray(w, state.w.dtype) - fixed
        return state.replace(w=jnp.clip(hidden, state.cells["lower"], state.cells["upper"]), offset=fixed)

    # Changes.

    def pulse(
        self,
        state: StepState,
        n: Int[Array, "rows cols"],
        *,
        key: Key[Array, ""],
        row: Scalar = 0,
        col: Scalar = 0,
        max_pulses: int | None = None,
    ) -> StepState:
        """Applies ``n`` pulses to each cell, up where positive, down where negative.

        Args:
          state: of the array.
          n: integer [rows, cols], or one number for all cells.
          key: typed key of the cycle-to-cycle noise.
          row, col: global index of the array's first cell.
          max_pulses: static; at least the largest |n|. Needed for the reverse derivative alone, which sees no more
            than so many pulses of a cell where n is traced.

        Raises:
          TypeError: ``n`` is not of an integer type.
          ValueError: ``n`` has another shape than the state, or a concrete |n| exceeds ``max_pulses``.
        """
        random.check_one_key("pulse", key)
        n = jnp.asarray(n)
        if not jnp.issubdtype(n.dtype, jnp.integer):
            raise TypeError(f"pulse: n must be of an integer type, got {n.dtype}")
        if n.shape not in ((), state.w.shape):
            raise ValueError(f"pulse: n must be of shape {state.w.shape}, got {n.shape}")
        if max_pulses is not None and not is_traced(n) and np.abs(n).max(initial=0) > max_pulses:
            raise ValueError(
                f"pulse: max_pulses must be at least the largest |n|, got {max_pulses} < {np.abs(n).max()}"
            )
        n = jnp.broadcast_to(n.astype(jnp.int32), state.w.shape)
        return self.apply_counts(state, n[None], key=key, row=row, col=col, max_pulses=max_pulses)

    def apply_counts(self, state, counts, *, key, row=0, col=0, max_pulses=None) -> StepState:
        """Applies counts [samples, rows, cols] one sample after another."""
        keys, origin = sample_keys(key, counts.shape[0]), origin_of(row, col)
        w, n = kernels.pulses(
            state.w, counts, keys, origin, *self.parameters(state), device=type(self), _limit=max_pulses
        )
        return self.written(state, w, n, key=key, row=row, col=col)

    def apply_trains(self, state, row_trains, col_trains, *, key, row=0, col=0, only=0) -> StepState:
        """Applies the coincidences of trains, one sample after another; ``only`` as in the kernel."""
        keys, origin = sample_keys(key, row_trains.shape[0]), origin_of(row, col)
        w, n = kernels.coincidences(
            state.w, row_trains, col_trains, keys, origin, *self.parameters(state), device=type(self), only=only
        )
        return self.written(state, w, n, key=key, row=row, col=col)

    def written(self, state, w, n, *, key, row=0, col=0) -> StepState:
        """The state after ``n`` pulses have left the hidden weights ``w``: write noise drawn where n > 0."""
        index = random.array_index(w.shape, row, col)
        std = cellwise(self.write_noise_std, w) * cellwise(self.dw_min, w)

        def noisy(offset):
            noise = random.cell_normal(jax.random.fold_in(key, WRITE), *index, 0, w.dtype)
            return jnp.where(n > 0, self.fixed_offset(state) + std * noise, offset)

        offset = jax.lax.cond(jnp.any(std != 0), noisy, lambda offset: offset, state.offset)
        return state.replace(w=w, offset=offset, pulses=state.pulses + n)

    def relax(self, state: StepState, *, key: Key[Array, ""], row: Scalar = 0, col: Scalar = 0) -> StepState:
        """What one mini-batch of time does: w <- (w - b)(1 - 1/lifetime) + b, then w <- w + diffusion n, in bounds.

        b is ``decay_to``. :func:`xbar_jax.pulsed_update` calls it once.
        """
        lower, upper = state.cells["lower"], state.cells["upper"]

        def decay(w):
            life = state.cells["lifetime"]
            keep = jnp.maximum(1 - 1 / jnp.where(life > 0, life, 1), 0)
            b = cellwise(self.decay_to, w)
            return jnp.where(life > 0, jnp.clip((w - b) * keep + b, lower, upper), w)

        def diffuse(w):
            index = random.array_index(w.shape, row, col)
            noise = random.cell_normal(jax.random.fold_in(key, DIFFUSION), *index, 0, w.dtype)
            return jnp.clip(w + state.cells["diffusion"] * noise, lower, upper)

        # What is off costs nothing, unless vmap runs over the very number that turns it on.
        w = jax.lax.cond(jnp.any(jnp.asarray(self.lifetime) != 0), decay, lambda w: w, state.w)
        w = jax.lax.cond(jnp.any(jnp.asarray(self.diffusion) != 0), diffuse, lambda w: w, w)
        return state.replace(w=w)

    def reset_cells(
        self, state: StepState, where: Any = True, *, key: Key[Array, ""], row: Scalar = 0, col: Scalar = 0
    ) -> StepState:
        """Resets the cells ``where`` holds to ``reset`` + reset_std n, inside their bounds."""
        index = random.array_index(state.w.shape, row, col)
        noise = random.cell_normal(jax.random.fold_in(key, RESET), *index, 0, state.w.dtype)
        w = state.cells["reset"] + cellwise(self.reset_std, state.w) * noise
        w = jnp.clip(w, state.cells["lower"], state.cells["upper"])
        where = jnp.broadcast_to(where, w.shape)
        return state.replace(
            w=jnp.where(where, w, state.w), offset=jnp.where(where, self.fixed_offset(state), state.offset)
        )

    def next_step(self, state: StepState, up: Array) -> Float[Array, "rows cols"]:
        """|dw| of the next pulse without noise, up where ``up`` holds."""
        return jnp.abs(self.step(state.w, up, jnp.zeros_like(state.w), self.parameters(state)) - state.w)

    def surrogate(self, state: StepState, change: Float[Array, "rows cols"], up: Array | None = None) -> StepState:
        """``state``, whose weight also has the derivative slope * d(change).

        slope is |dw| of one noise-free pulse in the direction of ``change``, over the granularity: as if each
        pulse in expectation moved the cell by its local step. Costs nothing unless it is differentiated. ``up``
        fixes the direction in which the slope is taken.
        """
        slope = self.next_step(state, change > 0 if up is None else up) / self.granularity.astype(state.w.dtype)
        return state.replace(w=with_slope(state.w, slope, change.astype(state.w.dtype)))


def over_range(state: StepState, x: Any) -> Float[Array, "rows cols"]:
    """x / (b_up - b_down) of each cell; 0 where a cell is stuck and has no range."""
    width = state.cells["upper"] - state.cells["lower"]
    return jnp.where(width > 0, jnp.asarray(x, width.dtype) / jnp.where(width > 0, width, 1), 0)


@jax.custom_jvp
def with_slope(w: Array, slope: Array, change: Array) -> Array:
    return w


@with_slope.defjvp
def _(primals, tangents):
    (w, slope, _), (dw, _, dchange) = primals, tangents
    return w, dw + slope * dchange


def bounded_step(w: Array, up: Array, noise: Array, y: Array, spread_of: Array, p: tuple[Array, ...]) -> Array:
    """w + s D (y + std n spread_of) inside the bounds: s the sign of the pulse, D the step of its direction."""
    size = jnp.where(up, p[0], -p[1])
    return jnp.clip(w + size * (y + p[4] * noise * spread_of), p[3], p[2])


def sample_keys(key: Key[Array, ""], samples: int) -> Int[Array, "samples 2"]:
    """Words of the noise key of each sample."""
    folded = jax.random.fold_in(key, PULSES)
    return random.key_words(jax.vmap(lambda s: jax.random.fold_in(folded, s))(jnp.arange(samples)))


def origin_of(row: Scalar, col: Scalar) -> Int[Array, " 2"]:
    """Global index of an array's first cell as the kernels take it."""
    return jnp.stack([jnp.asarray(row, jnp.uint32), jnp.asarray(col, jnp.uint32)])


def positive_factor(std: Array, n: Array) -> Array:
    """1 + std n, kept above 0.01."""
    return jnp.maximum(1 + std * n, jnp.asarray(0.01, n.dtype))


def cellwise(x: Any, like: Array) -> Array:
    """``x`` as [rows or 1, cols or 1] of the dtype of the state."""
    x = jnp.asarray(x, like.dtype)
    if x.ndim == 0:
        return x.reshape(1, 1)
    if x.ndim != 2 or any(s not in (1, full) for s, full in zip(x.shape, like.shape, strict=True)):
        raise ValueError(f"a parameter must be a scalar or of shape {like.shape}, got {x.shape}")
    return x
