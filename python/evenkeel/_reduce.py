"""Sums, means and extremes of arrays that do not fit in memory: block by block, in the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from evenkeel._stepping import whole

if TYPE_CHECKING:
    from evenkeel._array import Array, NDArray

# Bytes that are read at a time, if the budget allows it.
_READ_BYTES = 4 << 20
# Elements that are worked on at a time: their float64 copy stays in the processor's cache.
_ELEMENTS = 1 << 17


class Reductions:
    """The methods of arrays that NumPy's functions of the same names call."""

    def _reduce(
        self, name: str, axis: int | None, dtype: Any, out: Any, keepdims: bool, ddof: float = 0
    ) -> Any:
        return reduce(cast("Array", self), name, axis, dtype, out, keepdims, ddof)

    def sum(
        self,
        axis: int | None = None,
        dtype: None = None,
        out: None = None,
        *,
        keepdims: bool = False,
    ) -> Any:
        """The sum of all elements, or of each column (axis 0), read block by block.

        Integers are summed as in NumPy, floats in float64 with compensation of rounding errors."""
        return self._reduce("sum", axis, dtype, out, keepdims)

    def mean(
        self,
        axis: int | None = None,
        dtype: None = None,
        out: None = None,
        *,
        keepdims: bool = False,
    ) -> Any:
        """The mean of all elements, or of each column (axis 0), in float64, read block by block.

        np.mean(a, axis=0) calls it, too.

        >>> import evenkeel, numpy
        >>> numpy.save("features.npy", numpy.arange(12, dtype="float32").reshape(4, 3))
        >>> a = evenkeel.open("features.npy", budget="64MiB")
        >>> a.mean(axis=0), a.std(axis=0, ddof=1).round(3), float(a.max())
        (array([4.5, 5.5, 6.5]), array([3.873, 3.873, 3.873]), 11.0)
        """
        return self._reduce("mean", axis, dtype, out, keepdims)

    def var(
        self,
        axis: int | None = None,
        dtype: None = None,
        out: None = None,
        ddof: float = 0,
        *,
        keepdims: bool = False,
    ) -> Any:
        """The variance of all elements, or of each column (axis 0), in float64."""
        return self._reduce("var", axis, dtype, out, keepdims, ddof)

    def std(
        self,
        axis: int | None = None,
        dtype: None = None,
        out: None = None,
        ddof: float = 0,
        *,
        keepdims: bool = False,
    ) -> Any:
        """The standard deviation of all elements, or of each column (axis 0), in float64."""
        return self._reduce("std", axis, dtype, out, keepdims, ddof)

    def min(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        """The smallest element, or that of each column (axis 0); NaN if there is one, as in
        NumPy."""
        return self._reduce("min", axis, None, out, keepdims)

    def max(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        """The largest element, or that of each column (axis 0); NaN if there is one."""
        return self._reduce("max", axis, None, out, keepdims)


def reduce(
    array: Array, name: str, axis: int | None, dtype: Any, out: Any, keepdims: bool, ddof: float = 0
) -> Any:
    """Like the ndarray method `name` with axis 0 or None, but in float64 if NumPy would use a
    narrower float. NumPy's own functions call the methods with `dtype` and `out`, which must be
    None."""
    if dtype is not None or out is not None:
        raise TypeError(f"{name}: dtype and out are not supported; the result is in float64")
    along_rows = _along_rows(array, name, axis)
    if array.dtype.kind not in "biufcmM" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name}: {array.dtype} has no {name}")
    if array.size == 0:
        return _of_nothing(array, name, axis, keepdims, ddof)
    result = np.asarray(_REDUCTIONS[name](array, along_rows, ddof))
    if keepdims:
        return result.reshape((1, *array.shape[1:]) if along_rows else (1,) * array.ndim)
    return result if result.ndim else result[()]


def _along_rows(array: Array, name: str, axis: int | None) -> bool:
    if axis is None:
        return False
    number = whole(f"{name}: axis", axis)
    if not -array.ndim <= number < array.ndim:
        # NumPy before 1.25 has it in its main module.
        raise getattr(np, "exceptions", np).AxisError(number, array.ndim)
    if number % array.ndim != 0:
        raise ValueError(
            f"{name}: axis must be 0 or None; got {number}\n"
            "hint: go through the rows with batches() and reduce each batch"
        )
    return array.ndim > 1  # of one axis, all elements are one result


def _of_nothing(array: Array, name: str, axis: int | None, keepdims: bool, ddof: float) -> Any:
    """NumPy's own result, warnings and errors for an array without elements."""
    kind = _accumulator(array.dtype) if name in ("mean", "var", "std") else array.dtype
    empty = np.empty(array.shape, kind)
    options: dict[str, Any] = {"ddof": ddof} if name in ("var", "std") else {}
    return getattr(empty, name)(axis=axis, keepdims=keepdims, **options)


def _accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "V":  # bfloat16
        return np.dtype(np.float64)
    return np.result_type(dtype, np.float64)


def _blocks(array: Array, along_rows: bool, copied: int = 0) -> Iterator[NDArray]:
    """The rows in order, a few at a time. The budget has room for `copied` copies of such a block,
    and for the accumulators of a result along the rows."""
    limit = array.budget.limit
    row_elements = max(1, math.prod(array.shape[1:]))
    elements = max(row_elements, min(_ELEMENTS, limit // 256))
    size = max(16 if array.dtype.kind == "c" else 8, array.dtype.itemsize)  # of an accumulator
    results = 8 * row_elements if along_rows else 0
    room = array._reader.room_for((copied * elements + results) * size, "accumulators")
    step = max(1, elements // row_elements)
    if not array.shape:
        yield np.asarray(array).reshape(1)
        return
    with array._in_order(min(_READ_BYTES, limit // 16)) as batches:
        for rows in batches:
            for first in range(0, len(rows), step):
                yield rows[first : first + step]
    del room


def _axis(along_rows: bool) -> int | None:
    return 0 if along_rows else None


class _Sum:
    """A sum of many terms with the rounding errors of its additions (Knuth's TwoSum)."""

    def __init__(self) -> None:
        self._total: Any = None
        self._error: Any = 0

    def add(self, term: Any) -> None:
        if self._total is None:
            self._total = term
            return
        before, self._total = self._total, self._total + term
        with np.errstate(invalid="ignore"):  # infinity has no rounding error
            gained = self._total - before
            self._error = self._error + ((before - (self._total - gained)) + (term - gained))

    def result(self) -> Any:
        return np.where(np.isfinite(self._error), self._total + self._error, self._total)


def _sum(array: Array, along_rows: bool, _: float) -> Any:
    if array.dtype.kind in "biumM":  # exact, modulo 2^64 as NumPy's
        total: Any = None
        for block in _blocks(array, along_rows):
            part = block.sum(axis=_axis(along_rows))
            total = part if total is None else np.add(total, part)
        return total
    return _float_sum(array, along_rows)


def _float_sum(array: Array, along_rows: bool) -> Any:
    total, dtype = _Sum(), _accumulator(array.dtype)
    for block in _blocks(array, along_rows, 1):
        total.add(block.sum(axis=_axis(along_rows), dtype=dtype))
    return total.result()


def _mean(array: Array, along_rows: bool, _: float) -> Any:
    _require_numbers(array, "mean")
    return _float_sum(array, along_rows) / (len(array) if along_rows else array.size)


def _var(array: Array, along_rows: bool, ddof: float) -> Any:
    """Two passes over each block, and the formula of Chan, Golub and LeVeque for joining blocks.
    The mean of the first block is subtracted from all elements, so that little precision is
    lost."""
    _require_numbers(array, "var")
    axis, dtype = _axis(along_rows), _accumulator(array.dtype)
    count: int = 0
    shift: Any = None
    mean: Any = 0  # of the elements minus `shift`
    squares: Any = 0  # sum of squared distances from the mean
    for block in _blocks(array, along_rows, 2):
        more = len(block) if along_rows else block.size
        if shift is None:
            shift = block.sum(axis=axis, dtype=dtype) / more
        distance = np.subtract(block, shift, dtype=dtype)
        mean_of_block = distance.sum(axis=axis) / more
        distance -= mean_of_block
        delta = mean_of_block - mean
        together = count + more
        squares = squares + _squared(distance).sum(axis=axis)
        squares = squares + _squared(delta) * (count * (more / together))
        mean = mean + delta * (more / together)
        count = together
    free = max(count - ddof, 0)
    if free <= 0:
        _of_nothing_left()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.true_divide(squares, free)


def _squared(number: Any) -> Any:
    if np.iscomplexobj(number):
        return number.real**2 + number.imag**2
    return np.multiply(number, number)


def _of_nothing_left() -> None:
    import warnings

    warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=5)


def _std(array: Array, along_rows: bool, ddof: float) -> Any:
    return np.sqrt(_var(array, along_rows, ddof))


def _extreme(pick: np.ufunc) -> Callable[[Array, bool, float], Any]:
    def of(array: Array, along_rows: bool, _: float) -> Any:
        best: Any = None
        for block in _blocks(array, along_rows):
            part = pick.reduce(block, axis=_axis(along_rows))
            best = part if best is None else pick(best, part)
        return best

    return of


def _require_numbers(array: Array, name: str) -> None:
    if array.dtype.kind in "mM":
        raise TypeError(f"{name}: {array.dtype} has no {name}; read it as dtype='int64'")


_REDUCTIONS: dict[str, Callable[[Array, bool, float], Any]] = {
    "sum": _sum,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "min": _extreme(np.minimum),
    "max": _extreme(np.maximum),
}
