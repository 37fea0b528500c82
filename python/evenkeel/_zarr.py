"""Zarr, versions 2 and 3, also in shards: plain chunks are read in place, others decoded."""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np

from evenkeel import _core
from evenkeel._array import Array
from evenkeel._containers import (
    How,
    Member,
    PlacedArray,
    no_such,
    open_chunks,
    open_placed,
    read_json,
)
from evenkeel._files import printable
from evenkeel._zarr_codecs import (
    COMPRESSIONS,
    Codecs,
    Refused,
    fill_bytes,
    lengths,
    libraries,
    named,
    read_codecs,
    unknown,
)

_MOST_CHUNKS = 1 << 22
_MOST_NAMES = 1000
_NUMBERS = {f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"bool", "float16", "float32", "float64", "complex64", "complex128"}
# Of the metadata of an array of version 3.
_KEYS = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"}
_KEYS |= {"fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"}
_ABSENT = np.uint64((1 << 64) - 1)  # in the index of a shard: a chunk that was never written


class _Decode(Exception):
    """The rows are not stored plainly in their files, and must be decoded."""


class _Layout(NamedTuple):
    """The metadata of an array."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]  # of a file
    dtype: np.dtype[Any]
    prefix: str  # of a chunk's name
    separator: str
    fill: bytes  # an element that was never written, as it would be stored
    codecs: Codecs = Codecs()
    inner: tuple[int, ...] | None = None  # chunks in a shard
    index_at_end: bool = True
    index_checked: bool = False  # its index has four bytes of a checksum
    dimensions: tuple[str, ...] = ()


def open(path: bytes, name: str, how: How) -> Array:
    folder, layout = _find(path, name)
    again = open, (path, name, how)
    try:
        _require_rows(layout)
        try:
            return open_placed(_placed(folder, layout), how, again)
        except _Decode:
            return open_chunks("zarr", _grid(folder, layout), layout.dtype, how, again)
    except Refused as error:
        raise ValueError(f"open {printable(folder)}: {error}") from None


def _grid(folder: bytes, layout: _Layout) -> dict[str, Any]:
    """The grid argument of `_core.open_chunks`."""
    return {
        "folder": folder,
        "prefix": layout.prefix,
        "separator": layout.separator,
        "shape": list(layout.shape),
        "chunk": list(layout.inner or layout.chunks),
        "shard": list(layout.chunks) if layout.inner else [],
        "index_at_end": layout.index_at_end,
        "index_checked": layout.index_checked,
        "order": list(layout.codecs.order),
        "compression": layout.codecs.compression,
        "checked": layout.codecs.checked,
        "fill": layout.fill,
        "libraries": libraries(layout.codecs.compression),
    }


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
    """The names of the axes; empty if they have none."""
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
    old, attributes = (os.path.join(folder, file) for file in (b".zarray", b".zattrs"))
    version_2 = os.path.isfile(old)
    meta = read_json(old if version_2 else os.path.join(folder, b"zarr.json"))
    more = read_json(attributes) if version_2 and os.path.isfile(attributes) else {}
    try:
        return _version_2(meta, more) if version_2 else _version_3(meta)
    except Refused as error:
        raise ValueError(f"open {printable(folder)}: {error}") from None
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise ValueError(
            f"open {printable(folder)}: bad Zarr metadata: {type(error).__name__}: {error}"
        ) from None


def _require_version(meta: dict[str, Any], version: int) -> None:
    if meta.get("zarr_format") != version:
        raise Refused(f"its metadata has zarr_format {meta.get('zarr_format')}, not {version}")


def _version_2(meta: dict[str, Any], attributes: dict[str, Any]) -> _Layout:
    _require_version(meta, 2)
    if meta.get("filters"):
        raise Refused(
            f"its numbers pass through the filter {meta['filters'][0].get('id')}\n"
            "hint: write a copy without filters: zarr.create_array(..., filters=None)"
        )
    compressor = (meta.get("compressor") or {}).get("id")
    if compressor is not None and compressor not in COMPRESSIONS:
        raise unknown(compressor)
    shape = lengths(meta["shape"], 0)
    order = meta.get("order", "C")
    if order not in ("C", "F"):
        raise Refused(f"its chunks are in order {order!r}")
    described = meta["dtype"]
    if isinstance(described, list):
        described = [tuple(field) for field in described]
    dtype = np.dtype(described)
    if not described or dtype.hasobject or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise Refused(f"it holds {described}, not numbers of a fixed width")
    reverse = order == "F" and len(shape) > 1
    return _Layout(
        shape,
        lengths(meta["chunks"], 1),
        dtype,
        "",
        _separator(meta.get("dimension_separator", ".")),
        fill_bytes(meta.get("fill_value"), dtype),
        Codecs(
            COMPRESSIONS[compressor] if compressor else "",
            order=tuple(reversed(range(len(shape)))) if reverse else (),
        ),
        dimensions=tuple(str(name) for name in attributes.get("_ARRAY_DIMENSIONS", ())),
    )


def _separator(text: Any) -> str:
    if text not in (".", "/"):
        raise Refused(f"names of chunks are separated by {text!r}")
    return str(text)


def _version_3(meta: dict[str, Any]) -> _Layout:
    _require_version(meta, 3)
    for key, value in meta.items():
        ignorable = isinstance(value, dict) and value.get("must_understand") is False
        if key not in _KEYS and not ignorable:
            raise Refused(f"its metadata has {key!r}, which is not known here")
    kind, _ = named(meta["data_type"])
    if kind not in _NUMBERS:
        raise Refused(f"it holds {kind}, not numbers of a fixed width")
    regular, grid = named(meta["chunk_grid"])
    if regular != "regular":
        raise Refused(f"its chunks are {regular}")
    if meta.get("storage_transformers"):
        transformer, _ = named(meta["storage_transformers"][0])
        raise Refused(f"its chunks pass through the storage transformer {transformer}")
    encoding, keys = named(meta["chunk_key_encoding"])
    if encoding not in ("default", "v2"):
        raise Refused(
            f"its chunks have names of the kind {encoding!r}, which is not known here\n"
            "hint: the kinds 'default' and 'v2' are known"
        )
    default = encoding == "default"
    separator = keys.get("separator", "/" if default else ".")
    chunks = lengths(grid["chunk_shape"], 1)
    inner, at_end, checked, codecs = None, True, False, list(meta["codecs"])
    if codecs and named(codecs[0])[0] == "sharding_indexed":
        if len(codecs) > 1:
            raise Refused(f"its shards are encoded with {named(codecs[1])[0]} as a whole")
        _, sharding = named(codecs[0])
        inner = lengths(sharding["chunk_shape"], 1)
        location = sharding.get("index_location", "end")
        if location not in ("start", "end"):
            raise Refused(f"the indexes of its shards are at {location!r}")
        at_end = location == "end"
        index = read_codecs(list(sharding["index_codecs"]), 0)
        if index.compression or index.order or index.big_endian:
            raise Refused("the indexes of its shards are compressed, or big-endian")
        checked = index.checked
        codecs = list(sharding["codecs"])
    stored = read_codecs(codecs, len(chunks))
    dtype = np.dtype(kind).newbyteorder(">" if stored.big_endian else "<")
    names = meta.get("dimension_names") or ()
    return _Layout(
        lengths(meta["shape"], 0),
        chunks,
        dtype,
        "c" if default else "",
        _separator(separator),
        fill_bytes(meta.get("fill_value"), dtype),
        stored,
        inner,
        at_end,
        checked,
        tuple(str(name) for name in names) if all(names) else (),
    )


def _require_rows(layout: _Layout) -> None:
    shape, chunks = layout.shape, layout.chunks
    if not shape or 0 in shape:
        raise Refused(f"an array of shape {shape} has no rows to read")
    if len(chunks) != len(shape) or len(layout.inner or chunks) != len(shape):
        raise Refused(f"chunks of shape {chunks} in an array of shape {shape}")


def _placed(folder: bytes, layout: _Layout) -> PlacedArray:
    """Chunks of whole rows that are stored plainly. Raises _Decode for others."""
    shape, chunks = layout.shape, layout.chunks
    stored = layout.inner or chunks
    if layout.codecs.compression or layout.codecs.checked or layout.codecs.order:
        raise _Decode
    if chunks[1:] != shape[1:] or stored[1:] != shape[1:]:
        raise _Decode
    count, parts = -(-shape[0] // chunks[0]), -(-shape[0] // stored[0])
    if max(count, parts) > _MOST_CHUNKS:
        raise _Decode
    zeros = [0] * (len(shape) - 1)
    files, places = [], []
    for number in range(count):
        key = layout.separator.join(str(part) for part in (number, *zeros))
        key = f"{layout.prefix}{layout.separator}{key}" if layout.prefix else key
        file = os.path.join(folder, *(os.fsencode(part) for part in key.split("/")))
        rows = min(chunks[0], shape[0] - number * chunks[0])
        if not os.path.isfile(file):
            raise _Decode  # it means the fill value
        if layout.inner is None:
            places.append(np.array([(number, 0, rows)], dtype=np.uint64))
        else:
            places.append(_shard(file, number, layout, rows))
        files.append(file)
    return PlacedArray("zarr", files, np.concatenate(places), layout.dtype, shape)


def _shard(
    file: bytes, file_number: int, layout: _Layout, rows: int
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Where the chunks of a shard are, in the form of PlacedArray."""
    import builtins

    assert layout.inner is not None
    step = layout.inner[0]
    count = layout.chunks[0] // step
    if count * step != layout.chunks[0]:
        raise Refused(f"shards of shape {layout.chunks} and chunks of shape {layout.inner}")
    length = 16 * count + 4 * layout.index_checked
    size = os.path.getsize(file)
    if size < length:
        raise Refused(f"{printable(file)} has {size:,} bytes, too few for its index of {length:,}")
    with builtins.open(file, "rb") as shard:
        shard.seek(size - length if layout.index_at_end else 0)
        stored = shard.read(length)
    if len(stored) != length:
        raise Refused(f"{printable(file)} became shorter")
    if layout.index_checked and _core.crc32c(stored[:-4]) != int.from_bytes(stored[-4:], "little"):
        raise Refused(f"the index of {printable(file)} does not have the CRC-32C stored with it")
    index = np.frombuffer(stored[: 16 * count], dtype="<u8").reshape(-1, 2)
    row_bytes = math.prod(layout.shape[1:]) * layout.dtype.itemsize
    index = index[: -(-rows // step)]
    if np.any(index[:, 0] == _ABSENT):
        raise _Decode  # it means the fill value
    odd = index[index[:, 1] != step * row_bytes, 1]
    if len(odd):
        raise Refused(f"a chunk of {printable(file)} has {int(odd[0]):,} bytes")
    places = np.full((len(index), 3), step, dtype=np.uint64)
    places[:, 0] = file_number
    places[:, 1] = index[:, 0]
    places[-1, 2] = rows - step * (len(index) - 1)
    return places
