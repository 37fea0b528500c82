"""Paths and element types, as the reader takes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Any, Union

import numpy as np

from evenkeel import _core

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Paths = Union[PathLike, Iterable[PathLike]]


def expand(paths: Paths) -> list[bytes]:
    """A path or pattern, or several of them, as the files they name."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        return _core.expand_paths(os.fsencode(paths))
    found = [file for path in paths for file in _core.expand_paths(os.fsencode(path))]
    if not found:
        raise ValueError("open: no file was named")
    return found


def dtype_of(name: Any) -> np.dtype[Any]:
    """What np.dtype accepts, and "bfloat16" where ml_dtypes is installed."""
    if isinstance(name, str) and name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ValueError(
                "open: NumPy has no bfloat16 of its own\nhint: pip install ml_dtypes"
            ) from None
        name = ml_dtypes.bfloat16
    dtype: np.dtype[Any] = np.dtype(name)
    if dtype.hasobject:
        raise ValueError(f"open: {dtype} holds Python objects, which no raw file does")
    if dtype.subdtype is not None:
        raise ValueError(f"open: {dtype} is an array itself\nhint: give dtype and shape apart")
    if dtype.itemsize == 0:
        raise ValueError(f"open: elements of {dtype} hold no bytes")
    return dtype


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether the reader knows such numbers itself."""
    sizes = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
    return dtype.isnative and dtype.itemsize in sizes.get(dtype.kind, ()) and not dtype.fields


def name_for_reader(dtype: np.dtype[Any]) -> str:
    """Others are read as they are stored, byte for byte, and get their type back afterwards."""
    if is_plain(dtype) or dtype.name == "bfloat16":
        return dtype.name
    return f"V{dtype.itemsize}"


def stored_dtype(paths: list[bytes]) -> np.dtype[Any] | None:
    """What NPY headers say where the reader's own words are too few: fields, dates, text, numbers
    in the other byte order. None for all else: the reader says what it finds, or what is wrong."""
    first = _npy_dtype(paths[0])
    if first is None or first.hasobject or first.itemsize == 0 or is_plain(first):
        return None
    for path in paths[1:]:
        other = _npy_dtype(path)
        if other != first:
            raise ValueError(
                f"open {_shown(path)}: has {other}, but {_shown(paths[0])} has {first}\n"
                "hint: files of one array must agree in all but their number of rows"
            )
    return first


def _shown(path: bytes) -> str:
    """A name as it may stand in a message: a terminal obeys some characters."""
    name = os.fsdecode(path)
    return name if name.isprintable() else ascii(name)[1:-1]


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _npy_dtype(path: bytes) -> np.dtype[Any] | None:
    from numpy.lib import format as npy

    try:
        # Without waiting for a writer: what is no regular file is the reader's to refuse.
        with open(path, "rb", buffering=4096, opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            version = npy.read_magic(file)
            if version == (1, 0):
                return npy.read_array_header_1_0(file)[2]
            return npy.read_array_header_2_0(file)[2]
    except (OSError, ValueError):
        return None
