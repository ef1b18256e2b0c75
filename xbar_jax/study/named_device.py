"""Devices by name, and settings as ``name=value``, as the commands take them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xbar_jax import devices


def names() -> dict[str, type]:
    """The dynamic devices by name, those that can be made of numbers."""
    found = {name: getattr(devices, name) for name in devices.__all__}
    base = devices.DynamicDevice
    return {
        n: c
        for n, c in found.items()
        if inspect.isclass(c) and issubclass(c, base) and c not in (base, devices.Tabulated)
    }


def device(command: str, name: str, settings: Sequence[str]) -> Any:
    """The device ``name`` with its numbers and choices set.

    Raises:
      ValueError: in the name of the command, for a name or a value that it does not know.
    """
    known = {n.lower(): n for n in names()}
    if name.lower() not in known:
        raise ValueError(f"{command}: --device must be one of {', '.join(sorted(names()))}, got {name!r}")
    return configured(command, "--set", names()[known[name.lower()]](), settings)


def configured(command: str, option: str, what: Any, settings: Sequence[str]) -> Any:
    """A description with fields replaced by ``name=value``: numbers, or names where the field holds one."""
    fields = {f.name: getattr(what, f.name) for f in dataclasses.fields(what) if f.name != "spread"}
    changes: dict[str, Any] = {}
    for setting in settings:
        name, given, text = setting.partition("=")
        name, text = name.strip(), text.strip()
        if not given or not name or not text:
            raise ValueError(f"{command}: {option} must be name=value, got {setting!r}")
        if name not in fields:
            kind = type(what).__name__
            raise ValueError(f"{command}: {option} must name a field of {kind} ({', '.join(fields)}), got {name!r}")
        changes[name] = text if isinstance(fields[name], str) else _number(f"{command}: {option} {name}", text)
    return dataclasses.replace(what, **changes)


def _number(where: str, text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{where} must be a number, got {text!r}") from None


def folder(command: str, out: Path) -> None:
    """Makes the folder of results."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ValueError(f"{command}: --out must be a folder that can be made, got {out}: {e.strerror}") from e
