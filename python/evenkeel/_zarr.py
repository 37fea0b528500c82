"""Zarr, versions 2 and 3: chunks that are not compressed, also in shards, read in place."""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np

from evenkeel._array import Array
from evenkeel._containers import How, Member, PlacedArray, no_such, open_placed, read_json
from evenkeel._files import printable

_MOST_CHUNKS = 1 << 22
_MOST_NAMES = 1000
_NUMBERS = {f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"bool", "float16", "float32", "float64", "complex64", "complex128"}
_ABSENT = np.uint64((1 << 64) - 1)  # of a shard's index: a chunk that was never written


class _Refused(ValueError):
    pass


class _Layout(NamedTuple):
    """What the metadata of an array says."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]  # of a file
    dtype: np.dtype[Any]
    prefix: str  # of a chunk's name
    separator: str
    inner: tuple[int, ...] | None = None  # chunks in a shard
    index_at_end: bool = True
    index_checked: bool = False  # its index has four bytes of a checksum
    dimensions: tuple[str, ...] = ()


def open(path: bytes, name: str, how: How) -> Array:
    folder, layout = _find(path, name)
    try:
        made = _placed(folder, layout)
    except _Refused as error:
        raise ValueError(f"open {printable(folder)}: {error}") from None
    return open_placed(made, how, (open, (path, name, how)))


def members(path: bytes) -> list[Member]:
    found = []
    for name in _names(path):
        try:
            layout = _layout(_inside(path, name))
            found.append(Member(name, str(layout.dtype), layout.shape))
        except ValueError as error:
            found.append(Member(name, "", (), False, str(error)))
    return found


def dimensions(path: bytes, name: str) -> tuple[str, ...]:
    """What the axes are called; empty if they have no names."""
    return _find(path, name)[1].dimensions


def _find(path: bytes, name: str) -> tuple[bytes, _Layout]:
    if not name and not _is_array(path):
        names = _names(path)
        if len(names) != 1:
            raise no_such(path, "", names)
        name = names[0]
    folder = _inside(path, name) if name else path
    if not _is_array(folder):
        raise no_such(path, name, _names(path))
    return folder, _layout(folder)


def _inside(path: bytes, name: str) -> bytes:
    parts = name.strip("/").split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"open {printable(path)}: {name!r} is not the name of an array in it")
    return os.path.join(path, *(os.fsencode(part) for part in parts))


def _is_array(folder: bytes) -> bool:
    if os.path.isfile(os.path.join(folder, b".zarray")):
        return True
    meta = os.path.join(folder, b"zarr.json")
    return os.path.isfile(meta) and read_json(meta).get("node_type") == "array"


def _names(path: bytes) -> list[str]:
    """The arrays of a group and of its groups."""
    found: list[str] = []
    left = [(path, "")]
    while left and len(found) < _MOST_NAMES:
        folder, prefix = left.pop()
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if not entry.is_dir(follow_symlinks=False):
                continue
            name = prefix + os.fsdecode(entry.name)
            if _is_array(entry.path):
                found.append(name)
            elif any(
                os.path.isfile(os.path.join(entry.path, m)) for m in (b".zgroup", b"zarr.json")
            ):
                left.append((entry.path, name + "/"))
    return found


def _layout(folder: bytes) -> _Layout:
    try:
        old = os.path.join(folder, b".zarray")
        if os.path.isfile(old):
            return _version_2(folder, read_json(old))
        return _version_3(read_json(os.path.join(folder, b"zarr.json")))
    except _Refused as error:
        raise ValueError(f"open {printable(folder)}: {error}") from None
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"open {printable(folder)}: bad Zarr metadata: {type(error).__name__}: {error}"
        ) from None


def _lengths(values: Any, least: int) -> tuple[int, ...]:
    found = tuple(int(value) for value in values)
    if any(length < least or length != value for length, value in zip(found, values)):
        raise _Refused(f"bad lengths of axes: {values}")
    return found


def _compressed(what: Any) -> _Refused:
    return _Refused(
        f"its chunks are encoded with {what}, and are not plain numbers\n"
        "hint: write a copy without compression: zarr.create_array(..., compressors=None)"
    )


def _version_2(folder: bytes, meta: dict[str, Any]) -> _Layout:
    if meta.get("compressor") or meta.get("filters"):
        codec = meta.get("compressor") or meta["filters"][0]
        raise _compressed(codec.get("id"))
    if meta.get("order", "C") != "C" and len(meta["shape"]) > 1:
        raise _Refused("its chunks are in Fortran order")
    dtype = np.dtype(meta["dtype"])
    if dtype.hasobject:
        raise _Refused(f"it holds {dtype}, not numbers of a fixed width")
    attributes = os.path.join(folder, b".zattrs")
    names = read_json(attributes).get("_ARRAY_DIMENSIONS", ()) if os.path.isfile(attributes) else ()
    return _Layout(
        _lengths(meta["shape"], 0),
        _lengths(meta["chunks"], 1),
        dtype,
        "",
        _separator(meta.get("dimension_separator", ".")),
        dimensions=tuple(str(name) for name in names),
    )


def _separator(text: Any) -> str:
    if text not in (".", "/"):
        raise _Refused(f"names of chunks are separated by {text!r}")
    return str(text)


def _version_3(meta: dict[str, Any]) -> _Layout:
    if meta["data_type"] not in _NUMBERS:
        raise _Refused(f"it holds {meta['data_type']}, not numbers of a fixed width")
    if meta["chunk_grid"]["name"] != "regular":
        raise _Refused(f"its chunks are {meta['chunk_grid']['name']}")
    encoding = meta["chunk_key_encoding"]
    default = encoding["name"] == "default"
    separator = encoding.get("configuration", {}).get("separator", "/" if default else ".")
    chunks = _lengths(meta["chunk_grid"]["configuration"]["chunk_shape"], 1)
    inner, at_end, checked, codecs = None, True, False, list(meta["codecs"])
    if codecs and codecs[0]["name"] == "sharding_indexed" and len(codecs) == 1:
        sharding = codecs[0]["configuration"]
        inner = _lengths(sharding["chunk_shape"], 1)
        at_end = sharding.get("index_location", "end") == "end"
        index = list(sharding["index_codecs"])
        checked = len(index) == 2 and index[1]["name"] == "crc32c"
        if _plain(index[:1]) != "little" or len(index) > 1 + checked:
            raise _compressed(index[-1]["name"])
        codecs = list(sharding["codecs"])
    order = _plain(codecs)
    dtype = np.dtype(meta["data_type"]).newbyteorder(">" if order == "big" else "<")
    names = meta.get("dimension_names") or ()
    return _Layout(
        _lengths(meta["shape"], 0),
        chunks,
        dtype,
        "c" if default else "",
        _separator(separator),
        inner,
        at_end,
        checked,
        tuple(str(name) for name in names) if all(names) else (),
    )


def _plain(codecs: list[Any]) -> str:
    """The byte order, if the codecs do nothing but store numbers."""
    for codec in codecs:
        if codec["name"] != "bytes":
            raise _compressed(codec["name"])
    if len(codecs) != 1:
        raise _Refused("its chunks have no codec that stores bytes")
    order: str = codecs[0].get("configuration", {}).get("endian", "little")
    return order


def _placed(folder: bytes, layout: _Layout) -> PlacedArray:
    shape, chunks = layout.shape, layout.chunks
    stored = layout.inner or chunks
    if not shape or 0 in shape:
        raise _Refused(f"an array of shape {shape} has no rows to read")
    if len(chunks) != len(shape) or len(stored) != len(shape):
        raise _Refused(f"chunks of shape {chunks} in an array of shape {shape}")
    if chunks[1:] != shape[1:] or stored[1:] != shape[1:]:
        raise _Refused(
            f"its chunks of shape {stored} cut the rows of shape {shape[1:]}\n"
            "hint: write a copy with chunks of whole rows"
        )
    count, parts = -(-shape[0] // chunks[0]), -(-shape[0] // stored[0])
    if max(count, parts) > _MOST_CHUNKS:
        raise _Refused(f"{max(count, parts):,} chunks are too many")
    zeros = [0] * (len(shape) - 1)
    files, places = [], []
    for number in range(count):
        key = layout.separator.join(str(part) for part in (number, *zeros))
        key = f"{layout.prefix}{layout.separator}{key}" if layout.prefix else key
        file = os.path.join(folder, *(os.fsencode(part) for part in key.split("/")))
        rows = min(chunks[0], shape[0] - number * chunks[0])
        if not os.path.isfile(file):
            raise _Refused(
                f"chunk {key} was never written, and stands for the fill value\n"
                "hint: write all of it, or copy it with write_empty_chunks"
            )
        if layout.inner is None:
            places.append(np.array([(number, 0, rows)], dtype=np.uint64))
        else:
            places.append(_shard(file, number, layout, rows))
        files.append(file)
    return PlacedArray("zarr", files, np.concatenate(places), layout.dtype, shape)


def _shard(
    file: bytes, file_number: int, layout: _Layout, rows: int
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Where the chunks of a shard lie, as PlacedArray says it."""
    import builtins

    assert layout.inner is not None
    step = layout.inner[0]
    count = layout.chunks[0] // step
    if count * step != layout.chunks[0]:
        raise _Refused(f"shards of shape {layout.chunks} and chunks of shape {layout.inner}")
    length = 16 * count + 4 * layout.index_checked
    size = os.path.getsize(file)
    if size < length:
        raise _Refused(f"{printable(file)} has {size:,} bytes, too few for its index of {length:,}")
    with builtins.open(file, "rb") as shard:
        shard.seek(size - length if layout.index_at_end else 0)
        index = np.frombuffer(shard.read(16 * count), dtype="<u8").reshape(-1, 2)
    if len(index) != count:
        raise _Refused(f"{printable(file)} became shorter")
    row_bytes = math.prod(layout.shape[1:]) * layout.dtype.itemsize
    index = index[: -(-rows // step)]
    if np.any(index[:, 0] == _ABSENT):
        raise _Refused(f"a chunk of {printable(file)} was never written")
    odd = index[index[:, 1] != step * row_bytes, 1]
    if len(odd):
        raise _Refused(f"a chunk of {printable(file)} has {int(odd[0]):,} bytes")
    places = np.full((len(index), 3), step, dtype=np.uint64)
    places[:, 0] = file_number
    places[:, 1] = index[:, 0]
    places[-1, 2] = rows - step * (len(index) - 1)
    return places
