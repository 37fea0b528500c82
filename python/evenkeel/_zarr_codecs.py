"""How chunks of Zarr arrays are stored: compressors, byte order, order of axes, fill values."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np


class Refused(ValueError):
    pass


class Codecs(NamedTuple):
    """How a chunk is stored."""

    compression: str = ""  # "zstd", "blosc", "zlib"
    checked: bool = False  # it ends with a CRC-32C
    order: tuple[int, ...] = ()  # the axes as stored, slowest first; empty: as they are
    big_endian: bool = False


# Codecs of Zarr 2 and 3, and those that numcodecs registers for 3.
COMPRESSIONS = {"zstd": "zstd", "blosc": "blosc", "gzip": "zlib", "zlib": "zlib"}
COMPRESSIONS.update({f"numcodecs.{name}": kind for name, kind in [*COMPRESSIONS.items()]})


def lengths(values: Any, least: int) -> tuple[int, ...]:
    found = tuple(int(value) for value in values)
    possible = all(least <= length < 1 << 63 for length in found)
    if not possible or any(length != value for length, value in zip(found, values)):
        raise Refused(f"bad lengths of axes: {values}")
    return found


def named(value: Any) -> tuple[str, dict[str, Any]]:
    """Name and configuration of a part of the metadata. A part without configuration may be only a
    name."""
    if isinstance(value, str):
        return value, {}
    return str(value["name"]), value.get("configuration") or {}


def unknown(what: Any) -> Refused:
    return Refused(
        f"its chunks are encoded with {what}, which is not known here\n"
        "hint: zstd, blosc, gzip, zlib and no compression are known"
    )


def read_codecs(codecs: list[Any], axes: int) -> Codecs:
    """Codecs are in the order of encoding: the order of the axes, bytes, a compressor, a
    checksum."""
    order: tuple[int, ...] = ()
    left = [named(codec) for codec in codecs]
    if left and left[0][0] == "transpose":
        order = lengths(left.pop(0)[1]["order"], 0)
        if sorted(order) != list(range(axes)):
            raise Refused(f"its chunks are transposed by {order}, and have {axes} axes")
    if not left or left[0][0] != "bytes":
        raise unknown(left[0][0]) if left else Refused("its chunks have no codec of bytes")
    endian = left.pop(0)[1].get("endian", "little")
    if endian not in ("little", "big"):
        raise Refused(f"its numbers are in the byte order {endian!r}")
    compression, checked = "", False
    for name, _ in left:
        if name == "crc32c" and not checked:
            checked = True
        elif name in COMPRESSIONS and not compression and not checked:
            compression = COMPRESSIONS[name]
        else:
            raise unknown(
                f"{name} after {'crc32c' if checked else compression}"
                if checked or compression
                else name
            )
    plain = order == tuple(range(axes))
    return Codecs(compression, checked, () if plain else order, endian == "big")


def fill_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    """The bytes of an element that was never written."""
    try:
        if value is None and dtype.kind in "mM":
            value = "NaT"  # as zarr does
        if value is None:
            return bytes(dtype.itemsize)
        if isinstance(value, str) and value.startswith("0x") and dtype.kind in "fc":
            return int(value, 16).to_bytes(dtype.itemsize, "big" if _is_big(dtype) else "little")
        if isinstance(value, str) and dtype.kind in "SV":
            import base64

            value = base64.b64decode(value)
            if len(value) != dtype.itemsize:
                raise ValueError(f"{len(value)} bytes for {dtype}")
            return bytes(value)
        if dtype.kind == "c":
            value = complex(*(float(part) for part in value)) if isinstance(value, list) else value
        elif dtype.kind == "f":
            value = float(value)
        return np.array(value, dtype=dtype).tobytes()
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused(f"the fill value {value!r} is not a value of {dtype}: {error}") from None


def _is_big(dtype: np.dtype[Any]) -> bool:
    return dtype.str.startswith(">")


def libraries(compression: str) -> list[bytes]:
    """The decoder in numcodecs, for systems that have none."""
    from glob import escape, glob
    from importlib.util import find_spec

    found = find_spec("numcodecs") if compression else None
    folders = (found.submodule_search_locations if found else None) or ()
    return [
        os.fsencode(path)
        for folder in folders
        for path in sorted(glob(os.path.join(escape(folder), f"{compression}.*so")))
    ]
