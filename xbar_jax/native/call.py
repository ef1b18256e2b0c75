"""The one way to give a JAX function a compiled form.

The function stays as specification, fallback, derivative and test oracle; :func:`custom_call` adds a call
into a native library where there is one for the platform of the program. Batching, the choice of platform,
work in place and the derivative are settled here, for every function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax.native import library

# None: native where possible; "body": the JAX form; "standin": the CUDA source on the host. Part of jit's cache key.
_mode = jax.make_user_context(default_value=None)


def disabled():
    """Context in which every function runs in its JAX form. A jitted function is traced anew in it.

    Example:
      >>> from xbar_jax import native
      >>> with native.disabled():
      ...     pass  # pure JAX in here
    """
    return _mode("body")


def standin():
    """Context in which the CUDA kernels run on the host, where the library was built with XBAR_STANDIN=ON."""
    return _mode("standin")


WORDS = ("float32", "int32", "uint32")
FLOATS = ("float32", "float64", "int32", "bool")


def custom_call(
    name: str,
    *,
    in_place: Mapping[int, int] | None = None,
    dtypes: Sequence[str] = WORDS,
    platforms: Sequence[str] = ("cpu", "cuda"),
) -> Callable:
    """Decorator: the custom call ``name`` is the compiled form of this JAX function.

    The function takes arrays by position and static values by keyword, and returns a tuple of arrays, all
    for one array of cells. Its static values become the attributes of the call where they are integers or
    strings; ``device``, a class with an attribute ``kernel``, stands for the name of that kernel, and a
    device whose ``kernel`` is None has the JAX form only. Static values whose name starts with an underscore
    are for the JAX form alone.

    * ``vmap``: one call for the whole batch, for any ``in_axes`` and depth. Operands that are not batched are
      not copied; an operand that is updated in place is, because its result has the batch's size.
    * Derivatives are those of the JAX form, evaluated at the same operands.
    * The platform is chosen when the program is lowered, not when it is traced.

    Args:
      name: name of the handler in the libraries.
      in_place: operand number -> result number that may share memory; XLA copies unless the operand is donated.
      dtypes: what the handler takes; with an operand of another type the JAX form runs.
      platforms: where there is a handler; elsewhere the JAX form runs.

    Returns:
      A function of the same signature; ``.body`` is the JAX form.
    """
    aliases = dict(in_place or {})

    def decorate(body: Callable) -> Callable:
        @functools.cache
        def form(static: tuple[tuple[str, Any], ...], mode: str | None, operands: int) -> Callable:
            values = dict(static)
            # Jitted: its trace is kept, for the shapes of results, for every platform and for derivatives.
            one = jax.jit(functools.partial(body, **values))
            device = values.get("device")
            kernel = getattr(device, "kernel", None)
            if mode == "body" or (device is not None and kernel is None):
                return one
            if mode == "standin" and "cuda" in platforms:
                found = {"cpu": "standin"} if library.available("standin", name, kernel, operands) else {}
                if not found:
                    raise RuntimeError(f"native: the stand-in library is {library.load('standin').reason}")
            else:
                found = {p: p for p in platforms if library.available(p, name, kernel, operands)}
            if not found:
                return one
            attributes = {k: (kernel if k == "device" else v) for k, v in values.items() if not k.startswith("_")}
            return jax.jit(_differentiable(one, _batched(one, name, found, attributes, aliases, 0)))

        parameters = inspect.signature(body).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}

        @functools.wraps(body)
        def call(*operands, **static):
            mode = _mode.value if all(jnp.result_type(x).name in dtypes for x in operands) else "body"
            return form(tuple(sorted((defaults | static).items())), mode, len(operands))(*operands)

        call.body = body  # type: ignore[attr-defined]
        return call

    return decorate


def _differentiable(body: Callable, fast: Callable) -> Callable:
    """``fast`` with the derivative of ``body``: f'(x) t is linear in t and does not see how f was computed."""
    f = jax.custom_jvp(fast)

    @f.defjvp
    def _(primals, tangents):
        return f(*primals), jax.jvp(body, primals, tangents)[1]

    return f


def _batched(one: Callable, name: str, found: dict, attributes: dict, aliases: dict, depth: int) -> Callable:
    """The call on operands with ``depth`` leading batch axes, each of the batch's length or of length 1."""

    def everywhere(*operands):
        body = _spread(one, depth)
        results = jax.eval_shape(body, *operands)

        def native(library_name: str) -> Callable:
            return lambda *xs: tuple(
                jax.ffi.ffi_call(library.target(library_name, name), results, input_output_aliases=aliases)(
                    *xs, **attributes
                )
            )

        branches = {platform: native(library_name) for platform, library_name in found.items()}
        return lax.platform_dependent(*operands, **branches, default=body)

    f = jax.custom_batching.custom_vmap(everywhere)

    @f.def_vmap
    def _(axis_size, in_batched, *operands):
        def lift(k: int, x: jax.Array, batched: bool) -> jax.Array:
            if batched:
                return x
            return jnp.broadcast_to(x, (axis_size, *x.shape)) if k in aliases else x[None]

        lifted = [lift(k, x, b) for k, (x, b) in enumerate(zip(operands, in_batched, strict=True))]
        results = _batched(one, name, found, attributes, aliases, depth + 1)(*lifted)
        return results, tuple(True for _ in results)

    return f


def _spread(f: Callable, depth: int) -> Callable:
    """``f`` mapped over ``depth`` leading axes; an axis of length 1 beside longer ones is shared."""
    if depth == 0:
        return f

    def mapped(*operands):
        size = max(x.shape[0] for x in operands)
        axes = [0 if x.shape[0] == size else None for x in operands]
        inner = [x if a == 0 else x[0] for x, a in zip(operands, axes, strict=True)]
        return jax.vmap(_spread(f, depth - 1), in_axes=axes, axis_size=size)(*inner)

    return mapped
