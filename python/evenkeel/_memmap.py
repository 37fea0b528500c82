"""np.memmap, kept under a line."""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Any, Literal, Union

import numpy as np

from evenkeel import _core
from evenkeel._core import Budget

_ASKS_NO_SCALARS = int(np.__version__.split(".")[0]) < 2
_MODES = {"readonly": "r", "readwrite": "r+", "write": "w+", "copyonwrite": "c"}


class Guard:
    """Keeps file mappings under a line together: give one to several memmaps as their budget.

    A thread of its own watches their pages in the page cache and releases the oldest when the line
    is near. `keep_cache` bounds the resident pages only. `access` is what is told the kernel about
    how they are read: "auto" measures it; "random", "sequential", "leave".
    """

    def __init__(
        self,
        budget: int | str | Budget | None = None,
        *,
        keep_cache: bool = False,
        access: str = "auto",
    ) -> None:
        self._governor = _core.Governor(Budget(budget).limit, keep_cache, access)

    def report(self) -> dict[str, Any]:
        """What it has seen and done: budget, cached, peak_cached, bytes_released, switches made,
        cpu_seconds, and failures in words."""
        return dict(self._governor.report())

    def __repr__(self) -> str:
        seen = self.report()
        return (
            f"<evenkeel.Guard {_core.format_size(seen['budget'])}, {seen['mappings']} mappings, "
            f"{_core.format_size(seen['cached'])} of them cached>"
        )


AnyGuard = Union[int, str, Budget, Guard, None]


def _guard(budget: AnyGuard) -> Guard:
    return budget if isinstance(budget, Guard) else Guard(budget)


class _GovernedMmap(mmap.mmap):
    """A mapping that its guard is told of before it goes."""

    _guard: Guard
    _address: int
    _file: int
    _offset: int

    def _govern(self, guard: Guard, file: int, offset: int) -> None:
        self._guard, self._file, self._offset = guard, file, offset
        self._address = np.frombuffer(self, np.uint8).ctypes.data
        self._add()
        _governed.add(self)

    def _add(self) -> None:
        self._guard._governor.add(self._address, len(self), self._file, self._offset, True)

    def _let_go(self) -> None:
        if hasattr(self, "_address"):
            self._guard._governor.remove(self._address)
            os.close(self._file)
            del self._address

    def close(self) -> None:
        if hasattr(self, "_address"):
            self._guard._governor.remove(self._address)
        try:
            super().close()
        except BufferError:  # arrays use it
            self._add()
            raise
        self._let_go()

    def __del__(self) -> None:
        self._let_go()


class memmap(np.memmap):  # noqa: N801, named as what it stands in for
    """A np.memmap whose resident pages and page cache stay under a line.

    Takes what np.memmap takes, and `budget`: bytes, "256MiB", or a Guard that several share;
    default an eighth of the memory available. It is a true np.memmap without copies: any NumPy code
    works on it, and so do views. A governor releases the oldest pages when the line is near, and
    stops readahead where reading is random. The line may be passed for a moment, by 32 MiB or 10 %,
    whichever is more. Nothing that was written is ever lost: changed pages are written to the file
    first, and with mode "c" they are kept.

    >>> import evenkeel, numpy
    >>> numpy.arange(12, dtype="float32").tofile("x.f32")
    >>> m = evenkeel.memmap("x.f32", dtype="float32", mode="r", shape=(4, 3), budget="64MiB")
    >>> isinstance(m, numpy.memmap), float(m[2].sum())
    (True, 21.0)
    >>> m.guard.report()["bytes_released"]
    0
    """

    _mmap: Any  # as np.memmap has it

    def __new__(
        cls,
        filename: Any,
        dtype: Any = np.uint8,
        mode: str = "r+",
        offset: int = 0,
        shape: Any = None,
        order: Literal["K", "A", "C", "F"] = "C",
        *,
        budget: AnyGuard = None,
    ) -> memmap:
        mode = _MODES.get(mode, mode)
        if mode not in _MODES.values():
            raise ValueError(
                f"mode must be one of {sorted([*_MODES, *_MODES.values()])} (got {mode!r})"
            )
        if mode == "w+" and shape is None:
            raise ValueError("shape must be given if mode == 'w+'")
        guard = _guard(budget)
        has_file = hasattr(filename, "read")
        file = (
            filename
            if has_file
            else open(  # noqa: SIM115
                os.fspath(filename), ("r" if mode == "c" else mode) + "b"
            )
        )
        try:
            descr = np.dtype(dtype)
            if descr.hasobject:  # np.memmap would follow them as addresses
                raise ValueError(
                    f"memmap: {descr} holds Python objects, and what a file has in their place "
                    "are addresses that anyone may have chosen"
                )
            lengths, size = _extent(file, descr, mode, offset, shape)
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            if size == offset:  # nothing to map
                raise ValueError("cannot mmap an empty file")
            access = {"c": mmap.ACCESS_COPY, "r": mmap.ACCESS_READ}.get(mode, mmap.ACCESS_WRITE)
            mapping = _GovernedMmap(file.fileno(), size - start, access=access, offset=start)
            self = np.ndarray.__new__(
                cls, lengths, dtype=descr, buffer=mapping, offset=offset - start, order=order
            )
            self._mmap, self.offset, self.mode = mapping, offset, mode
            name = getattr(file, "name", None) if has_file else os.path.abspath(os.fspath(filename))
            self.filename = name if isinstance(name, (str, os.PathLike)) else None  # type: ignore[assignment]
            mapping._govern(guard, os.dup(file.fileno()), start)
        finally:
            if not has_file:
                file.close()
        return self

    # np.memmap gives ndarrays and scalars for what is computed, but not to what derives from it.

    def __array_wrap__(self, arr: Any, context: Any = None, return_scalar: bool = False) -> Any:
        wrapped = np.ndarray.__array_wrap__(self, arr, context)
        if wrapped is self:
            return wrapped
        if return_scalar or (_ASKS_NO_SCALARS and wrapped.shape == ()):
            return wrapped[()]
        return wrapped.view(np.ndarray)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(found, memmap) and found._mmap is None:
            return found.view(np.ndarray)
        return found

    @property
    def guard(self) -> Guard | None:
        """What keeps it under its line."""
        return getattr(self._mmap, "_guard", None)

    def __reduce__(self) -> Any:
        """The recipe where that gives the same array again, else the data, as np.memmap does."""
        whole = isinstance(self.base, _GovernedMmap) and self.filename is not None
        if not whole or self.mode == "c":
            return super().__reduce__()
        mode = "r" if self.mode == "r" else "r+"  # "w+" would empty the file
        order = "C" if self.flags.c_contiguous else "F"
        if self.mode != "r":
            self.flush()
        budget = self.guard.report()["budget"] if self.guard else None
        return _again, (self.filename, self.dtype, mode, self.offset, self.shape, order, budget)


def _again(
    filename: Any,
    dtype: Any,
    mode: str,
    offset: int,
    shape: Any,
    order: Literal["C", "F"],
    budget: int,
) -> memmap:
    return memmap(filename, dtype, mode, offset, shape, order, budget=budget)


def _extent(
    file: Any, dtype: np.dtype[Any], mode: str, offset: int, shape: Any
) -> tuple[tuple[int, ...], int]:
    """The shape of the array, and the size that the file has or is given."""
    file.seek(0, 2)
    size = file.tell()
    if shape is None:
        if (size - offset) % dtype.itemsize:
            raise ValueError("Size of available data is not a multiple of the data-type size.")
        return ((size - offset) // dtype.itemsize,), size
    lengths = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    needed = offset + int(np.prod(lengths, dtype=object)) * dtype.itemsize
    if mode in ("w+", "r+"):
        needed = max(needed, 1)
        if size < needed:
            file.seek(needed - 1)
            file.write(b"\0")
            file.flush()
    return lengths, needed


def govern(array: np.memmap[Any, Any], budget: AnyGuard = None) -> Guard:
    """Keeps a np.memmap that is already there under a line, for as long as it lives.

    Pages are paged out by the kernel instead of dropped, which is safe whatever becomes of the
    mapping; it needs a file that you own or may write.

    >>> import evenkeel, numpy
    >>> numpy.zeros(1 << 20, "uint8").tofile("there.bin")
    >>> there = numpy.memmap("there.bin", mode="r")
    >>> evenkeel.govern(there, budget="16MiB").report()["mappings"]
    1
    """
    mapping = getattr(array, "_mmap", None)
    if not isinstance(mapping, mmap.mmap):
        raise TypeError(f"govern: takes a np.memmap, not {type(array).__name__}")
    if isinstance(mapping, _GovernedMmap):
        raise ValueError("govern: this memmap has a guard already")
    if array.filename is None:
        raise ValueError("govern: the file of this memmap has no name to open it by")
    guard = _guard(budget)
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    with open(array.filename, "rb") as file:
        address = np.frombuffer(mapping, np.uint8).ctypes.data
        guard._governor.add(address, len(mapping), file.fileno(), start, False)
    weakref.finalize(mapping, _forget, guard, address)
    return guard


def _forget(guard: Guard, address: int) -> None:
    guard._governor.remove(address)


# In a child of fork the governor begins anew.
_governed: weakref.WeakSet[_GovernedMmap] = weakref.WeakSet()


def _govern_in_child() -> None:
    for mapping in list(_governed):
        if hasattr(mapping, "_address"):
            mapping._add()


os.register_at_fork(after_in_child=_govern_in_child)
