"""Writes arrays far larger than memory, within a budget."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from evenkeel import _core
from evenkeel._core import Budget
from evenkeel._files import AnyBudget, PathLike, dtype_of, name_for_reader, printable
from evenkeel._stepping import text, whole
from evenkeel._writer import Writer, in_pieces


def create(
    path: PathLike,
    dtype: Any = "float32",
    shape: int | Sequence[int | None] = (None,),
    *,
    budget: AnyBudget = None,
    format: str | None = None,
    checksums: bool = False,
    resume: bool = False,
) -> ArrayWriter:
    """Creates an array file of any size, and keeps memory within a budget.

    The file appears under its name only when it is complete: until then it is NAME.partial, and a
    crash leaves the old file or none. Data is written directly to the disk while your program
    produces more; nothing stays in the page cache.

    - `shape`: a first axis of None grows as rows are appended. With a number, the space on the disk
      is allocated at once, rows may be assigned in any order, and rows that are never assigned are
      zeros.
    - `budget`: memory of the writer, which uses at most 16 MiB of it; as for `evenkeel.open`.
    - `format`: "npy", or "raw" for bare numbers. Default: "npy" for names that end with .npy,
      otherwise "raw".
    - `checksums`: also writes NAME.xxh3, which `evenkeel verify NAME` checks.
    - `resume`: continues at the last `checkpoint` of a writer that was killed; see
      `ArrayWriter.rows` and `ArrayWriter.state`. Without a checkpoint, it starts from the
      beginning.

    >>> import evenkeel, numpy
    >>> with evenkeel.create("made.npy", "float32", shape=(None, 3)) as w:
    ...     w.append(numpy.ones((4, 3)))
    ...     w[1:3] = 7
    >>> numpy.load("made.npy")[:, 0]
    array([1., 7., 7., 1.], dtype=float32)
    """
    return ArrayWriter(path, dtype, shape, budget, format, checksums, resume)


class ArrayWriter(Writer):
    """An array file that is being written; created by `evenkeel.create`. One thread at a time.

    As a context manager, it completes the file at the end. After an exception it discards the file,
    but keeps the last checkpoint.
    """

    def __init__(
        self,
        path: PathLike,
        dtype: Any,
        shape: int | Sequence[int | None],
        budget: AnyBudget,
        format: str | None,
        checksums: bool,
        resume: bool,
    ) -> None:
        self._path = os.fsdecode(path)
        self._dtype = dtype_of(dtype)
        if isinstance(shape, (str, bytes)) or shape is None:
            raise TypeError(
                "create: shape must be a whole number or several of them, and the first may be"
                f" None; got {shape!r}"
            )
        axes: Sequence[int | None] = list(shape) if isinstance(shape, Iterable) else [shape]
        if any(axis is None for axis in axes[1:]):
            raise ValueError(
                f"create {printable(self._path)}: shape={tuple(axes)}: only the first axis can grow"
            )
        self._row_shape = tuple(_length(axis) for axis in axes[1:] if axis is not None)
        first = [-1 if axes[0] is None else _length(axes[0])] if axes else []
        self._fixed = first[0] if first and first[0] >= 0 else None
        self._core_writer = _core.ArrayWriter(
            os.fsencode(path),
            name_for_reader(self._dtype),
            repr(npy.dtype_to_descr(self._dtype)) if self._dtype.name != "bfloat16" else "",
            [*first, *self._row_shape],
            text("create: format", format or ""),
            Budget(budget),
            bool(checksums),
            bool(resume),
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the file would have if it were completed now."""
        return tuple(self._open().shape)

    @property
    def rows(self) -> int:
        """One more than the highest row that was written: where `append` continues."""
        rows: int = self._open().rows
        return rows

    def __len__(self) -> int:
        return self.rows

    def append(self, rows: ArrayLike) -> None:
        """Appends rows: an array of this row shape, or a single row.

        Integers must fit the dtype. Other values are converted by NumPy's "same_kind" rule.
        """
        array = self._rows_of(rows)
        for piece in in_pieces(array, self._dtype):
            self._open().append(self._bytes_of(piece))

    def __setitem__(self, index: int | slice, values: ArrayLike) -> None:
        """Assigns existing rows, or the next ones; with a fixed shape, any rows.

        A number or a single row is repeated for all. Rows on the disk are read and written again if
        they share a sector, so assign many at a time.
        """
        writer = self._open()
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise IndexError(
                    f"write {printable(self._path)}: rows must be assigned in steps of 1"
                )
            start = _place(index.start, 0, self)
            stop = _place(index.stop, None, self)
        else:
            start = _place(index, 0, self)
            stop = start + 1
        array = np.asarray(values)
        if stop is None and self._fixed is not None:
            stop = self._fixed
        if stop is None:
            grows = array.ndim == len(self._row_shape) + 1
            stop = start + len(array) if grows and len(array) > 1 else self.rows
        array = np.broadcast_to(array, (max(stop - start, 0), *self._row_shape))
        self._require_castable(array)
        for piece in in_pieces(array, self._dtype):
            writer.assign(start, self._bytes_of(piece))
            start += len(piece)

    def _end(self) -> int:
        """Negative rows count from here: the end of a fixed shape, or of the rows that were
        written."""
        return self.rows if self._fixed is None else self._fixed

    def _rows_of(self, rows: ArrayLike) -> NDArray[Any]:
        array = np.asarray(rows)
        if array.shape == self._row_shape:
            array = array[None]
        if array.shape[1:] != self._row_shape or array.ndim == 0:
            raise ValueError(
                f"write {printable(self._path)}: rows have the shape {self._row_shape}; got an"
                f" array of shape {array.shape}"
            )
        self._require_castable(array)
        return array

    def _require_castable(self, array: NDArray[Any]) -> None:
        if array.dtype.kind in "iu" and self._dtype.kind in "iu":
            limits = np.iinfo(self._dtype)
            if not np.can_cast(array.dtype, self._dtype) and array.size > 0:
                least, most = array.min(), array.max()
                if least < limits.min or most > limits.max:
                    raise ValueError(
                        f"write {printable(self._path)}: values of {least} to {most} do not fit"
                        f" {self._dtype}, which holds {limits.min} to {limits.max}"
                    )
            return
        if not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise TypeError(
                f"write {printable(self._path)}: {array.dtype} cannot be converted to"
                f" {self._dtype} safely; convert it yourself: rows.astype(...)"
            )

    def _bytes_of(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        stored = np.ascontiguousarray(rows, self._dtype).reshape(-1)
        return stored.view(np.uint8)

    def __repr__(self) -> str:
        state = "closed" if self._core_writer is None else f"{self.shape} {self._dtype} so far"
        return f"<evenkeel.ArrayWriter {printable(os.path.basename(self._path))}: {state}>"


def _length(axis: int | None) -> int:
    length = whole("create: an axis of shape", axis)
    if length < 0:
        raise ValueError(
            f"create: an axis cannot be {length}; use None for a first axis that grows"
        )
    if length >= 1 << 63:
        raise ValueError(f"create: an axis of {length:,} is too long")
    return length


def _place(index: int | None, default: int | None, writer: ArrayWriter) -> Any:
    if index is None:
        return default
    place = whole("write: a row", index)
    if place < 0:
        place += writer._end()
    if place < 0:
        raise IndexError(
            f"write {printable(writer.path)}: row {index} is outside: there are {writer._end():,}"
            " rows"
        )
    return place
