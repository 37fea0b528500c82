"""HDF5: h5py finds where the bytes of a dataset are, and they are read without it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from evenkeel._array import Array
from evenkeel._containers import How, Member, PlacedArray, needs, no_such, open_placed
from evenkeel._core import Budget
from evenkeel._files import printable
from evenkeel._ragged import Csr

_MOST_NAMES = 1000
_CSR = ("data", "indices", "indptr")


_ERRORS = (KeyError, RuntimeError, TypeError, ValueError)  # of h5py, for files it cannot read


class _Refused(ValueError):
    pass


def open(path: bytes, name: str, how: How) -> Array | Csr:
    h5py, columns = _h5py(), 0
    placed: list[PlacedArray] = []
    with _opened(path) as file:
        names = [] if name else _datasets(file)
        if len(names) == 1:
            name = names[0]
        found = _item(file, name) if name else None
        if isinstance(found, h5py.Dataset):
            placed = [_placed(path, found)]
        elif isinstance(found, h5py.Group):
            parts = [_item(file, f"{name}/{part}") for part in _CSR]
            if all(isinstance(part, h5py.Dataset) for part in parts):
                columns = _columns(name, found, parts)
                placed = [_placed(path, part) for part in parts]
        if not placed:
            names = names or _datasets(file)
    if not placed:
        raise no_such(path, name, names)
    if len(placed) == 1:
        return open_placed(placed[0], how, (open, (path, name, how)))
    how = (Budget(how[0]), *how[1:])  # shared by all three arrays
    data, indices, indptr = (
        open_placed(made, how, (open, (path, f"{name}/{part}", how)))
        for part, made in zip(_CSR, placed)
    )
    return Csr(data, indices, indptr, columns, dense=False)


def members(path: bytes) -> list[Member]:
    with _opened(path) as file:
        found = []
        for name in _datasets(file):
            try:
                dataset = file[name]
                shape, refused = tuple(dataset.shape or ()), _refusal(dataset)
                found.append(Member(name, str(dataset.dtype), shape, False, refused))
            except _ERRORS as error:  # the others can still be read
                found.append(Member(name, "", (), False, _said(error)))
        return found


@contextmanager
def _opened(path: bytes) -> Iterator[Any]:
    """The file in h5py, whose errors are of many kinds, and name no path."""
    try:
        with _h5py().File(path, "r") as file:
            yield file
    except _Refused as error:
        raise ValueError(f"open {printable(path)}: {error}") from None
    except (OSError, *_ERRORS) as error:
        if isinstance(error, OSError) and error.errno:  # of the system
            raise OSError(error.errno, f"open {printable(path)}: {error}") from None
        raise ValueError(
            f"open {printable(path)}: {_said(error)}\n"
            "hint: it may be damaged: copy or download it again"
        ) from None


def _said(error: Exception) -> str:
    return f"h5py cannot read it: {error.args[0] if error.args else error}"


def _h5py() -> Any:
    try:
        return import_module("h5py")
    except ImportError:
        raise needs("h5py", "HDF5") from None


def _item(file: Any, name: str) -> Any:
    """The item of this name, or None. Refuses links to other files: offsets there are of no use
    here."""
    h5py = _h5py()
    outside = _Refused(
        f"{name!r} is a link to another file\nhint: open the file that holds the data"
    )
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for count in range(1, len(parts) + 1):
        try:
            link = file.id.links.get_info("/".join(parts[:count]).encode()).type
        except (KeyError, RuntimeError):
            return None
        if link not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            raise outside
    found = file.get(name)
    # A link within the file may point to a link to another file.
    if found is not None and _file_number(h5py, found) != _file_number(h5py, file["/"]):
        raise outside
    return found


def _file_number(h5py: Any, item: Any) -> Any:
    return h5py.h5o.get_info(item.id).fileno


def _datasets(file: Any) -> list[str]:
    dataset = _h5py().Dataset
    names: list[str] = []

    def visit(name: str, item: Any) -> bool | None:
        if isinstance(item, dataset):
            names.append(name)
        return True if len(names) == _MOST_NAMES else None

    file.visititems(visit)
    return names


def _columns(name: str, group: Any, parts: list[Any]) -> int:
    """The columns of a sparse matrix as anndata writes it: a group of three datasets."""
    kind = group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", "csr_matrix"))
    kind = kind.decode(errors="replace") if isinstance(kind, bytes) else kind
    shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
    if kind not in ("csr_matrix", "csr") or np.shape(shape) != (2,):
        raise _Refused(
            f"{name!r} is a {kind} of shape {shape}, not a matrix by rows\n"
            "hint: store it as CSR: adata.X = adata.X.tocsr()"
        )
    rows, columns = (int(length) for length in shape)
    if parts[2].shape != (rows + 1,):
        raise _Refused(f"{name!r} has row bounds of shape {parts[2].shape}, but shape {shape}")
    return columns


def _refusal(dataset: Any) -> str:
    """Why a dataset cannot be read in place; empty if it can."""
    dtype = dataset.dtype
    filters = dataset.id.get_create_plist().get_nfilters()
    if dtype.hasobject or dtype.itemsize == 0:
        return f"it holds {dtype}, not numbers of a fixed width"
    if dtype.subdtype is not None or not _stored_as(dataset.id.get_type(), dtype):
        return f"its numbers are stored in another way than {dtype}"
    if dataset.is_virtual or dataset.external:
        return "its data lies in other files"
    if dataset.shape is None:
        return "it has no data"
    if filters:
        return f"its chunks are compressed or filtered ({dataset.compression or 'by a filter'})"
    if dataset.chunks and tuple(dataset.chunks[1:]) != tuple(dataset.shape[1:]):
        return (
            f"its chunks of shape {dataset.chunks} cut the rows of shape {tuple(dataset.shape[1:])}"
        )
    return ""


def _stored_as(stored: Any, dtype: np.dtype[Any]) -> bool:
    """Whether an HDF5 type has the same bytes as NumPy's: h5py may convert what it reads."""
    h5t = _h5py().h5t
    if stored.get_size() != dtype.itemsize:
        return False
    kind = stored.get_class()
    if kind == h5t.ENUM:
        return _stored_as(stored.get_super(), np.dtype("i1" if dtype.kind == "b" else dtype.str))
    if kind == h5t.ARRAY:
        return dtype.subdtype is not None and _stored_as(stored.get_super(), dtype.base)
    if kind == h5t.COMPOUND and dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]  # type: ignore[index]
        return len(fields) == stored.get_nmembers() and all(
            stored.get_member_offset(i) == field[1]
            and _stored_as(stored.get_member_type(i), field[0])
            for i, field in enumerate(fields)
        )
    if kind == h5t.STRING:
        return bool(stored.get_strpad() != h5t.STR_SPACEPAD)  # NumPy pads with zeros
    if kind == h5t.BITFIELD:
        return bool(stored.get_precision() == 8 * dtype.itemsize)
    if kind in (h5t.INTEGER, h5t.FLOAT, h5t.COMPOUND):
        return bool(stored == h5t.py_create(np.dtype(dtype.str)))
    return True


def _placed(path: bytes, dataset: Any) -> PlacedArray:
    refused = _refusal(dataset)
    if refused:
        raise _Refused(
            f"dataset {dataset.name!r} cannot be read in place: {refused}\n"
            "hint: h5repack -f NONE -l CONTI in.h5 out.h5 stores it as one block"
        )
    shape = tuple(dataset.shape) or (1,)
    if 0 in shape:
        raise _Refused(f"dataset {dataset.name!r} has shape {shape}: nothing to read")
    if dataset.chunks:
        places = _chunks(dataset)
    else:
        offset = dataset.id.get_offset()
        if offset is None:
            raise _Refused(
                f"dataset {dataset.name!r} has no place in the file: it was never written, or is"
                " stored inside a header"
            )
        places = np.array([(0, offset, shape[0])], dtype=np.uint64)
    return PlacedArray("hdf5", [os.fsencode(path)], places, dataset.dtype, shape)


def _chunks(dataset: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    rows, per_chunk = dataset.shape[0], dataset.chunks[0]
    expected = -(-rows // per_chunk)
    found: dict[int, int] = {}
    # HDF5 before 1.14.4 leaves the user block out of these addresses (HDFGroup/hdf5 3003).
    old = _h5py().h5.get_libversion() < (1, 14, 4)
    base = dataset.file.userblock_size if old else 0

    def visit(chunk: Any) -> None:
        if chunk.chunk_offset[0] < rows:
            found[chunk.chunk_offset[0] // per_chunk] = base + chunk.byte_offset

    if hasattr(dataset.id, "chunk_iter"):
        dataset.id.chunk_iter(visit)
    else:  # HDF5 before 1.12.3
        for number in range(dataset.id.get_num_chunks()):
            visit(dataset.id.get_chunk_info(number))
    if len(found) != expected:
        raise _Refused(
            f"dataset {dataset.name!r} has {len(found):,} of {expected:,} chunks: the others were"
            " never written, and stand for its fill value\n"
            "hint: write all of it, or copy it into a new file"
        )
    numbers = np.arange(expected, dtype=np.uint64)
    places = np.zeros((expected, 3), dtype=np.uint64)
    places[:, 1] = [found[int(number)] for number in numbers]
    places[:, 2] = np.minimum(per_chunk, rows - numbers * np.uint64(per_chunk))
    return places
