"""Files and folders that hold several arrays: finds the requested one and the module that reads
it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Union

import numpy as np

from evenkeel import _core
from evenkeel._array import Array
from evenkeel._core import Budget
from evenkeel._files import (
    cache_bytes,
    disk_cache,
    is_plain,
    is_url,
    name_for_reader,
    page_cache_name,
    printable,
    stored_dtype,
    whole_path,
)
from evenkeel._ragged import Ragged

# budget, engine, cache, page_cache: as `open` takes them.
How = tuple[Any, str, Any, str]
Opened = Union[Array, Ragged]
MOST_JSON = 64 << 20


class Member(NamedTuple):
    """An array of a container."""

    name: str
    type: str
    shape: tuple[int, ...]
    list: bool = False  # rows of different lengths
    refused: str = ""  # why it cannot be read


class PlacedArray(NamedTuple):
    """Rows at places in files: (file, offset, rows) each, in the order of the rows."""

    format: str
    files: list[bytes]
    places: np.ndarray[Any, np.dtype[np.uint64]]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def open_container(files: list[bytes], name: str | None, column: str | None, how: How) -> Any:
    """None if these are not files or folders of arrays by name."""
    if name is not None and column is not None:
        raise ValueError("open: name and column mean the same; give one of them")
    wanted = name if name is not None else column
    if wanted is not None and not isinstance(wanted, str):
        raise TypeError(f"open: the name of an array must be a string, not {wanted!r}")
    # Looking at an object costs a request. The reader itself handles a container of one array.
    kind = "" if wanted is None and is_url(files[0]) else kind_of(files[0])
    if kind == "" and not wanted:
        return None
    if kind in ("hdf5", "zarr", "mds", "litdata"):
        if len(files) > 1:
            raise ValueError(
                f"open: {len(files):,} {kind} containers at once; open them one by one, and give a"
                " Loader all of them"
            )
        return _module_of(kind).open(os.path.abspath(files[0]), wanted or "", how)
    return _open_native(files, kind, wanted or "", how)


def kind_of(path: bytes) -> str:
    """ "arrow", "npz", "fits", "nifti", "hdf5", "zarr", "mds", "litdata", or "" for anything
    else."""
    if not os.path.isdir(path):
        kind = _core.kind_of(path)
        if kind == "hdf5" and is_url(path):
            raise ValueError(
                f"open {printable(path)}: h5py reads HDF5 from local files only\n"
                "hint: download it first"
            )
        return kind
    if any(_has(path, file) for file in (b"state.json", b"dataset_dict.json")):
        return "arrow"
    if any(_has(path, file) for file in (b"zarr.json", b".zarray", b".zgroup")):
        return "zarr"
    if _has(path, b"index.json"):
        return "mds" if "shards" in read_json(os.path.join(path, b"index.json")) else "litdata"
    return ""


def members(path: Any) -> list[Member]:
    """The arrays of a container. Empty for a file that holds one array without a name."""
    file = os.fsencode(path)
    kind = kind_of(file)
    if kind in ("hdf5", "zarr", "mds", "litdata"):
        found: list[Member] = _module_of(kind).members(file)
        return found
    return [Member(*row) for row in _core.members(file, True) or ()] if kind else []


def _module_of(kind: str) -> Any:
    from importlib import import_module

    return import_module(
        {"mds": "evenkeel._shards", "litdata": "evenkeel._shards"}.get(kind, f"evenkeel._{kind}")
    )


def _has(folder: bytes, file: bytes) -> bool:
    return os.path.isfile(os.path.join(folder, file))


def _open_native(files: list[bytes], kind: str, name: str, how: How) -> Opened:
    """Formats that the C++ library reads by itself."""
    how = (Budget(how[0]), *how[1:])
    if kind == "arrow":
        columns = [Member(*row) for row in _core.members(files[0], False) or ()]
        chosen = [c for c in columns if c.name == name or (not name and len(columns) == 1)]
        if chosen and chosen[0].list and not chosen[0].refused:
            column = chosen[0].name
            values, offsets = (
                _named(files, f"{column}.{part}", how) for part in ("values", "offsets")
            )
            return Ragged(values, offsets)
    array = _named(files, name, how)
    if kind == "npz" and array.dtype.kind == "V":
        dtype = stored_dtype(files, name)  # fields, dates, text
        if dtype is not None and dtype.itemsize == array.dtype.itemsize:
            array = _named(files, name, how, dtype)
    return array


def _named(files: list[bytes], name: str, how: How, dtype: np.dtype[Any] | None = None) -> Array:
    budget, engine, cache, page_cache = how
    reader = _core.open(
        files,
        Budget(budget),
        engine,
        None,
        [],
        0,
        cache_bytes(cache),
        page_cache_name(page_cache),
        disk_cache(cache),
        name,
    )
    again = ([whole_path(file) for file in files], name, how, dtype)
    return array_of(reader, files, how, dtype, (_named, again))


def array_of(
    reader: Any, files: list[bytes], how: How, dtype: np.dtype[Any] | None, reopen: Any
) -> Array:
    """An array for a reader of _core. `dtype`: that of the elements if the reader reports
    bytes."""
    budget, engine, cache, page_cache = how
    if dtype is None:
        # The reader calls "record[12]" what NumPy calls "V12".
        dtype = np.dtype(reader.dtype.replace("record[", "V").rstrip("]"))
    return Array(files, budget, engine, dtype, reader.shape, 0, cache, page_cache, reader, reopen)


def as_read(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Numbers are returned in the byte order of this machine."""
    native = stored.newbyteorder("=")
    swapped = is_plain(native) and not stored.isnative
    return native if swapped or stored.isnative else stored


def open_placed(made: PlacedArray, how: How, reopen: Any) -> Array:
    budget, engine, cache, page_cache = how
    dtype = as_read(made.dtype)
    reader = _core.open_places(
        made.format,
        made.files,
        np.ascontiguousarray(made.places, dtype=np.uint64).reshape(-1, 3),
        name_for_reader(dtype),
        made.dtype.str.startswith(">"),
        list(made.shape),
        Budget(budget),
        engine,
        cache_bytes(cache),
        page_cache_name(page_cache),
    )
    return array_of(reader, made.files, how, dtype, reopen)


def open_chunks(
    format: str, grid: dict[str, Any], stored: np.dtype[Any], how: How, reopen: Any
) -> Array:
    """An array in chunks that must be decoded; `grid` is what `_core.open_chunks` takes."""
    budget, engine, cache, page_cache = how
    dtype = as_read(stored)
    reader = _core.open_chunks(
        format=format,
        grid=grid,
        dtype=name_for_reader(dtype),
        big_endian=stored.str.startswith(">"),
        budget=Budget(budget),
        engine=engine,
        cache=cache_bytes(cache),
        page_cache=page_cache_name(page_cache),
    )
    array = array_of(reader, [grid["folder"]], how, dtype, reopen)
    array._chunk_rows = min(grid["chunk"][0], len(array))
    return array


def no_such(path: bytes, name: str, names: list[str]) -> ValueError:
    """The error for a name that does not exist, or for a missing name if there are several
    arrays."""
    shown = ", ".join(names[:12]) + (f", and {len(names) - 12:,} more" if len(names) > 12 else "")
    there = f"it holds {shown}" if names else "there are no arrays in it"
    if not name:
        return ValueError(
            f'open {printable(path)}: which array? {there}\nhint: pass its name: name="..."'
        )
    return ValueError(f"open {printable(path)}: there is no array {name!r}: {there}")


def read_json(path: bytes) -> dict[str, Any]:
    """An object of a small file."""
    import json

    size = os.path.getsize(path)
    if size > MOST_JSON:
        raise ValueError(f"open {printable(path)}: {size:,} bytes of JSON are too many")
    with open(path, "rb") as file:
        try:
            found = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"open {printable(path)}: it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"open {printable(path)}: it is not a JSON object")
    return found


def needs(package: str, what: str, pip: str = "") -> ImportError:
    """The error for a package that is not installed."""
    return ImportError(f"open: {what} is read with {package}\nhint: pip install {pip or package}")
