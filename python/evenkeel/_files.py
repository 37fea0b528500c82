"""Arguments of `open`: paths, budgets and element types, in the form that the reader expects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from io import IOBase
from typing import Any, Union

import numpy as np
from numpy.lib import format as npy

from evenkeel import _core
from evenkeel._core import Budget

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Paths = Union[PathLike, Iterable[PathLike]]
AnyBudget = Union[int, str, Budget, None]


def expand(paths: Paths, one: Callable[[bytes], list[bytes]] = _core.expand_paths) -> list[bytes]:
    """The files that a path or pattern, or several of them, name. `one` expands one of them."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        return one(os.fsencode(paths))
    if isinstance(paths, IOBase) or not isinstance(paths, Iterable):
        raise _not_a_path(paths)
    found = []
    for path in paths:
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise _not_a_path(path)
        found += one(os.fsencode(path))
    if not found:
        raise ValueError("open: no file was named")
    return found


def _not_a_path(value: Any) -> TypeError:
    shown = repr(value)
    return TypeError(
        "open: a path is a string, bytes or a pathlib.Path, and several of them are a list; got"
        f" {shown if len(shown) < 60 else shown[:57] + '...'}"
    )


def is_url(path: bytes) -> bool:
    """Whether this names an object on a server, not a file."""
    return path.startswith((b"http://", b"https://", b"s3://", b"gs://"))


def whole_path(path: bytes) -> bytes:
    """A path that means the same in another folder."""
    return path if is_url(path) else os.path.abspath(path)


def base_name(path: bytes) -> bytes:
    """The last part of a path; of a web address, without its query."""
    if path.startswith((b"http://", b"https://")):
        path = path.partition(b"?")[0]
    return path.rpartition(b"/")[2]


def require_no_secrets(paths: list[bytes]) -> None:
    """Called before paths are pickled: the query of a URL may grant access to the object."""
    for path in paths:
        if path.startswith((b"http://", b"https://")) and b"?" in path:
            raise ValueError(
                f"pickle {printable(path)}: the URL has a query, which may hold a signature and"
                " must not be stored\nhint: open it again in the other process, or use s3:// or"
                " gs:// with credentials"
            )


def names_weights(paths: Paths) -> bool:
    """Whether this is a single name, of model weights."""
    if not isinstance(paths, (str, bytes, os.PathLike)):
        return False
    endings = (b".safetensors", b".safetensors.index.json", b".gguf")
    return base_name(os.fsencode(paths)).endswith(endings)


def cache_bytes(cache: int | str | bool | None) -> int | None:
    """The value of `cache=` for the reader: None for all that the budget leaves."""
    if cache is None or cache is True or disk_cache(cache):
        return None
    if cache is False:
        return 0
    try:
        return _core.Budget(cache).limit
    except (TypeError, ValueError) as error:
        raise type(error)(
            f'open: cache must be a number of bytes, a text such as "64MiB", True or False; got'
            f" {cache!r}"
        ) from None


def disk_cache(cache: int | str | bool | None) -> str:
    """The folder and the size of a cache on disk, "/nvme/ek:200GiB"; "" if it is something else."""
    return cache if isinstance(cache, str) and ":" in cache else ""


def engine_name(value: Any) -> str:
    """Only checks the type: the reader checks the name."""
    if isinstance(value, str):
        return value
    raise TypeError(f'engine must be the name of an engine, such as "auto"; got {value!r}')


def page_cache_name(value: Any) -> str:
    """Only checks the type: the reader checks the name."""
    if isinstance(value, str):
        return value
    raise TypeError(f'page_cache must be "spare" or "fill", not {value!r}')


def dtype_of(name: Any) -> np.dtype[Any]:
    """Accepts what np.dtype accepts, and "bfloat16" if ml_dtypes is installed."""
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
        raise ValueError(f"open: {dtype} holds Python objects, which a raw file cannot hold")
    if dtype.subdtype is not None:
        raise ValueError(f"open: {dtype} is an array itself\nhint: pass dtype and shape separately")
    if dtype.itemsize == 0:
        raise ValueError(f"open: elements of {dtype} hold no bytes")
    return dtype


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether the reader knows such numbers itself."""
    sizes = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
    return dtype.isnative and dtype.itemsize in sizes.get(dtype.kind, ()) and not dtype.fields


def name_for_reader(dtype: np.dtype[Any]) -> str:
    """Other types are read byte for byte as they are stored, and get their type back afterwards."""
    if is_plain(dtype) or dtype.name == "bfloat16":
        return dtype.name
    return f"V{dtype.itemsize}"


def stored_dtype(paths: list[bytes], member: str = "") -> np.dtype[Any] | None:
    """The dtype in NPY headers, if the C++ library has no name for it: fields, dates, text, numbers
    in the other byte order. None otherwise: the reader finds the dtype, or the error."""
    first = _npy_dtype(paths[0], member)
    if first is None or is_plain(first):
        return None
    for path in paths[1:]:
        other = _npy_dtype(path, member)
        if other != first:
            raise ValueError(
                f"open {printable(path)}: has {other}, but {printable(paths[0])} has {first}\n"
                "hint: files of one array must agree in all except the number of rows"
            )
    return first


def printable(path: str | bytes) -> str:
    """A name that is safe to print: a terminal acts on control characters."""
    name = os.fsdecode(path)
    if name.startswith(("http://", "https://")) and "?" in name:
        name = name.partition("?")[0] + "?..."  # it may contain signatures and tokens
    return name if name.isprintable() else ascii(name)[1:-1]


def short_repr(kind: str, paths: list[bytes], text: str) -> str:
    """One line of fewer than 100 characters."""
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    name = os.path.basename(printable(paths[0]))
    room = max(16, 99 - len(f"<evenkeel.{kind} {more}: {text}>"))
    if len(name) > room:
        name = "..." + name[3 - room :]
    line = f"<evenkeel.{kind} {name}{more}: {text}>"
    return line if len(line) < 100 else line[:95] + "...>"


def _npy_dtype(path: bytes, member: str) -> np.dtype[Any] | None:
    """None for a file that is not NPY. The header is read by the C++ library, which evaluates
    nothing; NumPy only sees an element type that is well-formed."""
    found = _core.npy_descr(path, member)
    if found is None:
        return None
    descr, encoding, size = found
    try:
        dtype: np.dtype[Any] = npy.descr_to_dtype(_decoded(descr, encoding))
    except Exception as error:  # NumPy raises many kinds, and none names the file
        raise _unknown_type(path, size, f"NumPy says {error}") from None
    if dtype.itemsize != size:
        raise _unknown_type(path, size, f"NumPy makes {dtype.itemsize} bytes of it")
    return dtype


def _unknown_type(path: bytes, size: int, reason: str) -> ValueError:
    shown = reason if reason.isprintable() else ascii(reason)[1:-1]
    return ValueError(
        f"open {printable(path)}: bad NPY header: the element type of {size} bytes has no dtype:"
        f" {shown}\nhint: read the elements as opaque bytes: dtype='V{size}'"
    )


def _decoded(descr: Any, encoding: str) -> Any:
    """The same with strings instead of bytes, and with escapes resolved."""
    if isinstance(descr, (tuple, list)):
        return type(descr)(_decoded(item, encoding) for item in descr)
    if not isinstance(descr, bytes):
        return descr
    text = descr.decode(encoding)
    if "\\" not in text:
        return text
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
