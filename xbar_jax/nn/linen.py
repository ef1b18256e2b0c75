"""``flax.linen`` models on arrays: the products of their layers are intercepted, their code stays as it is."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import traverse_util
from flax.linen.dtypes import promote_dtype

from xbar_jax.hardware import Hardware, Tile
from xbar_jax.nn import conv_layouts, layouts, product
from xbar_jax.nn.conv import canonical_padding, each_dim
from xbar_jax.nn.report import Report, Row, weight_row
from xbar_jax.nn.rules import Choice, Rules
from xbar_jax.typing import Array, Key

COLLECTION = "analog"
_METHODS = {
    nn.Dense: "__call__",
    nn.DenseGeneral: "__call__",
    nn.Conv: "__call__",
    nn.ConvTranspose: "__call__",
    nn.Einsum: "__call__",
    nn.Embed: "attend",
}


class Plan(NamedTuple):
    """A layer that was called: its kind, its layout, the shape of its kernel, and what was chosen for it."""

    kind: str
    layout: Any
    shape: tuple[int, ...]
    choice: Choice | None


@dataclasses.dataclass(frozen=True)
class AnalogModel:
    """A ``flax.linen`` module on arrays; what :func:`convert` returns. Parameters are those of the module.

    Attributes:
      module: the module, unchanged.
      plans: by the path of each layer.
    """

    module: nn.Module
    plans: dict[str, Plan]

    def apply(self, variables: Mapping[str, Any], *args: Any, rngs: Any = None, **options: Any) -> Any:
        """As ``module.apply``.

        Args:
          variables: of the module. With a collection "analog" (from :meth:`program`) its arrays are read; without one
            every call is hardware-aware: a fresh programming, differentiable, of the parameters.
          args, options: of the module.
          rngs: with a stream ``noise`` where something is drawn. A layer in a lifted ``nn.scan`` or ``nn.RNN`` that draws
            needs ``split_rngs={"noise": True}`` there.
        """
        tiles = variables.get(COLLECTION, {})
        rest = {name: value for name, value in variables.items() if name != COLLECTION}

        def intercept(call: Callable, args: tuple, options: dict, context: Any) -> Any:
            module = context.module
            if _is_cell(context):
                return _lstm(module, *args, product=lambda *a: self._dense(module, tiles, *a))
            plan = self.plans.get(_text(module.path))
            if plan is None or plan.choice is None or plan.choice.hardware is None or not _is_product(context):
                return call(*args, **options)
            return self._run(module, plan, tiles.get(_text(module.path)), *args)

        with nn.intercept_methods(intercept):
            return self.module.apply(rest, *args, rngs=rngs, **options)

    def program(self, variables: Mapping[str, Any], *, key: Key[Array, ""] | None = None) -> dict[str, Any]:
        """The variables with a collection "analog": programmed arrays by the path of each layer.

        Args:
          variables: of the module.
          key: where something is drawn; a layer's own depends on its path only.
        """
        params = nn.meta.unbox(variables["params"])
        tiles: dict[str, Tile] = {}
        for path, plan in self.plans.items():
            if plan.choice is None or plan.choice.hardware is None:
                continue
            part = _at(params, path)
            kernel = part["embedding" if plan.kind == "Embed" else "kernel"]
            if kernel.shape != plan.shape:
                raise ValueError(
                    f"program: kernel of {path} must be {list(plan.shape)}, as its layer sees it, got "
                    f"{list(kernel.shape)}; layers that nn.scan or nn.vmap stack can be run hardware-aware only"
                )
            own = None if key is None else jax.random.fold_in(key, zlib.crc32(path.encode()))
            tiles[path] = _programmed(plan, kernel, part.get("bias"), own if plan.choice.hardware.draws else None)
        return {**variables, COLLECTION: tiles}

    def _run(self, module: nn.Module, plan: Plan, tile: Tile | None, x: Array, *_: Any) -> Array:
        params = module.variables["params"]
        kernel = nn.meta.unbox(params["embedding" if plan.kind == "Embed" else "kernel"])
        bias = nn.meta.unbox(params.get("bias"))
        mask = getattr(module, "mask", None)
        kernel = kernel if mask is None else kernel * jnp.asarray(mask, kernel.dtype)
        promote = getattr(module, "promote_dtype", promote_dtype)
        x, kernel, bias = promote(x, kernel, bias, dtype=module.dtype)
        return _product(module, plan, tile, x, kernel, bias)

    def _dense(self, cell: nn.Module, tiles: Mapping[str, Tile], name: str, x: Array) -> Array:
        params = nn.meta.unbox(cell.variables["params"][name])
        path = _text((*cell.path, name))
        x, kernel, bias = promote_dtype(x, params["kernel"], params.get("bias"), dtype=cell.dtype)
        plan = self.plans[path]
        if plan.choice is None or plan.choice.hardware is None:
            y = x @ kernel
            return y if bias is None else y + product.per_output(bias, y)
        return _product(cell, plan, tiles.get(path), x, kernel, bias)


def convert(
    module: nn.Module,
    *,
    hardware: Hardware | None,
    variables: Mapping[str, Any],
    inputs: Sequence[Any],
    rules: Sequence[tuple[str, str | None, Any]] | None = None,
    exclude: Iterable[str] = (),
    modifier: Callable | None = None,
    rngs: Any = None,
    **options: Any,
) -> tuple[AnalogModel, Report]:
    """A ``flax.linen`` module with its products on arrays, and what became of every weight.

    Dense, DenseGeneral, Conv, ConvTranspose, Einsum, ``Embed.attend`` and OptimizedLSTMCell are intercepted, so that
    attention and the other cells, which are made of these, are converted too.

    Args:
      module: the model.
      hardware, rules, exclude, modifier: as :func:`xbar_jax.nn.convert` has them.
      variables: of the module, from ``module.init``; shapes are enough.
      inputs: arguments of a call, whose shapes say which layers run; nothing is computed.
      rngs: of that call, where the module needs any.
      options: of that call, such as ``method`` or ``train``.

    Returns:
      An :class:`AnalogModel` and a :class:`xbar_jax.nn.Report`.

    Raises:
      ValueError: a weight of two or more dimensions that no intercepted call consumed, a pattern that matches nothing,
        or a layer with a product function of its own.

    Example:
      >>> import flax.linen as nn, jax, jax.numpy as jnp, xbar_jax as xb
      >>> model, x = nn.Sequential([nn.Dense(8), nn.relu, nn.Dense(3)]), jnp.ones((2, 4))
      >>> variables = model.init(jax.random.key(0), x)
      >>> analog, report = xb.nn.convert(model, hardware=xb.Hardware(), variables=variables, inputs=(x,))
      >>> programmed = analog.program(variables)
      >>> bool(jnp.allclose(analog.apply(programmed, x), model.apply(variables, x), atol=1e-5))
      True
    """
    chosen = Rules(hardware, rules, exclude, modifier)
    plans: dict[str, Plan] = {}

    def record(call: Callable, args: tuple, options: dict, context: Any) -> Any:
        module = context.module
        if _is_cell(context):
            return _lstm(module, *args, product=lambda name, x: _record_dense(plans, chosen, module, name, x))
        if _is_product(context):
            name = "embedding" if isinstance(module, nn.Embed) else "kernel"
            kernel = nn.meta.unbox(module.variables["params"][name])
            layout = _layout(module, kernel)
            _note(plans, chosen, _text(module.path), type(module).__name__, name, layout, kernel.shape, module)
        return call(*args, **options)

    def run(variables: Any, rngs: Any, *args: Any) -> Any:
        with nn.intercept_methods(record):
            return module.apply(variables, *args, rngs=rngs, mutable=True, **options)

    jax.eval_shape(run, variables, rngs, *inputs)
    return AnalogModel(module, plans), _report(nn.meta.unbox(variables["params"]), plans, chosen)


def _note(plans, chosen: Rules, path: str, kind: str, name: str, layout: Any, shape, module: Any) -> None:
    choice = chosen.choose(path, kind, f"{path}/{name}" if path else name)
    for option in ("dot_general", "dot_general_cls", "conv_general_dilated", "conv_general_dilated_cls"):
        own = getattr(module, option, None)
        usual = (None, jax.lax.dot_general, jax.lax.conv_general_dilated)
        if choice is not None and choice.hardware is not None and all(own is not f for f in usual):
            raise ValueError(
                f"convert: {path} must have flax's own {option}, which arrays take the place of, got {own!r}; leave it "
                f"digital by a rule ({path!r}, None, None)"
            )
    plans[path] = Plan(kind, layout, tuple(shape), choice)


def _record_dense(plans, chosen: Rules, cell: nn.Module, name: str, x: Array) -> Array:
    params = nn.meta.unbox(cell.variables["params"][name])
    kernel = params["kernel"]
    _note(plans, chosen, _text((*cell.path, name)), "Dense", "kernel", layouts.Dense(*kernel.shape), kernel.shape, cell)
    return x @ kernel.astype(x.dtype)


def _report(params: Mapping[str, Any], plans: dict[str, Plan], chosen: Rules) -> Report:
    rows, untouched = [], []
    for path, weight in traverse_util.flatten_dict(params).items():
        name, shape, owner = _text(path), tuple(jnp.shape(weight)), _text(path[:-1])
        plan = plans.get(owner)
        if plan is not None and plan.choice is not None and path[-1] in ("kernel", "embedding", "bias"):
            rows.append(weight_row(name, plan.kind, shape, plan.choice, plan.layout))
            continue
        choice = chosen.choose(name, None, name)
        if len(shape) < 2:
            rows.append(Row(name, "", shape, "digital", None, 0, "fewer than two dimensions"))
        elif choice is not None:
            rows.append(Row(name, "", shape, "digital", None, 0, choice.why))
        elif path[-1] == "embedding" and plan is None:
            rows.append(Row(name, "Embed", shape, "digital", None, 0, "looking up is digital"))
        else:
            untouched.append((name, shape, "module " + (owner or "at the top")))
    chosen.finish(untouched)
    return Report(tuple(sorted(rows, key=lambda row: row.path)))


def _product(module: nn.Module, plan: Plan, tile: Tile | None, x: Array, kernel: Array, bias: Array | None) -> Array:
    """The operation of a layer on arrays, in the dtype of the kernel."""
    hw, modifier, one = plan.choice.hardware, plan.choice.modifier, plan.layout.groups == 1
    held = bias is not None and hw.bias_rows > 0
    k_modify = k_program = k_read = None
    if tile.needs_key if tile is not None else hw.draws or modifier is not None:
        if not module.has_rng("noise"):
            raise ValueError(
                f"apply: rngs must have a stream 'noise' for what {_text(module.path)} draws; in nn.scan and nn.RNN with "
                "split_rngs={'noise': True}"
            )
        k_modify, k_program, k_read = jax.random.split(module.make_rng("noise"), 3)
    if tile is None:
        tile = _programmed(plan, kernel, bias, k_program if hw.draws else None, modifier, k_modify)

    def run(x: Array) -> Array:
        y = product.read(tile, x[..., 0, :] if one else x, key=k_read, groups=plan.layout.groups)
        if bias is not None and not held:
            b = product.wide(plan.layout.bias(bias))
            y = y + product.per_output(b[0] if one else b, y)
        return y[..., None, :] if one else y

    return plan.layout.apply(product.wide(x), run).astype(kernel.dtype)


def _programmed(plan: Plan, kernel: Array, bias: Array | None, key, modifier=None, k_modify=None) -> Tile:
    hw: Any = plan.choice.hardware if plan.choice is not None else None
    one = plan.layout.groups == 1
    matrix = product.wide(plan.layout.matrix(kernel))
    matrix = matrix[0] if one else matrix
    matrix = matrix if modifier is None else modifier(matrix, k_modify)
    held = None
    if bias is not None and hw.bias_rows:
        held = product.wide(plan.layout.bias(bias))
        held = held[0] if one else held
    start = 1.0 if hw.dac is None else hw.dac.input_range
    return product.programmed(matrix, hw, key=key, input_range=start, bias=held)


def _layout(module: Any, kernel: Any) -> Any:
    """The layout of a linen layer with this kernel."""
    shape = kernel.shape
    if isinstance(module, nn.Dense):
        return layouts.Dense(*shape)
    if isinstance(module, nn.Embed):
        return layouts.Transposed(shape[1], shape[0])
    if isinstance(module, nn.Einsum):
        return layouts.Einsum(module.einsum_str.replace(" ", ""), tuple(shape))
    tuple_of = lambda n: (n,) if isinstance(n, int) else tuple(n)
    if isinstance(module, nn.DenseGeneral):
        axis, batch = tuple_of(module.axis), tuple_of(module.batch_dims)
        n, m = len(batch), len(batch) + len(axis)
        return layouts.General(axis, batch, shape[:n], shape[n:m], shape[m:])
    size = tuple_of(module.kernel_size)
    each = lambda n: each_dim(n, len(size))
    swapped = isinstance(module, nn.ConvTranspose) and module.transpose_kernel
    options: dict[str, Any] = {
        "size": size,
        "in_features": shape[-1] if swapped else shape[-2] * getattr(module, "feature_group_count", 1),
        "out_features": module.features,
        "strides": each(module.strides),
        "kernel_dilation": each(module.kernel_dilation),
        "padding": canonical_padding(module.padding, len(size)),
    }
    if isinstance(module, nn.ConvTranspose):
        return conv_layouts.ConvTranspose(**options, transposed=swapped)
    return conv_layouts.Conv(**options, groups=module.feature_group_count, input_dilation=each(module.input_dilation))


def _lstm(cell: Any, carry: tuple[Array, Array], x: Array, *, product: Callable[[str, Array], Array]) -> Any:
    """OptimizedLSTMCell, which multiplies without a layer, one product for each of its kernels."""
    c, h = carry
    gate = {name: product(f"h{name}", h) + product(f"i{name}", x) for name in "ifgo"}
    c = cell.gate_fn(gate["f"]) * c + cell.gate_fn(gate["i"]) * cell.activation_fn(gate["g"])
    h = cell.gate_fn(gate["o"]) * cell.activation_fn(c)
    return (c, h), h


def _is_product(context: Any) -> bool:
    method = _METHODS.get(type(context.module))
    return method == context.method_name and not context.module.is_initializing()


def _is_cell(context: Any) -> bool:
    module = context.module
    return type(module) is nn.OptimizedLSTMCell and context.method_name == "__call__" and not module.is_initializing()


def _at(params: Any, path: str) -> Any:
    for name in path.split("/") if path else ():
        params = params[name]
    return params


def _text(path: Iterable[str]) -> str:
    return "/".join(path)
