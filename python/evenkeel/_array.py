"""Arrays on disk, far larger than memory: indexing, batches, counters."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from evenkeel import _core
from evenkeel._batches import Batches, whole_number
from evenkeel._closing import Closing
from evenkeel._core import Budget
from evenkeel._files import (
    AnyBudget,
    cache_bytes,
    disk_cache,
    dtype_of,
    engine_name,
    name_for_reader,
    page_cache_name,
    printable,
    require_no_secrets,
    short_repr,
    stored_dtype,
    whole_path,
)
from evenkeel._index import (
    FEW,
    SMALL,
    Rows,
    Wanted,
    checked_rows,
    pieces_bytes,
    resolve,
    row_numbers,
    row_pieces,
    shape_alone,
)
from evenkeel._reduce import Reductions
from evenkeel._stepping import whole

# A function and its arguments that open an array again, for pickling.
Reopen = tuple[Callable[..., Any], tuple[Any, ...]]
NDArray = np.ndarray[Any, np.dtype[Any]]

_ROWS_AT_A_TIME = 1 << 18  # bytes, for iterating over rows
_DASK_BLOCK = 1 << 20  # bytes; dask reads a multiple of it


class Array(Closing, Reductions):
    """An array on disk that is indexed like a NumPy array, without being in memory.

    Made by `evenkeel.open`. Indexing returns new ndarrays, with the same values, dtype and shape as
    in NumPy. Only the needed rows are read. A result that does not fit the budget is a MemoryError.
    Several threads may use one array, and a child of fork may continue to use it. Pickling sends
    paths and options, not data.

    >>> import evenkeel, numpy
    >>> numpy.save("squares.npy", numpy.arange(10) ** 2)
    >>> a = evenkeel.open("squares.npy", budget="8MiB")
    >>> len(a), a[2:8:3], a[[-1, 0]]
    (10, array([ 4, 25]), array([81,  0]))
    >>> a.close()
    """

    def __init__(
        self,
        paths: list[bytes],
        budget: AnyBudget,
        engine: str,
        dtype: Any,
        shape: int | Sequence[int] | None,
        offset: int,
        cache: int | str | bool | None = None,
        page_cache: str = "spare",
        reader: Any = None,
        reopen: Reopen | None = None,
    ) -> None:
        # `reader`, if given, reads the same array; the rest, or `reopen`, says how to open it
        # again.
        known = dtype_of(dtype) if dtype is not None else stored_dtype(paths)
        self._reopen = reopen
        lengths = [] if shape is None else _lengths(shape)
        without_axes = shape is not None and not lengths
        self._recipe = (
            [whole_path(path) for path in paths],
            budget,
            engine,
            dtype,
            shape,
            offset,
            cache,
            page_cache,
        )
        self._reader = reader or _core.open(
            paths,
            Budget(budget),
            engine_name(engine),
            None if known is None else name_for_reader(known),
            [1] if without_axes else lengths,  # for the reader, [] means: as long as the file
            whole_number("offset", offset),
            cache_bytes(cache),
            page_cache_name(page_cache),
            disk_cache(cache),
        )
        self._shape = () if without_axes else self._reader.shape
        self._dtype = np.dtype(self._reader.dtype) if known is None else known
        self._shape_alone = shape_alone(self._shape)
        self._row_shape = self._shape[1:]
        self._row_bytes = math.prod(self._row_shape) * self._dtype.itemsize
        self._rows = self._shape[0] if self._shape else 1
        self._fast_rows = bool(self._shape) and 0 < self._row_bytes <= SMALL
        self._chunk_rows = 0  # rows that are decoded together; 0: each row is read by itself

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return math.prod(self._shape)

    @property
    def itemsize(self) -> int:
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self._dtype.itemsize

    @property
    def budget(self) -> Budget:
        return self._reader.budget

    @property
    def engine(self) -> str:
        """The engine in use, how it reads, and why it was chosen, so that a fallback is never
        silent."""
        name, how, why = self._reader.engine
        return f"{name} ({how}): {why}"

    @property
    def format(self) -> str:
        """ "npy", "raw", "arrow", "npz", "hdf5", "zarr", "fits", "nifti", "mds" or "litdata"."""
        return self._reader.format

    @property
    def paths(self) -> list[str]:
        return [os.fsdecode(path) for path in self._reader.paths]

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of unsized object")
        return self._rows

    def __getitem__(self, index: Any) -> Any:
        # One row, by far the most frequent index, goes straight to the reader.
        if type(index) is int and self._fast_rows:
            row = index if index >= 0 else index + self._rows
            if 0 <= row < self._rows:
                return self._reader.row(row, self._row_shape, self._dtype)
        if isinstance(index, str) or (
            isinstance(index, list) and index and isinstance(index[0], str)
        ):
            return np.asarray(self)[index]  # fields
        wanted = resolve(index, self._shape_alone, self._room)
        nbytes = len(wanted.rows) * self._row_bytes + wanted.index_bytes
        nbytes += self._numbers_bytes(wanted.rows)
        if not wanted.direct:
            nbytes += math.prod(wanted.shape) * self._dtype.itemsize
        if not wanted.direct and nbytes > self.budget.left:
            wanted = wanted.by_parts or wanted
            if wanted.by_rows:
                return self._in_parts(wanted)
        room = self._room(nbytes, wanted.shape)
        block = self._block(wanted.rows)
        if wanted.direct:
            return block.reshape(wanted.shape) if wanted.shape else block.reshape(-1)[0]
        result = block[wanted.index] if self._shape else block.reshape(())[wanted.index]
        # A part of the block would keep all of it alive.
        if isinstance(result, np.ndarray) and result.base is not None and result.size < block.size:
            result = result.copy()
        del room  # the reservation of the block and the result
        return result

    def _in_parts(self, wanted: Wanted) -> NDArray:
        """For a result that fits the budget when its rows do not fit at once: some columns of many
        rows."""
        step = max(1, self.budget.limit // 8 // self._row_bytes)
        nbytes = math.prod(wanted.shape) * self._dtype.itemsize + step * self._row_bytes
        nbytes += self._numbers_bytes(wanted.rows[:step]) + wanted.index_bytes
        room = self._room(nbytes, wanted.shape)
        first, *rest = wanted.index
        result = np.empty(wanted.shape, self._dtype)
        ascending = result[first]
        for begin in range(0, len(wanted.rows), step):
            block = self._block(wanted.rows[begin : begin + step])
            ascending[begin : begin + step] = block[(slice(None), *rest)]
        del room
        return result

    def take(self, indices: Any, out: NDArray | None = None) -> Any:
        """Rows by number, in any order and also repeated, like np.take(a, indices, axis=0).

        `out` is an array of yours, which does not count against the budget: C-contiguous, of this
        dtype and of the shape of the result.

        >>> import evenkeel, numpy
        >>> numpy.save("pairs.npy", numpy.arange(8).reshape(4, 2))
        >>> evenkeel.open("pairs.npy").take([3, 0])
        array([[6, 7],
               [0, 1]])
        """
        rows = checked_rows(indices, self._rows)
        shape = (*rows.shape, *self._row_shape)
        if out is not None:
            self._require_like(out, shape)
            self._gather(rows.reshape(-1), _bytes_of(out))
            return out
        rows = rows.reshape(-1)
        room = self._room(rows.size * self._row_bytes + self._numbers_bytes(rows), shape)
        block = self._block(rows)
        del room
        return block.reshape(shape) if shape else block.reshape(-1)[0]

    def batches(
        self,
        n: int,
        shuffle: bool | str = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world: int = 1,
        with_index: bool = False,
        drop_last: bool = False,
        start: int = 0,
        *,
        block: int | str | None = None,
        window: int | str | None = None,
        streams: int | None = None,
    ) -> Batches:
        """All rows, `n` at a time; the next ones are read while you use the current ones.

        You may keep or change each array. The budget has room for the batch that a loop holds while
        the next is read, and for more that are read ahead if they fit: in order, batches of a fifth
        of the budget do. With `shuffle`, every row comes once per epoch, in an order that depends
        on `seed` and the epoch; rank r of `world` gets rows r, r + world, ... of the order.
        `shuffle=True` is exact and reads each row by itself. `shuffle="blocks"` reads as fast as a
        scan: blocks of neighbouring rows are shuffled, and the rows of each window of blocks.
        `block` and `window` are rows, or bytes as text ("64KiB"); a window takes a quarter of the
        budget by default, and two are in memory. `streams` is a multiple of every `world` that will
        continue this loop, 64 by default.

        With `with_index`, batches are pairs of row numbers and rows. `drop_last` leaves out a last
        batch that has fewer rows. `start` is the number of the first batch.

        The result can be iterated over again: each loop is the next epoch, starting with `epoch`.
        It has `len`, `seek`, `state_dict` and `load_state_dict`; see Batches.

        >>> import evenkeel, numpy
        >>> numpy.save("ten.npy", numpy.arange(10) * 10)
        >>> a = evenkeel.open("ten.npy")
        >>> [rows.tolist() for rows in a.batches(4)]
        [[0, 10, 20, 30], [40, 50, 60, 70], [80, 90]]
        >>> for index, rows in a.batches(4, shuffle=True, seed=0, with_index=True, drop_last=True):
        ...     print(index, rows)
        [4 9 0 6] [40 90  0 60]
        [5 7 3 8] [50 70 30 80]
        """
        if not self._shape:
            raise TypeError("batches() of unsized object")
        order = (shuffle, seed, epoch, rank, world)
        return Batches(self, n, *order, with_index, drop_last, start, block, window, streams)

    @property
    def chunks(self) -> BlockShape:
        """The shape of a block that is efficient to read: whole rows. h5py and zarr have this
        attribute, too, and dask.array.from_array reads blocks of a multiple of it.

        Calling it, `a.chunks(n)`, is the old name of `a.batches(n)` and will be removed."""
        rows = max(1, _DASK_BLOCK // max(1, self._row_bytes))
        if self._chunk_rows:
            rows = max(1, rows // self._chunk_rows) * self._chunk_rows
        rows = max(1, min(self._rows, rows))
        return BlockShape(self, (rows, *self._row_shape) if self._shape else ())

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Rows by number, read together. torch's DataLoader calls this for a batch."""
        if not self._shape:
            raise TypeError("rows of unsized object")
        return list(self.take(indices))

    def __iter__(self) -> Iterator[Any]:
        if not self._shape:
            raise TypeError("iteration over a 0-d array")
        return self._each_row()

    def _each_row(self) -> Iterator[Any]:
        for rows in self._in_order(_ROWS_AT_A_TIME):
            for row in rows:
                yield row.copy()

    def _in_order(self, nbytes: int) -> Batches:
        """All rows, about `nbytes` at a time, or fewer if more do not fit the budget."""
        rows = max(1, nbytes // max(1, self._row_bytes))
        while True:
            try:
                return self.batches(rows)
            except MemoryError:
                if rows == 1:
                    raise
            rows //= 2

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        whole: NDArray = np.asarray(self[...])
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """The whole array, for torch.as_tensor and torch.tensor. Without this method, torch would
        read row by row into memory that no budget limits."""
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # memory of the CPU

    def close(self) -> None:
        """Releases everything. Later use is a ValueError; closing twice is fine."""
        self._reader.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reader.closed:
            raise ValueError("array: cannot be pickled after close\nhint: open it again")
        require_no_secrets(self._recipe[0])
        return self._reopen or (Array, self._recipe)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """The same for the same files, judged by their names, sizes and times; for URLs, by the
        ETags that the objects had when they were opened."""
        files = [(path, *_size_and_time(path)) for path in self.paths]
        versions = list(self._reader.versions)
        return type(self).__name__, files, versions, self._shape, str(self._dtype), self._source()

    def _source(self) -> str:
        return repr(self._reopen[1][:2] if self._reopen else self._recipe[5])

    def __repr__(self) -> str:
        if self._reader.closed:
            return short_repr("Array", self._recipe[0], "closed")
        text = f"{self._shape} {self._dtype}, budget {_core.format_size(self.budget.limit)}"
        return short_repr("Array", self._recipe[0], text)

    def _repr_html_(self) -> str:
        from evenkeel import _html

        return _html.array(self)

    def describe(self) -> str:
        """Describes the array, its use of the budget and its engine, in several lines."""
        size, budget = _core.format_size, self.budget
        return "\n".join(
            [
                f"array: shape {self._shape}, {self._dtype}, {size(self.nbytes)}, {self.format}",
                *(f"file: {printable(path)}" for path in self._recipe[0]),
                f"budget: {budget.describe()}, {size(budget.in_use)} in use",
                f"engine: {self.engine}",
            ]
        )

    def stats(self) -> dict[str, int]:
        """Counters of what was read since the array was opened, and from where. They are cheap to
        read.

        `cache_hits` and `cache_misses` count blocks while the cache is in use; `cache_bytes` is the
        part of the budget that the cache holds now. `bytes_from_cache`, `bytes_from_page_cache` and
        `bytes_from_disk` count where bytes came from (those from the disk include alignment and
        gaps between rows). `requests` is the number of requests to the disk, of which `in_flight`
        are not finished; `wait_ns` is the time that threads waited for the disk, in total.
        `bytes_from_mapping` counts bytes of data that is mapped because it fits the budget. Batches
        are included. evenkeel.metrics() returns these counters for all open objects."""
        return self._reader.stats()

    def _room(self, nbytes: int, shape: tuple[int, ...]) -> _core.Reservation | None:
        if nbytes <= SMALL:
            return None
        try:
            return self._reader.room_for(nbytes, "results")
        except MemoryError:
            pass
        budget = self.budget
        raise MemoryError(
            f"read {printable(self.paths[0])}: a result of shape {shape} and the rows needed for"
            f" it take {nbytes:,} bytes; {budget.left:,} bytes are left of a budget of"
            f" {budget.describe()}\n"
            "hint: iterate with batches(), read into an array of yours with take(indices,"
            " out=...), or raise the budget"
        )

    def _block(self, rows: Rows) -> NDArray:
        block = np.empty((len(rows), *self._row_shape), self._dtype)
        out = _bytes_of(block)
        if isinstance(rows, range) and rows.step == 1:
            self._reader.read(rows.start, len(rows), out)
        else:
            self._gather(rows, out)
        return block

    def _gather(self, rows: Rows, out: NDArray) -> None:
        if len(rows) <= FEW and isinstance(rows, np.ndarray):
            self._reader.gather(row_numbers(rows, self._rows), out)
            return
        for first, numbers in row_pieces(rows, self._rows, self.budget.limit):
            begin = first * self._row_bytes
            self._reader.gather(numbers, out[begin : begin + len(numbers) * self._row_bytes])

    def _numbers_bytes(self, rows: Rows) -> int:
        return pieces_bytes(rows, self.budget.limit) if len(rows) * self._row_bytes > SMALL else 0

    def _require_like(self, out: NDArray, shape: tuple[int, ...]) -> None:
        if not isinstance(out, np.ndarray):
            raise TypeError(f"take: out must be an ndarray, not {type(out).__name__}")
        if out.shape != shape or out.dtype != self._dtype:
            raise ValueError(
                f"take: out is {out.dtype} of shape {out.shape},"
                f" the result is {self._dtype} of shape {shape}"
            )
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError("take: out must be C-contiguous and writeable")


class BlockShape(tuple[int, ...]):
    """A tuple for dask. Calling it does what Array.chunks() did."""

    _array: Array

    def __new__(cls, array: Array, shape: tuple[int, ...]) -> BlockShape:
        made = super().__new__(cls, shape)
        made._array = array
        return made

    def __call__(self, *args: Any, **options: Any) -> Batches:
        warnings.warn(
            "Array.chunks(...) is now Array.batches(...)", DeprecationWarning, stacklevel=2
        )
        return self._array.batches(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def _size_and_time(path: str) -> tuple[int, ...]:
    """Empty for a URL: its ETag identifies the version."""
    if "://" in path:
        return ()
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _bytes_of(array: NDArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return array.reshape(-1).view(np.uint8)


def _lengths(shape: int | Sequence[int]) -> list[int]:
    if not isinstance(shape, Sequence) and hasattr(shape, "__index__") and not np.ndim(shape):
        lengths = [whole("shape", shape)]
    elif isinstance(shape, (str, bytes)) or not np.iterable(shape):
        raise TypeError(f"shape must be a whole number or several of them; got {shape!r}")
    else:
        lengths = [whole("an axis of shape", length) for length in shape]
    for length in lengths:
        if not -(1 << 63) <= length < 1 << 63:
            raise ValueError(f"open: an axis of {length:,} is too long")
    return lengths
