"""The two files of an export: read, checked and written whole."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xbar_jax.hardware.export.schema import SCHEMA, VERSION, plain, typed

JSON, NPZ = "export.json", "arrays.npz"
# A fixed time in the archive, so that equal contents are equal files.
_TIME = (1980, 1, 1, 0, 0, 0)


class Stored(NamedTuple):
    """An export as it lies on disk.

    Attributes:
      body: content of export.json, as docs/export.md describes it.
      arrays: content of arrays.npz by name.
    """

    body: dict[str, Any]
    arrays: dict[str, np.ndarray]


def write(path: Path, body: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes both files, each complete before it takes its name.

    Raises:
      ValueError: ``path`` cannot be a folder.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ValueError(f"export.save: path must be a folder that can be made, got {path}: {e.strerror}") from e
    packed = _pack(arrays)
    index = {
        n: {"dtype": x.dtype.name, "shape": list(x.shape), "sha256": _hash(plain(x).tobytes())}
        for n, x in sorted(arrays.items())
    }
    body = body | {"arrays": index, "files": {NPZ: _hash(packed)}}
    body["checksum"] = _checksum(body)
    new = {NPZ: packed, JSON: _render(body).encode()}
    for name, content in new.items():
        (path / f"{name}.part").write_bytes(content)
    for name in new:
        os.replace(path / f"{name}.part", path / name)


def read(path: str | Path) -> Stored:
    """The content of an export, with every checksum verified.

    Args:
      path: the folder.

    Returns:
      A :class:`Stored`; its arrays are numpy's.

    Raises:
      ValueError: a file is missing, of another schema or version, or differs from its checksum in any bit; the message
        names the file, and the array where it is known.

    Example:
      >>> import tempfile, jax.numpy as jnp, xbar_jax as xb
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     xb.hardware.export.save(xb.program(jnp.ones((3, 2)), xb.Hardware()), folder)
      ...     stored = xb.hardware.export.read(folder)
      >>> stored.arrays["tile/g_plus"].shape
      (1, 1, 3, 2)
    """
    path = Path(path)
    body = _body(path / JSON)
    file = path / NPZ
    packed = _bytes(file)
    try:
        archive = zipfile.ZipFile(io.BytesIO(packed))
    # A broken archive fails in as many ways as there are fields in it, here and below.
    except Exception as e:
        raise ValueError(f"export: {file} is broken ({e})") from e
    arrays = {name: _one(file, archive, name, entry) for name, entry in body["arrays"].items()}
    if _hash(packed) != body["files"].get(NPZ):
        raise ValueError(f"export: {file} differs from its checksum, outside the arrays that {JSON} lists")
    return Stored(body, arrays)


def _body(file: Path) -> dict[str, Any]:
    broken = f"export: {file} differs from its checksum or is no export"
    try:
        text = _bytes(file).decode()
        body = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as e:
        raise ValueError(broken) from e
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise ValueError(broken)
    if body.get("version") != VERSION:
        raise ValueError(f"export: {file}: version must be {VERSION}, got {body.get('version')}")
    # The text itself is compared too, so that no bit of it is free.
    if body.get("checksum") != _checksum(body) or text != _render(body):
        raise ValueError(broken)
    return body


def _one(file: Path, archive: zipfile.ZipFile, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    if f"{name}.npy" not in archive.NameToInfo:
        raise ValueError(f"export: {file}: array {name} is missing")
    try:
        with archive.open(f"{name}.npy") as f:
            x = typed(np.lib.format.read_array(f, allow_pickle=False), entry["dtype"])
    except Exception as e:
        raise ValueError(f"export: {file}: array {name} is broken ({e})") from e
    if list(x.shape) != entry["shape"] or _hash(plain(x).tobytes()) != entry["sha256"]:
        raise ValueError(f"export: {file}: array {name} differs from its checksum")
    return x


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as e:
        raise ValueError(f"export: {file} cannot be read: {e.strerror}") from e


def _pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as z:
        for name, x in sorted(arrays.items()):
            one = io.BytesIO()
            np.lib.format.write_array(one, plain(x), allow_pickle=False)
            z.writestr(zipfile.ZipInfo(f"{name}.npy", _TIME), one.getvalue())
    return buffer.getvalue()


def _checksum(body: Mapping[str, Any]) -> str:
    return _hash(json.dumps({k: v for k, v in body.items() if k != "checksum"}, sort_keys=True).encode())


def _render(body: Mapping[str, Any]) -> str:
    return json.dumps(body, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
