"""Splits an index into the rows to read along the first axis and the rest, which NumPy does."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]


def shape_alone(shape: tuple[int, ...]) -> NDArray:
    """An array of elements without bytes. Indexing it gives NumPy's own shapes and errors, without
    using memory."""
    return np.broadcast_to(np.empty((), np.dtype([])), shape)


@dataclass
class Wanted:
    """Rows to read, and the index that makes the result out of the block of these rows."""

    shape: tuple[int, ...]  # of the result
    rows: range | NDArray  # ascending, each once; but see `direct`
    index: tuple[Any, ...]  # for the block
    direct: bool  # the block is the result after reshaping: rows may then repeat, in any order
    by_rows: bool = False  # each row of the result comes from one row of the block


def resolve(index: Any, of: NDArray) -> Wanted:
    """`of` is the result of shape_alone. Raises IndexError as NumPy does."""
    shape, answer = of.shape, of[index].shape
    items = _items(index, len(shape))
    place, taken = _first_axis(items)
    if taken is None:  # an array without axes
        return Wanted(answer, range(1), tuple(items), False)
    direct = place == 0 and all(_is_whole(item) for item in items[1:])
    if not answer and any(item is Ellipsis for item in items):
        direct = False  # an array without axes, instead of a scalar
    rows: range | NDArray
    if isinstance(taken, slice):
        rows, items[place] = _of_slice(taken, shape[0])
        direct = direct and items[place] == slice(None)
        basic = all(_is_whole(item) or isinstance(item, (int, slice)) for item in items[1:])
        return Wanted(answer, rows, tuple(items), direct, place == 0 and basic)
    if isinstance(taken, np.ndarray):
        rows = row_numbers(taken, shape[0])
        if direct:
            return Wanted(answer, rows.reshape(-1), (), True)
        rows, back = np.unique(rows, return_inverse=True)
        items[place] = back.reshape(taken.shape)
    else:
        row = taken + shape[0] if taken < 0 else taken
        rows, items[place] = range(row, row + 1), 0
    return Wanted(answer, rows, tuple(items), direct)


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


def row_numbers(indices: Any, length: int) -> NDArray:
    """In the form that the reader expects: none is negative. Raises IndexError as NumPy does."""
    array = np.asarray(indices)
    if array.size == 0:
        return np.empty(array.shape, np.uint64)
    if array.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    for wrong in (array[array < -length], array[array >= length]):
        if wrong.size:
            raise IndexError(
                f"index {wrong.flat[0]} is out of bounds for axis 0 with size {length}"
            )
    if array.dtype.kind == "i":
        array = array.astype(np.int64, copy=False)
        array = np.where(array < 0, array + length, array)
    return np.asarray(
        array, np.uint64, order="C"
    )  # ascontiguousarray would add an axis to an array without axes
