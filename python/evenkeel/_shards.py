"""MosaicML's MDS and litData: folders of shards, read as rows of fields of a fixed width."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np

from evenkeel._array import Array
from evenkeel._containers import How, Member, PlacedArray, open_placed, read_json
from evenkeel._files import dtype_of, printable

# The names of numbers in MDS; its int is int64.
_NUMBERS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split()
# litData's codes of torch's types. Several have two.
_TORCH = {0: "float32", 1: "float32", 2: "float64", 3: "float64", 4: "complex64", 5: "complex64"}
_TORCH.update({6: "complex128", 7: "complex128", 8: "float16", 9: "float16", 10: "bfloat16"})
_TORCH.update({11: "uint8", 12: "int8", 13: "int16", 14: "int16", 15: "int32", 16: "int32"})
_TORCH.update({17: "int64", 18: "int64", 19: "bool"})


class _Refused(ValueError):
    pass


class _Table(NamedTuple):
    """The contents of the table of a shard."""

    first: int  # where the first row begins
    end: int  # where the last one ends
    rows: int
    lengths: set[int]  # of rows; some of them if there are many


def open(path: bytes, name: str, how: How) -> Array:
    made = _read(path)
    if name:
        fields = ", ".join(made.dtype.names or ())
        raise ValueError(
            f"open {printable(path)}: its rows are read whole, with all their fields: {fields}\n"
            f'hint: omit the name, and take the field of the rows: rows["{name}"]'
        )
    return open_placed(made, how, (open, (path, name, how)))


def members(path: bytes) -> list[Member]:
    made = _read(path)
    return [
        Member(field, str(made.dtype[field].base), (made.shape[0], *made.dtype[field].shape))
        for field in made.dtype.names or ()
    ]


def _read(path: bytes) -> PlacedArray:
    index = read_json(os.path.join(path, b"index.json"))
    try:
        return _mds(path, index) if "shards" in index else _litdata(path, index)
    except _Refused as error:
        raise ValueError(f"open {printable(path)}: {error}") from None
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise ValueError(
            f"open {printable(path)}: bad index.json: {type(error).__name__}: {error}"
        ) from None


def _mds(path: bytes, index: dict[str, Any]) -> PlacedArray:
    first, files, tables = None, [], []
    for shard in index["shards"]:
        if shard["format"] != "mds":
            raise _Refused(f"its shards are {shard['format']}, not mds")
        if shard.get("compression") or shard.get("zip_data"):
            raise _Refused("its shards are compressed\nhint: write them with compression=None")
        columns = [*zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"])]
        first = first or columns
        if columns != first:
            raise _Refused("its shards have different columns")
        files.append(_beside(path, shard["raw_data"]["basename"]))
        tables.append(_table(files[-1], int(shard["samples"])))
    if first is None:
        raise _Refused("there are no shards")
    open_fields = [name for name, _, size in first if size is None]
    stride = _stride(tables)
    if len(open_fields) > 1:
        raise _Refused(f"columns {', '.join(open_fields)} have sizes that differ from row to row")
    known = sum(size for _, _, size in first if size is not None)
    left = stride - known - 4 * len(open_fields)
    if left < 0 or (not open_fields and left != 0):
        raise _Refused(f"rows have {stride} bytes, but columns have {known} bytes")
    at, names, formats, places = 4 * len(open_fields), [], [], []
    for name, encoding, size in first:
        names.append(str(name))
        formats.append(_mds_type(str(name), str(encoding), left if size is None else int(size)))
        places.append(at)
        at += left if size is None else int(size)
    record = _record(names, formats, places, stride)
    offsets, rows = [table.first for table in tables], [table.rows for table in tables]
    return _placed("mds", files, offsets, rows, record)


def _mds_type(name: str, encoding: str, size: int) -> np.dtype[Any]:
    kind, *rest = encoding.split(":")
    if kind == "int":
        kind = "int64"
    if kind in _NUMBERS and not rest:
        dtype = np.dtype(kind)
    elif kind == "ndarray" and len(rest) == 2 and rest[0] in _NUMBERS:
        dtype = np.dtype((rest[0], tuple(int(length) for length in rest[1].split(","))))
    elif kind == "bytes" and size > 0:
        dtype = np.dtype(f"V{size}")
    else:
        raise _Refused(
            f"column {name!r} holds {encoding}, not numbers of a fixed width\n"
            "hint: use ndarray:DTYPE:SHAPE, scalars, or bytes of the same length in all rows"
        )
    if dtype.itemsize != size:
        raise _Refused(f"column {name!r} of {encoding} cannot have {size} bytes")
    return dtype


def _litdata(path: bytes, index: dict[str, Any]) -> PlacedArray:
    config = index["config"]
    if config.get("compression") or config.get("encryption"):
        raise _Refused("its chunks are compressed or encrypted")
    formats = list(config["data_format"])
    files = [_beside(path, chunk["filename"]) for chunk in index["chunks"]]
    if not files:
        raise _Refused("there are no chunks")
    sizes = [int(chunk["chunk_size"]) for chunk in index["chunks"]]
    tokens = (
        re.fullmatch(r"no_header_(tensor|numpy):(\d+)", formats[0]) if len(formats) == 1 else None
    )
    if tokens:
        return _tokens(files, sizes, tokens, [chunk["dim"] for chunk in index["chunks"]])
    raise _Refused(
        f"its items are {', '.join(str(kind) for kind in formats)}; only chunks of tokens can be"
        " read\n"
        "hint: write them with litdata's TokensLoader"
    )


def _tokens(files: list[bytes], sizes: list[int], kind: Any, dims: list[Any]) -> PlacedArray:
    """The tokens of all chunks, concatenated."""
    code = int(kind[2])
    if kind[1] == "tensor":
        if code not in _TORCH:
            raise _Refused(f"tensors of code {code} are not known")
        dtype = dtype_of(_TORCH[code])
    else:
        names = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
        if code >= len(names):
            raise _Refused(f"arrays of code {code} are not known")
        dtype = np.dtype(names[code])
    rows = [int(dim) for dim in dims]
    tables = [_table(file, size) for file, size in zip(files, sizes)]
    for file, table, dim in zip(files, tables, rows):
        if table.end - table.first != dim * dtype.itemsize:
            raise _Refused(f"{printable(file)} does not hold {dim:,} numbers of {dtype}")
    return _placed("litdata", files, [table.first for table in tables], rows, dtype)


def _beside(folder: bytes, name: Any) -> bytes:
    """The path of a file that the index names; it must lie in the folder itself."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise _Refused(f"{name!r} is not the name of a file in this folder")
    return os.path.join(folder, os.fsencode(name))


def _table(file: bytes, samples: int) -> _Table:
    size = os.path.getsize(file)
    if samples < 0 or 4 * (samples + 2) > size:
        raise _Refused(f"{printable(file)} has {size:,} bytes, too few for {samples:,} rows")
    with _open(file) as shard:
        numbers = np.fromfile(shard, dtype="<u4", count=samples + 2)
    if len(numbers) != samples + 2 or int(numbers[0]) != samples:
        raise _Refused(f"{printable(file)} does not begin with {samples:,}, its number of rows")
    table: np.ndarray[Any, np.dtype[np.uint32]] = numbers[1:]
    if np.any(table[1:] < table[:-1]) or int(table[-1]) > size or int(table[0]) < 4 * (samples + 2):
        raise _Refused(f"{printable(file)} has rows that are outside the file")
    lengths = np.unique(np.diff(table))[:4]
    return _Table(int(table[0]), int(table[-1]), samples, {int(length) for length in lengths})


def _open(file: bytes) -> Any:
    import builtins

    return builtins.open(file, "rb")


def _stride(tables: list[_Table]) -> int:
    """The bytes of a row, the same for all rows."""
    found = set().union(*(table.lengths for table in tables))
    if len(found) != 1:
        raise _Refused(
            f"its rows have different lengths: {sorted(found)[:4]} bytes\n"
            "hint: write them as fields of a fixed width, such as ndarray:int32:1024"
            if found
            else "it has no rows"
        )
    return found.pop()


def _record(
    names: list[str], formats: list[np.dtype[Any]], offsets: list[int], stride: int
) -> np.dtype[Any]:
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": stride}
    record: np.dtype[Any] = np.dtype(fields)  # type: ignore[call-overload]
    return record


def _placed(
    format: str, files: list[bytes], offsets: list[int], rows: list[int], dtype: np.dtype[Any]
) -> PlacedArray:
    places = np.array([*zip(range(len(files)), offsets, rows)], dtype=np.uint64)
    return PlacedArray(format, files, places, dtype, (sum(rows),))
