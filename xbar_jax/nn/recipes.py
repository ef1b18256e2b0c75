"""Hardware-aware training as small functions over optax: clipped kernels, frozen constants, learnt ranges, distillation.

They compose as optax does. A typical optimiser of a model with analog layers:

    tx = optax.chain(decay_ranges(0.01), optax.adamw(1e-3), clip_kernels(model, sigmas=2.5))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from xbar_jax.hardware import MovingStd
from xbar_jax.hardware.ranges import RangeState, Tracker
from xbar_jax.nn.model import analog_layers
from xbar_jax.nn.noise import check_per
from xbar_jax.typing import Array, ArrayLike, Float, Int, Scalar


def path_of(path: Sequence[Any]) -> str:
    """The place of a leaf, "hidden/kernel"; the array within a Variable has the name of the Variable."""
    names = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
    return "/".join(names[:-1] if names and names[-1] == "value" else names)


def clip_kernels(model: nnx.Module, *, sigmas: float = 2.5, per: str = "layer") -> optax.GradientTransformation:
    """Keeps the kernels of analog layers within so many standard deviations; the last part of an optimiser.

        w <- clip(w + u, -s, s),    s = sigmas std(w + u)

    Large weights set the scale of all others of their array, so a layer without outliers uses its cells better. A kernel
    without spread is left alone, and so is every other parameter.

    Args:
      model: whose analog layers count, by path; the parameters must be those of ``nnx.state(model, ...)``.
      sigmas: standard deviations, > 0; 2 to 2.5 is usual.
      per: "layer", or "channel": over what the deviation runs, the matrix or each of its outputs.

    Raises:
      ValueError: ``sigmas`` is not positive, ``per`` is unknown, or the model has no analog layers.

    Example:
      >>> import optax, xbar_jax as xb
      >>> from flax import nnx
      >>> model = xb.nn.AnalogLinear(4, 2, hardware=xb.Hardware(), rngs=nnx.Rngs(0))
      >>> tx = optax.chain(optax.sgd(0.1), xb.nn.recipes.clip_kernels(model, sigmas=2.0))
      >>> optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    Reference:
      V. Joshi et al., Nat. Commun. 11, 2473 (2020).
    """
    check_per("clip_kernels", per)
    if not sigmas > 0:
        raise ValueError(f"clip_kernels: sigmas must be > 0, got {sigmas}")
    layouts = {f"{path}/kernel".lstrip("/"): getattr(layer, "layout", None) for path, layer in analog_layers(model)}
    if not layouts:
        raise ValueError("clip_kernels: model must have analog layers, got none")

    def clipped(path, u, p):
        name = path_of(path)
        return _clipped(p + u, sigmas, per, layouts[name]) - p if name in layouts else u

    def update(updates, state, params=None):
        if params is None:
            raise ValueError("clip_kernels: params must be given to update, got None")
        return jax.tree_util.tree_map_with_path(clipped, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _clipped(w: Array, sigmas: float, per: str, layout: Any) -> Array:
    matrix = w if layout is None else layout.matrix(w)
    axes = tuple(range(matrix.ndim)) if per == "layer" else (-2,)
    std = matrix.std(axes, keepdims=True)
    # Equal weights have a deviation of some rounding errors.
    spread = std > 16 * jnp.finfo(w.dtype).eps * jnp.abs(matrix).max(axes, keepdims=True)
    bound = jnp.where(spread, jnp.asarray(sigmas, w.dtype) * std, jnp.inf)
    matrix = jnp.clip(matrix, -bound, bound)
    return matrix if layout is None else layout.kernel(matrix)


def freeze(tx: optax.GradientTransformation, names: str | Sequence[str]) -> optax.GradientTransformation:
    """The optimiser ``tx`` for all parameters but those of some names, which keep every bit.

    No gradient, decay or moment reaches a frozen leaf, whereas ``optax.masked`` hands its raw gradient through.

    Args:
      tx: of the other parameters, which are all that it sees.
      names: regular expressions that are searched for in the paths of leaves, such as "hardware/" or "^hidden/bias$".

    Raises:
      ValueError: at ``init``, a name that no leaf has.

    Example:
      >>> import jax.numpy as jnp, optax, xbar_jax as xb
      >>> tx = xb.nn.recipes.freeze(optax.adamw(0.1), "^device/")
      >>> state = tx.init({"w": jnp.ones(3), "device": xb.devices.PCM()})
    """
    patterns = [re.compile(n) for n in ([names] if isinstance(names, str) else names)]

    def labels(params):
        paths = [path_of(p) for p, _ in jax.tree_util.tree_leaves_with_path(params)]
        for pattern in patterns:
            if not any(map(pattern.search, paths)):
                raise ValueError(
                    f"freeze: names must be found in the paths of parameters ({', '.join(paths)}), got {pattern.pattern!r}"
                )
        label = lambda path, _: "frozen" if any(p.search(path_of(path)) for p in patterns) else "trained"
        return jax.tree_util.tree_map_with_path(label, params)

    return optax.partition({"trained": tx, "frozen": _keep()}, labels)


def _keep() -> optax.GradientTransformation:
    # x + -0 is x for every x, also for -0, which + 0 would change.
    nothing = lambda u: jnp.full(jnp.shape(u), -0.0, jnp.result_type(u))
    return optax.GradientTransformation(
        lambda params: optax.EmptyState(), lambda updates, state, params=None: (jax.tree.map(nothing, updates), state)
    )


def decay_ranges(decay: Scalar) -> optax.GradientTransformation:
    """Lets learnt input ranges shrink: adds decay r to the gradient of every input range; put it before the optimiser.

    The gradient of a range comes from inputs beyond it alone, and only widens a range that is too small. What is paid
    for resolution has no gradient through a rounded number, so decay stands for it.

    Args:
      decay: factor.

    Example:
      >>> import optax, xbar_jax as xb
      >>> tx = optax.chain(xb.nn.recipes.decay_ranges(0.01), optax.sgd(0.1))
    """
    mask = functools.partial(
        jax.tree_util.tree_map_with_path, lambda path, _: path_of(path).split("/")[-1] == "input_range"
    )
    return optax.add_decayed_weights(decay, mask=mask)


def start_ranges(
    model: nnx.Module,
    batches: Iterable[ArrayLike],
    tracker: Tracker = MovingStd(factor=3.0),
) -> None:
    """Sets the input range of every analog layer from the first batches, from where it is learnt.

    Args:
      model: called as ``model(batch)``; changed in place. Its layers see what they do in training, noise included.
      batches: inputs.
      tracker: of the inputs of a layer; three moving standard deviations by default.

    Raises:
      ValueError: there are no batches.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> from flax import nnx
      >>> model = xb.nn.AnalogLinear(4, 2, hardware=xb.Hardware(dac=xb.DAC(bits=8)), rngs=nnx.Rngs(0))
      >>> xb.nn.recipes.start_ranges(model, [jnp.ones((5, 4))])
      >>> model.input_range[...]
      Array(3., dtype=float32)
    """
    found: dict[str, RangeState] | None = None
    for x in batches:
        graphdef, state = nnx.split(model)
        found = _watched(graphdef, state, tracker, jnp.asarray(x), found or {})
    if found is None:
        raise ValueError("start_ranges: batches must hold at least one batch, got none")
    for path, layer in analog_layers(model):
        if path in found:
            kept = layer.input_range[...]
            r = tracker.value(found[path]).astype(kept.dtype)
            layer.input_range.set_value(jnp.where(r > 0, r, kept))


@functools.partial(jax.jit, static_argnums=(0,))
def _watched(graphdef, state, tracker: Tracker, x, so_far: dict[str, RangeState]) -> dict[str, RangeState]:
    model = nnx.merge(graphdef, state, copy=True)
    found = dict(so_far)

    def watch(path: str) -> Callable:
        def note(layer, x):
            before = found.get(path, tracker.init((), layer.input_range[...].dtype))
            found[path] = tracker.update(before, x.reshape(-1))
            return layer.matmul(x)

        return note

    for path, layer in analog_layers(model):
        layer.observe = watch(path)
    model(x)
    return found


def distillation_loss(
    student: Float[Array, "batch classes"],
    teacher: Float[Array, "batch classes"],
    labels: Int[Array, " batch"],
    *,
    temperature: Scalar = 2.0,
    alpha: Scalar = 0.5,
) -> Float[Array, ""]:
    """Cross-entropy with labels and with a teacher, such as the digital network that is to be put on arrays.

        L = (1 - alpha) CE(student, labels) + alpha T^2 KL(softmax(teacher/T) || softmax(student/T)), mean over the batch

    Args:
      student, teacher: [batch, classes] logits; no gradient reaches the teacher.
      labels: [batch] classes.
      temperature: T > 0.
      alpha: weight of the teacher, 0 to 1.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> logits = jnp.array([[2.0, 0.0]])
      >>> float(xb.nn.recipes.distillation_loss(logits, logits, jnp.array([0]), alpha=1.0))
      0.0

    Reference:
      G. Hinton, O. Vinyals and J. Dean, arXiv 1503.02531 (2015).
    """
    t, alpha = (jnp.asarray(v, student.dtype) for v in (temperature, alpha))
    log_p = jax.nn.log_softmax(jax.lax.stop_gradient(teacher).astype(student.dtype) / t)
    log_q = jax.nn.log_softmax(student / t)
    from_teacher = (jnp.exp(log_p) * (log_p - log_q)).sum(-1).mean()
    from_labels = optax.softmax_cross_entropy_with_integer_labels(student, labels).mean()
    return (1.0 - alpha) * from_labels + alpha * t * t * from_teacher
