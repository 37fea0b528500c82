"""Splits an index into the rows to read along the first axis and the rest, which NumPy does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]
# Bytes. Results this small are covered by the reader's own memory.
SMALL = 65536
# Reserves a number of bytes for a result of a shape.
Room = Callable[[int, "tuple[int, ...]"], Any]
# Bytes that np.unique takes for a number, including the converted number.
_SORTED = 64
# Row numbers that are converted in one piece, whatever the budget.
FEW = 1024
# Elements of a mask whose row numbers are found together.
_MASK_PART = 8192


def shape_alone(shape: tuple[int, ...]) -> NDArray:
    """An array of elements without bytes. Indexing it gives NumPy's own shapes and errors, without
    using memory."""
    return np.broadcast_to(np.empty((), np.dtype([])), shape)


class MaskedRows:
    """The numbers of the rows that a mask selects. They are computed a few at a time: rows of a few
    bytes are smaller than their numbers."""

    def __init__(self, mask: NDArray) -> None:
        self._mask = mask
        parts = range(0, len(mask), _MASK_PART)
        counts = [np.count_nonzero(mask[begin : begin + _MASK_PART]) for begin in parts]
        self._before = np.cumsum([0, *counts])  # rows before each part, and all rows

    def __len__(self) -> int:
        return int(self._before[-1])

    def __getitem__(self, some: slice) -> NDArray:
        """For slices without a step."""
        begin, end, _ = some.indices(len(self))
        if begin >= end:
            return np.empty(0, np.intp)
        part = int(np.searchsorted(self._before, begin, side="right")) - 1
        end_part = int(np.searchsorted(self._before, end))
        first = part * _MASK_PART
        rows = self._mask[first : end_part * _MASK_PART].nonzero()[0]
        before = int(self._before[part])
        rows = rows[begin - before : end - before]
        return np.add(rows, first, out=rows)

    @property
    def nbytes(self) -> int:
        """What this object holds, and what a slice finds besides the numbers that it returns."""
        return int(self._before.nbytes) + 2 * _MASK_PART * np.dtype(np.intp).itemsize


Rows = Union[range, NDArray, MaskedRows]


@dataclass
class Wanted:
    """Rows to read, and the index that makes the result out of the block of these rows."""

    shape: tuple[int, ...]  # of the result
    # A range, or numbers for `row_pieces`: ascending, each once, unless `direct` or `by_rows`.
    rows: Rows
    index: tuple[Any, ...]  # for the block
    direct: bool  # the block is the result after reshaping: rows may then repeat, in any order
    by_rows: bool = False  # each row of the result comes from one row of the block
    index_bytes: int = 0  # what `rows` and `index` take, if the library made them
    by_parts: Wanted | None = None  # the same result, made of a part of the rows at a time


def resolve(index: Any, of: NDArray, room: Room | None = None) -> Wanted:
    """`of` is the result of shape_alone. `room` reserves memory for sorting row numbers. Raises
    IndexError as NumPy does."""
    masked = _of_mask(index, of)
    if masked is not None:
        return masked
    shape, answer = of.shape, of[index].shape
    items = _items(index, len(shape))
    place, taken = _first_axis(items)
    if taken is None:  # an array without axes
        return Wanted(answer, range(1), tuple(items), False)
    direct = place == 0 and all(_is_whole(item) for item in items[1:])
    if not answer and any(item is Ellipsis for item in items):
        direct = False  # an array without axes, instead of a scalar
    rows: Rows
    if isinstance(taken, slice):
        rows, items[place] = _of_slice(taken, shape[0])
        direct = direct and items[place] == slice(None)
        return Wanted(answer, rows, tuple(items), direct, place == 0 and _are_basic(items[1:]))
    if isinstance(taken, np.ndarray):
        rows = checked_rows(taken, shape[0])
        if direct:
            return Wanted(answer, rows.reshape(-1), (), True)
        parts = None
        if place == 0 and rows.ndim == 1 and _are_basic(items[1:]):
            parts = Wanted(answer, rows, (slice(None), *items[1:]), False, by_rows=True)
        try:
            working = room(_SORTED * rows.size, answer) if room is not None else None
        except MemoryError:
            if parts is None:
                raise
            return parts
        rows, back = np.unique(row_numbers(rows, shape[0]), return_inverse=True)
        del working
        items[place] = back.reshape(taken.shape)
        nbytes = rows.nbytes + back.nbytes
        return Wanted(answer, rows, tuple(items), False, False, nbytes, parts)
    row = taken + shape[0] if taken < 0 else taken
    rows, items[place] = range(row, row + 1), 0
    return Wanted(answer, rows, tuple(items), direct)


def _of_mask(index: Any, of: NDArray) -> Wanted | None:
    """For a mask of many rows, alone or before numbers and slices. NumPy would find all row numbers
    at once."""
    first, *rest = index if isinstance(index, tuple) and index else (index,)
    if not isinstance(first, np.ndarray) or first.dtype != np.bool_ or first.size <= FEW:
        return None
    mask = np.asarray(first)
    items = [item for given in rest for item in _plain(given)]
    if mask.shape != of.shape[:1] or not _are_basic(items) or items.count(Ellipsis) > 1:
        return None
    rows = MaskedRows(mask)
    if len(rows) <= FEW:
        return None
    answer = (len(rows), *of[(slice(0, 0), *items)].shape[1:])
    direct = all(_is_whole(item) for item in items)
    return Wanted(answer, rows, (slice(None), *items), direct, not direct, rows.nbytes)


def _items(index: Any, ndim: int) -> list[Any]:
    """One entry for each axis, and entries that take no axis. An ellipsis takes no axis here; it is
    kept because NumPy returns no scalars if there is one. Boolean arrays are replaced."""
    given = index if isinstance(index, tuple) else (index,)
    items: list[Any] = []
    for item in given:
        items.extend(_plain(item))
    axes = ndim - sum(_takes_axis(item) for item in items)
    whole = [slice(None)] * axes
    for place, item in enumerate(items):
        if item is Ellipsis:
            return [*items[:place], *whole, *items[place:]]
    return items + whole


def _plain(item: Any) -> list[Any]:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if not isinstance(item, (bool, np.bool_)) and hasattr(item, "__index__"):
        try:
            return [operator.index(item)]
        except TypeError:
            pass  # an array that holds more than one number
    array = np.asarray(item)
    if array.dtype == np.bool_:
        return list(array.nonzero()) if array.ndim > 0 else [array]
    return [array.astype(np.intp) if array.size == 0 else array]


def _takes_axis(item: Any) -> bool:
    if item is None or item is Ellipsis:
        return False
    return not (isinstance(item, np.ndarray) and item.dtype == np.bool_)


def _is_whole(item: Any) -> bool:
    return item is Ellipsis or (isinstance(item, slice) and item == slice(None))


def _are_basic(items: list[Any]) -> bool:
    return all(_is_whole(item) or isinstance(item, (int, slice)) for item in items)


def _first_axis(items: list[Any]) -> tuple[int, Any]:
    for place, item in enumerate(items):
        if _takes_axis(item):
            return place, item
    return 0, None


def _of_slice(taken: slice, length: int) -> tuple[range, slice]:
    rows = range(*taken.indices(length))
    if rows.step > 0:
        return rows, slice(None)
    return rows[::-1], slice(None, None, -1)


def checked_rows(indices: Any, length: int) -> NDArray:
    """Row numbers as they were given. Raises IndexError as NumPy does."""
    array = np.asarray(indices)
    if array.size == 0:
        return np.empty(array.shape, np.uint64)
    if array.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if int(array.min()) < -length or int(array.max()) >= length:
        below = array[array < -length]
        wrong = (below if below.size else array[array >= length]).flat[0]
        raise IndexError(f"index {wrong} is out of bounds for axis 0 with size {length}")
    return array


def row_numbers(checked: NDArray, length: int) -> NDArray:
    """In the form that the reader expects: none is negative. ascontiguousarray would add an axis to
    an array without axes."""
    array = checked
    if array.dtype.kind == "i":
        array = array.astype(np.int64, copy=False)
        if array.size and array.min() < 0:
            array = np.where(array < 0, array + length, array)
    return np.asarray(array, np.uint64, order="C")


# Bytes that converting a row number takes at most: of the result, and of its temporaries.
_CONVERTED = 32


def _at_a_time(limit: int) -> int:
    return max(FEW, limit // 512)


def pieces_bytes(rows: Rows, limit: int) -> int:
    """What row_pieces allocates."""
    if isinstance(rows, range) and rows.step == 1:
        return 0
    return _CONVERTED * min(len(rows), _at_a_time(limit)) if len(rows) > FEW else 0


def row_pieces(rows: Rows, length: int, limit: int) -> Iterator[tuple[int, NDArray]]:
    """Row numbers in the form that the reader expects, a few at a time, each time with the place of
    the first: rows of a few bytes are smaller than their numbers."""
    step = _at_a_time(limit)
    for first in range(0, max(1, len(rows)), step):
        some = rows[first : first + step]
        if isinstance(some, range):
            yield first, np.arange(some.start, some.stop, some.step, dtype=np.uint64)
        else:
            yield first, row_numbers(some, length)
