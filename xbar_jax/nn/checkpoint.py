"""Training state on disk, over Orbax: whole or not at all, the last few steps kept, resumed bit for bit.

What is saved is every array of a module or pytree by its path (typed keys by their words), what it must fit (shapes,
dtypes, sizes, modes), and the hardware of every analog layer as a description of its own: on load the choice between
that and the hardware of the target is explicit where they differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from xbar_jax.hardware.export import schema
from xbar_jax.nn.model import analog_layers
from xbar_jax.nn.recipes import path_of

FORMAT = 1
Choice = Literal["keep", "saved"]


class Restored(NamedTuple):
    """What :func:`restore` found.

    Attributes:
      step: of the checkpoint.
      parts: modules (the given ones, changed in place) and pytrees (new ones) by name.
    """

    step: int
    parts: dict[str, Any]


class _Part(NamedTuple):
    """Attributes:
    leaves: arrays, keys and numbers by path.
    static: sizes and modes by path, as text.
    hardware: description of every analog layer by path, None for a digital one.
    """

    leaves: dict[str, Any]
    static: dict[str, str]
    hardware: dict[str, Any]


def save(path: str | Path, step: int, /, *, keep: int = 3, **parts: Any) -> None:
    """Writes modules and pytrees as one checkpoint; returns when it is on disk.

    Args:
      path: folder of all checkpoints of a run; made if absent.
      step: later than every step saved before.
      keep: so many of the latest checkpoints stay.
      parts: ``nnx`` modules (a model, its optimiser) and pytrees of arrays, typed keys and numbers, by name.

    Raises:
      ValueError: no parts, or ``step`` is not later than the last one saved.

    Example:
      >>> import tempfile, xbar_jax as xb
      >>> from flax import nnx
      >>> folder = tempfile.mkdtemp()
      >>> model = xb.nn.AnalogLinear(4, 2, hardware=xb.Hardware(), rngs=nnx.Rngs(0))
      >>> xb.nn.checkpoint.save(folder, 10, model=model, epoch=1)
      >>> xb.nn.checkpoint.restore(folder, model=model, epoch=0).parts["epoch"]
      1
    """
    import orbax.checkpoint as ocp  # type: ignore[import-untyped]

    if not parts:
        raise ValueError("save: parts must hold at least one module or pytree, got none")
    if reserved := {"step", "hardware"} & parts.keys():
        raise ValueError(f"save: parts must have other names than those of arguments, got {min(reserved)!r}")
    arrays: dict[str, Any] = {}
    notes: dict[str, Any] = {"format": FORMAT, "parts": {}}
    for name, part in parts.items():
        read = _read(part)
        about = {place: _about(x) for place, x in read.leaves.items()}
        # Orbax holds no arrays without elements; their shape says all.
        arrays |= {f"{name}/{p}": _words(x) for p, x in read.leaves.items() if np.prod(about[p]["shape"]) > 0}
        encoded = {place: _encoded(hw, f"{name}/{place}", arrays) for place, hw in read.hardware.items()}
        notes["parts"][name] = {"leaves": about, "static": read.static, "hardware": encoded}
    arrays["format"] = np.int32(FORMAT)  # never an empty folder
    notes["arrays"] = sorted(arrays)
    with _manager(path, keep, create=True) as manager:
        last = manager.latest_step()
        if last is not None and step <= last:
            raise ValueError(f"save: step must be > {last}, the last one saved in {path}, got {step}")
        saved = ocp.args.Composite(arrays=ocp.args.PyTreeSave(arrays), notes=ocp.args.JsonSave(notes))
        manager.save(step, args=saved)


def steps(path: str | Path) -> list[int]:
    """Steps of the checkpoints in a folder, rising; none where there is no such folder."""
    if not Path(path).is_dir():
        return []
    with _manager(path, None, create=False) as manager:
        return sorted(manager.all_steps())


def restore(path: str | Path, /, *, step: int | None = None, hardware: Choice | None = None, **parts: Any) -> Restored:
    """Puts a checkpoint back; nothing is changed unless everything fits.

    Args:
      path: folder of the checkpoints.
      step: which; None is the last.
      hardware: where the hardware of an analog layer (or a number of its modifier) is not that of the checkpoint:
        "keep" the one of the target, or take the "saved" one. It must be given if any differ.
      parts: the same names as were saved, or some of them, each of the same structure. Modules are changed in place.

    Raises:
      ValueError: no such step, a part that differs in structure, shape or dtype, or hardware that differs while
        ``hardware`` is None.
    """
    import orbax.checkpoint as ocp  # type: ignore[import-untyped]

    if hardware not in (None, "keep", "saved"):
        raise ValueError(f"restore: hardware must be 'keep' or 'saved', got {hardware!r}")
    found = steps(path)
    step = step if step is not None else (found[-1] if found else None)
    if step not in found:
        raise ValueError(f"restore: step must be one of {found} in {path}, got {step}")
    with _manager(path, None, create=False) as manager:
        notes = manager.restore(step, args=ocp.args.Composite(notes=ocp.args.JsonRestore()))["notes"]
        if notes.get("format") != FORMAT:
            raise ValueError(f"restore: {path} must be of format {FORMAT}, got {notes.get('format')}")
        targets = {name: _read(part) for name, part in parts.items()}
        for name, target in targets.items():
            _check(name, target, notes["parts"])
        arrays = _arrays(manager, step, notes["arrays"], targets)
    for name, target in targets.items():
        taken = {p: _typed(arrays.get(f"{name}/{p}"), x) for p, x in target.leaves.items()}
        targets[name] = target._replace(leaves=taken)
        differ = _differences(name, target, targets[name], notes["parts"][name], arrays)
        if differ and hardware is None:
            raise ValueError(
                f"restore: hardware must be 'keep' (that of the target) or 'saved', since they differ in {differ}; got None"
            )
    described = {
        name: _described(part, target, notes["parts"][name], name, arrays) if hardware == "saved" else {}
        for (name, part), target in zip(parts.items(), targets.values(), strict=True)
    }
    chosen = {
        name: _write(part, targets[name].leaves, described[name], hardware == "keep") for name, part in parts.items()
    }
    return Restored(int(step), chosen)


def _manager(path: str | Path, keep: int | None, *, create: bool):
    import orbax.checkpoint as ocp  # type: ignore[import-untyped]

    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep, create=create, enable_async_checkpointing=False, cleanup_tmp_directories=create
    )
    return ocp.CheckpointManager(Path(path).absolute(), options=options)


def _read(part: Any) -> _Part:
    """Leaves, static facts and hardware of a module or pytree."""
    if not isinstance(part, nnx.Pytree):
        leaves, structure = jax.tree_util.tree_flatten_with_path(part)
        return _Part({path_of(p): x for p, x in leaves}, {"": re.sub(r" at 0x[0-9a-f]+", "", str(structure))}, {})
    module: Any = nnx.merge(*nnx.split(part), copy=True)
    hardware = {}
    for place, layer in analog_layers(module):
        hardware[place] = layer.hardware
        layer.hardware = nnx.data(None)
    leaves = jax.tree_util.tree_leaves_with_path(nnx.split(module)[1])
    static = {}
    for path, m in _objects(part):
        place = "/".join(map(str, path))
        static[place] = type(m).__name__
        for name, value in vars(m).items():
            if name == "layout" or (_is_plain(value) and not name.startswith("_")):
                static[f"{place}.{name}"] = repr(value)
    return _Part({path_of(p): x for p, x in leaves}, static, hardware)


def _objects(part: nnx.Pytree) -> list[tuple[tuple, nnx.Pytree]]:
    """Modules, optimisers and the like within ``part``, by path."""
    return [(path, x) for path, x in nnx.iter_graph(part) if isinstance(x, nnx.Pytree)]


def _is_plain(x: Any) -> bool:
    return isinstance(x, (bool, int, str)) or (type(x) is tuple and all(map(_is_plain, x)))


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _words(x: Any) -> Any:
    """What stands on disk for a leaf."""
    return jax.random.key_data(x) if _is_key(x) else x if isinstance(x, jax.Array) else np.asarray(x)


def _about(x: Any) -> dict[str, Any]:
    if _is_key(x):
        return {"shape": list(x.shape), "dtype": f"key of {jax.random.key_impl(x)}"}
    return {"shape": list(np.shape(x)), "dtype": str(x.dtype if hasattr(x, "dtype") else type(x).__name__)}


def _typed(words: Any, target: Any) -> Any:
    """A leaf of the kind of ``target`` from what stood on disk."""
    if words is None:
        return target
    if _is_key(target):
        return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(target))
    if isinstance(target, jax.Array):
        # A copy of its own, as free to move between devices as the target was.
        return words if isinstance(words, jax.Array) else jnp.array(words)
    return np.asarray(words) if isinstance(target, (np.ndarray, np.generic)) else type(target)(words.item())


def _encoded(hw: Any, where: str, arrays: dict[str, Any]) -> Any:
    """Hardware as JSON, its numbers in ``arrays``; only its structure where it holds what JSON cannot, a function."""
    if hw is None:
        return None
    arrays |= _numbers(hw, where)
    structure = re.sub(r" at 0x[0-9a-f]+", "", str(jax.tree.structure(hw)))
    try:
        return {"structure": structure, "json": schema.encode(hw, where, {})}
    except TypeError:
        return {"structure": structure, "json": None}


def _numbers(hw: Any, where: str) -> dict[str, Any]:
    """Numbers of a description by the names that :mod:`xbar_jax.hardware.export.schema` gives them."""
    found = jax.tree_util.tree_leaves_with_path(hw)
    names = lambda path: (str(getattr(k, "name", getattr(k, "key", getattr(k, "idx", k)))) for k in path)
    return {".".join((where, *names(path))): np.asarray(x) for path, x in found}


def _check(name: str, target: _Part, saved: Mapping[str, Any]) -> None:
    """Raises ValueError where a part of the checkpoint does not fit the target."""
    if name not in saved:
        raise ValueError(f"restore: parts must be among those saved ({', '.join(saved)}), got {name!r}")
    there = saved[name]
    about = {place: _about(x) for place, x in target.leaves.items()}
    for kind, mine, theirs in (("array", about, there["leaves"]), ("part", target.static, there["static"])):
        for place in sorted(mine.keys() ^ theirs.keys()):
            has, lacks = ("target", "checkpoint") if place in mine else ("checkpoint", "target")
            raise ValueError(
                f"restore: {name} must have one structure, but the {has} has the {kind} {place!r}, the {lacks} not"
            )
        for place, value in theirs.items():
            if value != mine[place]:
                raise ValueError(
                    f"restore: {name}/{place} must be {_words_of(value)}, as saved, got {_words_of(mine[place])}"
                )
    if there["hardware"].keys() != target.hardware.keys():
        layers = sorted(there["hardware"].keys() ^ target.hardware.keys())
        raise ValueError(f"restore: {name} must have the analog layers that were saved, they differ in {layers}")


def _words_of(value: Any) -> str:
    return f"{value['dtype']}{value['shape']}" if isinstance(value, dict) else str(value)


def _arrays(manager: Any, step: int, stored: list[str], targets: Mapping[str, _Part]) -> dict[str, Any]:
    """Every array of a checkpoint: as numpy, but those that are sharded in the target, which stay so."""
    import orbax.checkpoint as ocp  # type: ignore[import-untyped]

    sharded = {
        f"{name}/{p}": x.sharding
        for name, target in targets.items()
        for p, x in target.leaves.items()
        if isinstance(x, jax.Array) and not _is_key(x) and len(x.sharding.device_set) > 1
    }
    plain = ocp.RestoreArgs(restore_type=np.ndarray)
    how = {k: ocp.ArrayRestoreArgs(sharding=sharded[k]) if k in sharded else plain for k in stored}
    args = ocp.args.PyTreeRestore(dict.fromkeys(stored, 0), restore_args=how)
    return manager.restore(step, args=ocp.args.Composite(arrays=args))["arrays"]


def _differences(name: str, old: _Part, new: _Part, saved: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """Where hardware or modifiers of a target are not those of the checkpoint, in words."""
    found = []
    same = lambda a, b: np.asarray(a).tobytes() == np.asarray(b).tobytes()
    for place, hw in old.hardware.items():
        there, where = saved["hardware"][place], f"{name}/{place}"
        mine: dict[str, Any] = {}
        here = _encoded(hw, where, mine)
        if here is None or there is None or here["structure"] != there["structure"]:
            found += [] if here is there else [f"{where} (other parts or sizes)"]
            continue
        found += [f"{k} ({arrays[k]!s} saved, {v!s} here)" for k, v in mine.items() if not same(v, arrays[k])]
    for p in _modifiers(old):
        if not same(old.leaves[p], new.leaves[p]):
            found.append(f"{name}/{p} ({np.asarray(new.leaves[p])!s} saved, {np.asarray(old.leaves[p])!s} here)")
    return ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")


def _modifiers(part: _Part) -> list[str]:
    """Numbers of modifiers: a choice, as hardware is, and not what training finds."""
    prefixes = tuple(f"{place}/modifier/".lstrip("/") for place in part.hardware)
    return [p for p in part.leaves if prefixes and p.startswith(prefixes)]


def _described(part: Any, target: _Part, saved: Mapping[str, Any], name: str, arrays) -> dict[str, Any]:
    """The hardware of every analog layer as the checkpoint has it."""
    layers = dict(analog_layers(part)) if target.hardware else {}
    return {p: _hardware(layers[p].hardware, saved["hardware"][p], f"{name}/{p}", arrays) for p in layers}


def _write(part: Any, leaves: Mapping[str, Any], hardware: Mapping[str, Any], keep: bool) -> Any:
    """The part with the leaves of the checkpoint, and its hardware unless there is none; modules in place."""
    old = _read(part)
    if keep:
        leaves = {**leaves, **{p: old.leaves[p] for p in _modifiers(old)}}
    if not isinstance(part, nnx.Pytree):
        return jax.tree.unflatten(jax.tree.structure(part), [leaves[p] for p in old.leaves])
    module: Any = part
    _fill(module, leaves)
    for place, layer in analog_layers(module) if hardware else ():
        layer.hardware = nnx.data(hardware[place])
    return part


def _fill(part: nnx.Pytree, leaves: Mapping[str, Any]) -> None:
    """Puts leaves into a module: Variables are set, descriptions (frozen as they are) replaced."""
    graphdef, state = nnx.split(part)
    state = jax.tree_util.tree_map_with_path(lambda path, x: leaves.get(path_of(path), x), state)
    nnx.update(part, nnx.filter_state(state, nnx.Variable))
    filled = dict(_objects(nnx.merge(graphdef, state, copy=True)))
    own = lambda x: isinstance(x, (nnx.Variable, nnx.Pytree))
    for path, module in _objects(part):
        for name, value in vars(filled[path]).items():
            found = jax.tree.leaves(value, is_leaf=own)
            if any(isinstance(x, jax.Array) for x in found) and not any(map(own, found)):
                setattr(module, name, nnx.data(value))


def _hardware(mine: Any, saved: Any, where: str, arrays: Mapping[str, Any]) -> Any:
    if saved is None:
        return None
    if saved["json"] is not None:
        return schema.decode(saved["json"], arrays, "checkpoint")
    if re.sub(r" at 0x[0-9a-f]+", "", str(jax.tree.structure(mine))) != saved["structure"]:
        raise ValueError(
            f"restore: {where} must have the saved hardware's parts already, since a file cannot hold its functions"
        )
    return jax.tree.unflatten(jax.tree.structure(mine), [jnp.array(arrays[n]) for n in _numbers(mine, where)])
