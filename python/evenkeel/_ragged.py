"""Rows of different lengths, and sparse matrices, for loaders."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from evenkeel import _core
from evenkeel._array import Array
from evenkeel._files import printable
from evenkeel._stepping import whole

# What a loader returns for a field: (dtype, shape of a row, or of a value of rows of different
# lengths).
Form = tuple["np.dtype[Any]", "tuple[int, ...]"]


class Ragged:
    """Rows of different lengths; made by `evenkeel.ragged`, for `evenkeel.Loader`."""

    def __init__(self, values: Array, offsets: Array) -> None:
        for name, array in (("values", values), ("offsets", offsets)):
            _require_array("ragged", name, array)
        _require_numbers("ragged", "offsets", offsets)
        self._values, self._offsets = values, offsets
        # Kept for when the arrays are closed.
        self._budget, self._rows = values.budget, offsets._reader.lists

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> np.ndarray[Any, np.dtype[Any]]:
        """The values of one row. Loaders read many rows at a time."""
        row = whole("ragged: a row", index)
        row += len(self) if row < 0 else 0
        if not 0 <= row < len(self):
            raise IndexError(f"row {index} of {len(self):,}")
        place, first = self._offsets._reader.list_place(row)
        begin, end = (first + int(bound) for bound in self._offsets[place : place + 2])
        if not first <= begin <= end <= len(self._values):
            raise ValueError(
                f"ragged {printable(self._offsets.paths[0])}: the offsets of row {row:,} are"
                f" {begin} to {end}, but there are {len(self._values):,} values"
            )
        values: np.ndarray[Any, np.dtype[Any]] = self._values[begin:end]
        return values

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._values.dtype

    @property
    def budget(self) -> _core.Budget:
        return self._budget

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self._values, self._offsets

    def _field(self) -> _core.LoaderField:
        return _core.LoaderField.ragged(self._values._reader, self._offsets._reader)

    def _forms(self) -> list[Form]:
        return [(self._values.dtype, self._values.shape[1:]), (np.dtype(np.int64), ())]

    def _combine(self) -> Callable[..., Any] | None:
        return None  # (values, offsets)

    def __repr__(self) -> str:
        return (
            f"<evenkeel.Ragged: {len(self):,} rows, {len(self._values):,} values of {self.dtype}>"
        )


class Csr(Ragged):
    """A sparse matrix by rows; made by `evenkeel.csr`, for `evenkeel.Loader`."""

    def __init__(
        self, data: Array, indices: Array, indptr: Array, columns: int, dense: bool
    ) -> None:
        for name, array in (("data", data), ("indices", indices), ("indptr", indptr)):
            _require_array("csr", name, array)
        for name, array in (("indices", indices), ("indptr", indptr)):
            _require_numbers("csr", name, array)
        columns = whole("csr: columns", columns)
        if columns < 1:
            raise ValueError(f"csr: columns must be 1 or more; got {columns}")
        self._values, self._offsets, self._indices = data, indptr, indices
        self._columns, self._dense = columns, bool(dense)
        self._budget, self._rows = data.budget, indptr._reader.lists

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self._columns

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self._values, self._indices, self._offsets

    def _field(self) -> _core.LoaderField:
        return _core.LoaderField.csr(
            self._values._reader,
            self._indices._reader,
            self._offsets._reader,
            self._columns,
            self._dense,
        )

    def _forms(self) -> list[Form]:
        if self._dense:
            return [(self._values.dtype, (self._columns,))]
        return [
            (self._values.dtype, ()),
            (self._indices.dtype, ()),
            (np.dtype(np.int64), ()),
        ]

    def _combine(self) -> Callable[..., Any] | None:
        if self._dense:
            return None
        try:
            csr_matrix = import_module("scipy.sparse").csr_matrix
        except ImportError:
            raise ImportError(
                "csr: batches are SciPy matrices, but SciPy is not installed\n"
                "hint: pip install scipy, or dense=True"
            ) from None
        columns, dtype = self._columns, self._indices.dtype
        if dtype not in (np.int32, np.int64):  # SciPy converts other indices

            def converted(data: Any, indices: Any, indptr: Any) -> Any:
                return csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, columns))

            return converted

        def matrix(data: Any, indices: Any, indptr: Any) -> Any:
            # The constructor would repeat the checks, and copy arrays that look like small parts of
            # larger ones.
            made = csr_matrix((len(indptr) - 1, columns), dtype=data.dtype)
            made.data, made.indices, made.indptr = data, indices, indptr.astype(dtype)
            return made

        return matrix

    def __repr__(self) -> str:
        form = "dense" if self._dense else "sparse"
        return f"<evenkeel.Csr: {self.shape}, {len(self._values):,} values of {self.dtype}, {form}>"


def ragged(values: Array, offsets: Array) -> Ragged:
    """Rows of different lengths: row i is values[offsets[i]:offsets[i+1]].

    For `evenkeel.Loader`, alone or beside arrays. A batch of it is a pair: the concatenated values
    of its rows, and offsets into them, one more than rows. Offsets are read as they are needed, so
    there may be billions. Offsets that decrease or exceed the values are a ValueError that names
    the row.

    >>> import evenkeel, numpy
    >>> numpy.save("values.npy", numpy.arange(10))
    >>> numpy.save("offsets.npy", numpy.array([0, 3, 3, 10]))
    >>> rows = evenkeel.ragged(evenkeel.open("values.npy"), evenkeel.open("offsets.npy"))
    >>> for values, offsets in evenkeel.Loader(rows, 2, order="sequential"):
    ...     print(values, offsets)
    [0 1 2] [0 3 3]
    [3 4 5 6 7 8 9] [0 7]
    """
    return Ragged(values, offsets)


def csr(data: Array, indices: Array, indptr: Array, columns: int, *, dense: bool = False) -> Csr:
    """A sparse matrix whose three arrays are on disk: row i has data[indptr[i]:indptr[i+1]] in the
    columns indices[indptr[i]:indptr[i+1]], each column at most once.

    For `evenkeel.Loader`, alone or beside arrays. A batch of it is a scipy.sparse.csr_matrix, or
    with `dense` an array of all columns, which can also be copied to a GPU.

    >>> import evenkeel, numpy
    >>> numpy.save("data.npy", numpy.array([5.0, 6.0, 7.0]))
    >>> numpy.save("indices.npy", numpy.array([1, 0, 2]))
    >>> numpy.save("indptr.npy", numpy.array([0, 1, 3]))
    >>> arrays = [evenkeel.open(f"{name}.npy") for name in ("data", "indices", "indptr")]
    >>> next(evenkeel.Loader(evenkeel.csr(*arrays, columns=3, dense=True), 2, order="sequential"))
    array([[0., 5., 0.],
           [6., 0., 7.]])
    """
    return Csr(data, indices, indptr, columns, dense)


def _require_array(what: str, name: str, array: object) -> None:
    if not isinstance(array, Array):
        raise TypeError(
            f"{what}: {name} must be an array from evenkeel.open; got {type(array).__name__}"
        )
    if not array.shape:
        raise TypeError(f"{what}: {name} has no rows")


def _require_numbers(what: str, name: str, array: Array) -> None:
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.dtype.isnative:
        raise ValueError(
            f"{what}: {name} must be whole numbers on one axis, in the byte order of this machine;"
            f" got {array.dtype} of shape {array.shape}"
        )
