"""The native libraries: found beside this file, checked against the running jaxlib, registered once.

Environment:
  XBAR_NATIVE=0          every function runs in its JAX form.
  XBAR_REQUIRE_NATIVE=1  a native form that should be used and cannot be is an error, not a fallback. Float32 has
                         native forms; other precisions and devices that name no kernel have none to fall back from.
  XBAR_ISA               sse2, avx2 or avx512: at most this instruction set on x86-64.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib.resources
import os
import re
import warnings
from pathlib import Path

import jax

# Name of the library -> the platform name under which JAX registers its handlers.
ISAS = ("", "sse2", "avx2", "avx512")
MAX_OPERANDS = 1024
PLATFORMS = {"cpu": "cpu", "cuda": "CUDA", "standin": "cpu"}


@dataclasses.dataclass(frozen=True)
class Library:
    """One native library, or the reason why there is none.

    Attributes:
      name: ``cpu``, ``cuda`` or ``standin`` (the CUDA source built for the host, for tests).
      reason: why it is not used, or None where it is.
      targets: names of its custom calls.
      devices: devices that it has a kernel for.
      detail: instruction set or CUDA architectures.
      path: the file.
    """

    name: str
    reason: str | None = None
    targets: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    detail: str = ""
    path: Path | None = None


def required() -> bool:
    """True where a fallback is an error."""
    return os.environ.get("XBAR_REQUIRE_NATIVE", "0") not in ("", "0")


def enabled() -> bool:
    """False where the environment turns native forms off."""
    asked = os.environ.get("XBAR_NATIVE", "1")
    if asked not in ("", "0", "1"):
        raise ValueError(f"native: XBAR_NATIVE must be 0 or 1, got {asked!r}")
    return asked != "0"


def running_ffi_version() -> tuple[int, int]:
    """Version of the FFI interface of the running jaxlib, from the header that it brings."""
    text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    found = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    if None in found:
        raise RuntimeError("native: jaxlib's FFI header does not state its version")
    return tuple(int(m.group(1)) for m in found)  # type: ignore[return-value,union-attr]


def refusal(built: tuple[int, int], running: tuple[int, int]) -> str | None:
    """Why a library built against one version of the FFI cannot run on another, or None.

    A handler that is newer than the running jaxlib keeps XLA's CPU backend from starting at all.
    """
    if built[0] != running[0] or built[1] > running[1]:
        return (
            f"built for FFI {built[0]}.{built[1]}, this jaxlib has {running[0]}.{running[1]}: "
            "reinstall xbar_jax in this environment, or use a newer jaxlib"
        )
    return None


def target(library: str, name: str) -> str:
    """Name under which a handler is registered. CPU and CUDA share it, so that one call serves both."""
    return f"{name}_standin" if library == "standin" else name


@functools.cache
def load(name: str, path: Path | None = None) -> Library:
    """Loads and registers one library, once; says why not in ``reason``.

    Raises:
      ValueError: XBAR_ISA names no instruction set.
    """
    if not enabled():
        return Library(name, "turned off by XBAR_NATIVE=0")
    if os.environ.get("XBAR_ISA", "") not in ISAS:
        raise ValueError(
            f"native: XBAR_ISA must be one of {', '.join(filter(None, ISAS))}, got {os.environ['XBAR_ISA']!r}"
        )
    path = path or Path(str(importlib.resources.files("xbar_jax.native") / f"libxbar_{name}.so"))
    if not path.exists():
        return Library(name, f"not built ({path.name} is not installed)")
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as e:
        return Library(name, f"cannot be loaded: {e}", path=path)

    def text(symbol: str) -> str:
        function = getattr(lib, symbol)
        function.restype = ctypes.c_char_p
        return function().decode()

    try:
        why = refusal((lib.xbar_ffi_major(), lib.xbar_ffi_minor()), running_ffi_version())
        text("xbar_targets"), text("xbar_devices"), text("xbar_detail")
    except (AttributeError, OSError) as e:
        why = f"not usable: {e}"
    if why:
        return Library(name, why, path=path)
    targets = frozenset(text("xbar_targets").split())
    for t in targets:
        jax.ffi.register_ffi_target(
            target(name, t), jax.ffi.pycapsule(getattr(lib, t)), platform=PLATFORMS[name], api_version=1
        )
    return Library(name, None, targets, frozenset(text("xbar_devices").split()), text("xbar_detail"), path)


def libraries() -> list[Library]:
    """Every library of this installation, loaded if it can be."""
    return [load("cpu"), load("cuda")]


@functools.cache
def _warn(reason: str) -> None:
    warnings.warn(f"xbar_jax: the native library is not used, functions run in JAX: {reason}", stacklevel=4)


def available(library: str, name: str, device: str | None, operands: int = 0) -> bool:
    """True if ``library`` has the custom call ``name`` (for ``device``, where the call has one) on so many operands.

    Where it should have and has not, a warning says why.

    Raises:
      RuntimeError: XBAR_REQUIRE_NATIVE=1 and the library of the current backend cannot be used.
    """
    lib = load(library)
    reason = lib.reason
    if reason is None and name not in lib.targets:
        reason = f"too old: it has no call {name}; install xbar_jax again"
    if reason is None and device is not None and device not in lib.devices:
        reason = f"without a kernel for device {device}; install xbar_jax again"
    if reason is None and operands > MAX_OPERANDS:
        reason = f"limited to {MAX_OPERANDS} operands a call, got {operands}"
    if reason is None:
        return True
    wanted = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}.get(jax.default_backend())
    if wanted == library and required():
        raise RuntimeError(f"native: XBAR_REQUIRE_NATIVE=1, but the {library} library is {reason}")
    if wanted == library and enabled():
        _warn(f"it is {reason}")
    return False
