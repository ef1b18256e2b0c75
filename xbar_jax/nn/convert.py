"""From a Flax model to one on arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import flax.linen
import jax.numpy as jnp
from flax import nnx
from jax import lax

from xbar_jax.hardware import Hardware
from xbar_jax.nn import linen as linen_part
from xbar_jax.nn.analog import Analog
from xbar_jax.nn.conv import AnalogConv, AnalogConvTranspose
from xbar_jax.nn.einsum import AnalogEinsum
from xbar_jax.nn.embed import AnalogEmbed
from xbar_jax.nn.linear import AnalogLinear, AnalogLinearGeneral
from xbar_jax.nn.report import Report, Row, weight_row
from xbar_jax.nn.rules import Choice, Rules

ANALOG: dict[type, type[Analog]] = {
    analog.kind: analog
    for analog in (AnalogLinear, AnalogLinearGeneral, AnalogConv, AnalogConvTranspose, AnalogEinsum, AnalogEmbed)
}
_OWN = {
    "dot_general": (None, lax.dot_general),
    "dot_general_cls": (None,),
    "conv_general_dilated": (lax.conv_general_dilated,),
    "einsum_op": (jnp.einsum,),
}


def convert(
    model: Any,
    *,
    hardware: Hardware | None,
    rules: Sequence[tuple[str, str | None, Any]] | None = None,
    exclude: Iterable[str] = (),
    modifier: Callable | None = None,
    rngs: nnx.Rngs | None = None,
    **linen: Any,
) -> tuple[Any, Report]:
    """The model with its products on arrays, and what became of every weight.

    Layers that can be analog are Linear, LinearGeneral, Conv, ConvTranspose, Einsum and Embed (its ``attend``), so that
    attention and recurrent cells, which are made of them, are converted too. Their parameters, options and dtypes are
    kept, modules that are shared stay shared, and the model given is not changed. Weights of fewer than two
    dimensions stay digital. A ``flax.linen`` module is converted by :func:`xbar_jax.nn.linen.convert`.

    Args:
      model: an ``nnx.Module``, or a ``flax.linen.Module``.
      hardware: of layers that no rule matches; None: every layer needs a rule.
      rules: (path, operation, hardware), the first that matches a layer decides. ``path`` is a regular expression searched
        in the layer's path ("decoder/0/query"); ``operation`` one of the whole name of its kind, or None; ``hardware``
        a description, None (the layer stays digital), or dict(hardware=, modifier=).
      exclude: regular expressions, searched in the paths of weights ("decoder/0/query/kernel"), of those to leave
        digital.
      modifier: of layers that no rule gives another.
      rngs: a stream ``noise`` (or ``default``), which every layer forks; needed where hardware or modifier draw.
      linen: ``variables`` and ``inputs``, see :func:`xbar_jax.nn.linen.convert`.

    Returns:
      The converted copy and a :class:`Report`.

    Raises:
      ValueError: a weight of two or more dimensions that nothing touched, a pattern that matches nothing, or a layer
        with a product function of its own.

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> lstm = nnx.RNN(nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))
      >>> analog, report = xb.nn.convert(lstm, hardware=xb.Hardware())
      >>> len(report.of("analog")), bool(jnp.allclose(analog(jnp.ones((2, 5, 3))), lstm(jnp.ones((2, 5, 3))), atol=1e-5))
      (8, True)
    """
    if isinstance(model, flax.linen.Module):
        return linen_part.convert(
            model, hardware=hardware, rules=rules, exclude=exclude, modifier=modifier, **({"rngs": rngs} | linen)
        )
    if not isinstance(model, nnx.Module):
        raise TypeError(f"convert: model must be an nnx.Module or a flax.linen.Module, got {type(model).__name__}")
    if linen:
        raise TypeError(f"convert: {', '.join(linen)} must be given for flax.linen models only")
    chosen = Rules(hardware, rules, exclude, modifier)
    model = nnx.clone(model)
    new: dict[int, Analog] = {}
    said: dict[int, tuple[str, Choice, Any]] = {}
    for path, layer in list(nnx.iter_modules(model)):
        if type(layer) in ANALOG:
            _decide(_text(path), layer, chosen, rngs, new, said)
    report = _report(model, chosen, said)
    return _replaced(model, lambda m: new.get(id(m))), report


def to_digital(model: nnx.Module) -> nnx.Module:
    """A copy with Flax's own layers and the master weights; modules that are shared stay shared.

    Example:
      >>> from flax import nnx
      >>> import xbar_jax as xb
      >>> type(xb.nn.to_digital(xb.nn.AnalogConv(1, 2, 3, hardware=xb.Hardware(), rngs=nnx.Rngs(0)))).__name__
      'Conv'
    """
    model = nnx.clone(model)
    old = {id(m): m.to_digital() for _, m in nnx.iter_modules(model) if isinstance(m, Analog)}
    return _replaced(model, lambda m: old.get(id(m)))


def _decide(path: str, layer: Any, chosen: Rules, rngs, new: dict, said: dict) -> None:
    kind = type(layer).__name__
    name = "embedding" if isinstance(layer, nnx.Embed) else "kernel"
    choice = chosen.choose(path, kind, _join(path, name))
    if choice is None:
        return
    for option, usual in _OWN.items():
        if choice.hardware is not None and all(getattr(layer, option, usual[0]) is not f for f in usual):
            raise ValueError(
                f"convert: {path or kind} must have flax's own {option}, which arrays take the place of, got "
                f"{getattr(layer, option)!r}; leave it digital by a rule ({path!r}, None, None)"
            )
    layout = None
    if choice.hardware is not None:
        analog = ANALOG[type(layer)](layer, hardware=choice.hardware, modifier=choice.modifier, rngs=rngs)
        new[id(layer)], layout = analog, analog.layout
    for weight in (getattr(layer, name), getattr(layer, "bias", None)):
        if weight is not None:
            said[id(weight)] = (kind, choice, layout)


def _report(model: nnx.Module, chosen: Rules, said: dict[int, tuple[str, Choice, Any]]) -> Report:
    rows: list[Row] = []
    untouched: list[tuple[str, tuple[int, ...], str]] = []
    kinds: dict[int, str] = {}
    for _, node in nnx.iter_graph(model):
        if isinstance(node, nnx.Module):
            kinds.update({id(v): type(node).__name__ for v in vars(node).values() if isinstance(v, nnx.Param)})
    for path, weight in nnx.iter_graph(model):
        if not isinstance(weight, nnx.Param):
            continue
        name, shape = _text(path), tuple(weight.get_value().shape)
        if id(weight) in said:
            kind, choice, layout = said[id(weight)]
            rows.append(weight_row(name, kind, shape, choice, layout))
        elif len(shape) < 2:
            chosen.choose(name, None, name)
            rows.append(Row(name, kinds.get(id(weight), ""), shape, "digital", None, 0, "fewer than two dimensions"))
        else:
            left = chosen.choose(name, None, name)
            if left is None:
                untouched.append((name, shape, kinds.get(id(weight), "no module")))
            else:
                rows.append(Row(name, kinds.get(id(weight), ""), shape, "digital", None, 0, left.why))
    chosen.finish(untouched)
    return Report(tuple(sorted(rows, key=lambda row: row.path)))


def _replaced(model: nnx.Module, new: Callable[[nnx.Module], nnx.Module | None]) -> Any:
    """The model with modules put in the place of others, wherever they are held."""
    done: set[int] = set()

    def visit(node: Any) -> Any:
        if isinstance(node, (list, tuple)) and not isinstance(node, nnx.Module):
            parts = [visit(part) for part in node]
            if all(a is b for a, b in zip(parts, node, strict=True)):
                return node
            return type(node)(*parts) if hasattr(node, "_fields") else type(node)(parts)
        if isinstance(node, dict):
            named = {name: visit(part) for name, part in node.items()}
            return named if any(named[k] is not node[k] for k in node) else node
        if not isinstance(node, nnx.Module):
            return node
        other = new(node)
        if other is not None:
            return other
        if id(node) not in done:
            done.add(id(node))
            for name, part in list(vars(node).items()):
                changed = part if name.startswith("_pytree") else visit(part)
                if changed is not part:
                    setattr(node, name, changed if isinstance(changed, nnx.Module) else nnx.data(changed))
        return node

    return visit(model)


def _text(path: tuple) -> str:
    return "/".join(map(str, path))


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
