"""np.memmap within a memory budget."""

from __future__ import annotations

import mmap
import operator
import os
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np

from evenkeel import _core
from evenkeel._core import Budget
from evenkeel._stepping import text

_ASKS_NO_SCALARS = int(np.__version__.split(".")[0]) < 2
_MODES = {"readonly": "r", "readwrite": "r+", "write": "w+", "copyonwrite": "c"}
_ACCESS = {"r": mmap.ACCESS_READ, "c": mmap.ACCESS_COPY}  # others: ACCESS_WRITE


class Guard:
    """Keeps file mappings within one budget: pass it to several memmaps as their budget.

    A background thread watches their pages in the page cache and releases the oldest ones before
    the budget is full. All guards of a process share that thread. `keep_cache` limits resident
    pages only. `access` is the advice to the kernel on how they are read: "auto" (measured),
    "random", "sequential" or "leave".
    """

    def __init__(
        self,
        budget: int | str | Budget | None = None,
        *,
        keep_cache: bool = False,
        access: str = "auto",
    ) -> None:
        self._evictor = _core.Evictor(
            Budget(budget).limit, bool(keep_cache), text("guard: access", access)
        )
        self._lost_in_fork: list[str] = []

    def report(self) -> dict[str, Any]:
        """Counters: budget, mappings, cached, peak_cached, guarded_peak, bytes_released,
        bytes_fetched, file_bytes, switches of readahead, cpu_seconds; and failures, a sentence
        each.

        The budget is compared with guarded_peak. Unlike peak_cached, it leaves out pages that were
        cached before their file was guarded, once they are released.

        If bytes_fetched is several times file_bytes, pages were read repeatedly; a budget of
        file_bytes would hold them all.
        """
        report: dict[str, Any] = dict(self._evictor.report())
        report["failures"] = [*report["failures"], *self._lost_in_fork]
        return report

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<evenkeel.Guard {_core.format_size(report['budget'])}, "
            f"{report['mappings']} mappings, {_core.format_size(report['cached'])} cached>"
        )


AnyGuard = Union[int, str, Budget, Guard, None]


def _guard(budget: AnyGuard) -> Guard:
    return budget if isinstance(budget, Guard) else Guard(budget)


# By id. A plain dict, because a fork may happen while another thread changes it.
_guarded: dict[int, weakref.ref[_GuardedMmap]] = {}


class _GuardedMmap(mmap.mmap):
    """A mapping that is removed from its guard before it is unmapped. It owns one descriptor of the
    file, which the guard also uses."""

    _guard: Guard
    _address: int
    _file: int
    _offset: int

    def _protect(self, guard: Guard, file: int, offset: int) -> None:
        """Adds it to the guard, and owns the descriptor from then on."""
        self._guard, self._offset = guard, offset
        self._address = _address_of(self)
        self._file = file
        _guarded[id(self)] = weakref.ref(self)
        self._add()

    def _add(self) -> None:
        self._guard._evictor.add(self._address, len(self), self._file, self._offset, True)

    def _remove(self) -> None:
        """Called before the file is unmapped: later the address may belong to another memmap."""
        if hasattr(self, "_file"):
            self._guard._evictor.remove(self._address)

    def _forget(
        self, guarded: dict[int, Any] = _guarded, close: Callable[[int], None] = os.close
    ) -> None:
        """When the interpreter ends, the names of this module may be gone before a memmap is."""
        guarded.pop(id(self), None)
        if hasattr(self, "_file"):
            close(self._file)
            del self._file

    def close(self) -> None:
        self._remove()
        try:
            super().close()
        except BufferError:  # arrays use it
            self._add()
            raise
        self._forget()

    def size(self) -> int:
        return os.fstat(self._file).st_size if hasattr(self, "_file") else super().size()

    def resize(self, newsize: int) -> None:
        raise TypeError("evenkeel.memmap cannot be resized: create a new one with another shape")

    def __del__(self) -> None:
        self._remove()
        self._forget()


def _address_of(mapping: mmap.mmap) -> int:
    return int(np.frombuffer(mapping, np.uint8).ctypes.data)


def _map(file: int, length: int, offset: int, mode: str) -> _GuardedMmap:
    """A mapping of the file. mmap.mmap would duplicate the descriptor, so it is created without a
    file, and the file is mapped over it."""
    size = os.fstat(file).st_size
    length = length or size - offset  # as for mmap.mmap, 0 is the rest of the file
    if length == 0:
        raise ValueError("cannot mmap an empty file")
    if offset + length > size:
        raise ValueError("mmap length is greater than file size")
    protection = mmap.PROT_READ if mode == "r" else mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _core.MAP_NORESERVE
    mapping = None
    try:
        mapping = _GuardedMmap(-1, length, flags=flags, prot=protection)
        _core.map_over(_address_of(mapping), length, file, offset, protection, mode != "c")
    except OSError:  # limits on memory (overcommit_memory=2) or on address space
        del mapping
        access = _ACCESS.get(mode, mmap.ACCESS_WRITE)
        mapping = _GuardedMmap(file, length, access=access, offset=offset)
    return mapping


def _open(filename: Any, mode: str) -> Any:
    """The file, opened without waiting for the other end of a pipe."""

    def opener(path: str, flags: int) -> int:
        file = os.open(path, flags | os.O_NONBLOCK, 0o666)
        try:
            _check_regular(file, filename)
        except ValueError:
            os.close(file)
            raise
        return file

    return open(os.fspath(filename), ("r" if mode == "c" else mode) + "b", opener=opener)  # noqa: SIM115


class memmap(np.memmap):  # noqa: N801, named like np.memmap
    """A np.memmap whose resident pages and page cache stay within a budget.

    Takes the arguments of np.memmap, and `budget`: bytes, "256MiB", or a Guard that several share;
    default an eighth of the memory available. It is a true np.memmap without copies: any NumPy code
    works on it, and so do views. A background thread releases the oldest pages before the budget is
    full, and turns off readahead if access is random. Memory may exceed the budget for a moment, by
    32 MiB or 10 %, whichever is more; `guard.report()["failures"]` reports if it was more. Nothing
    that was written is lost: changed pages are written to the file first, and with mode "c" they
    are kept.

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
        file = filename if has_file else _open(filename, mode)
        try:
            _check_regular(file.fileno(), filename)
            descr = np.dtype(dtype)
            if descr.hasobject:  # np.memmap would use the bytes as pointers
                raise ValueError(
                    f"memmap: {descr} holds Python objects, which a file cannot hold: its bytes"
                    " would be used as pointers"
                )
            offset = operator.index(offset)
            lengths, end = _extent(file, descr, mode, offset, shape)
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            if end == start and start > 0:  # an empty array: map the page before it
                start -= mmap.ALLOCATIONGRANULARITY
            mapping = _map(file.fileno(), end - start, start, mode)
            self = np.ndarray.__new__(
                cls, lengths, dtype=descr, buffer=mapping, offset=offset - start, order=order
            )
            self._mmap, self.offset, self.mode = mapping, offset, mode
            self.filename = _name_of(filename, file)
            mapping._protect(guard, os.dup(file.fileno()), start)
        finally:
            if not has_file:
                file.close()
        return self

    # Results are ndarrays and scalars, as with np.memmap. By default NumPy would return a subclass.

    def __array_wrap__(self, arr: Any, context: Any = None, return_scalar: bool = False) -> Any:
        wrapped = np.ndarray.__array_wrap__(self, arr, context)
        if wrapped is self or type(self) is not memmap:
            return wrapped
        if return_scalar or (_ASKS_NO_SCALARS and wrapped.shape == ()):
            return wrapped[()]
        return wrapped.view(np.ndarray)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if type(found) is memmap and found._mmap is None:
            return found.view(np.ndarray)
        return found

    @property
    def guard(self) -> Guard | None:
        """The guard that keeps it within its budget."""
        return getattr(self._mmap, "_guard", None)

    def __reduce__(self) -> Any:
        """Pickles the arguments if they recreate the same array, otherwise the data, like
        np.memmap."""
        whole = isinstance(self.base, _GuardedMmap) and self.filename is not None
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


def _check_regular(file: int, filename: Any) -> None:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise ValueError(f"memmap: {filename!r} is not a regular file, so it cannot be mapped")


def _name_of(filename: Any, file: Any) -> Any:
    """As in np.memmap: an absolute path, of the type that was passed."""
    if isinstance(filename, os.PathLike):
        return Path(os.fspath(filename)).resolve()
    name = getattr(file, "name", None)
    return os.path.abspath(name) if isinstance(name, str) else None


def _extent(
    file: Any, dtype: np.dtype[Any], mode: str, offset: int, shape: Any
) -> tuple[tuple[int, ...], int]:
    """The shape of the array, and its end in the file in bytes. The file grows to that size."""
    file.seek(0, 2)
    size = file.tell()
    if shape is None:
        if (size - offset) % dtype.itemsize:
            raise ValueError("Size of available data is not a multiple of the data-type size.")
        return ((size - offset) // dtype.itemsize,), size
    lengths: tuple[int, ...]
    try:
        lengths = (operator.index(shape),)
    except TypeError:
        lengths = tuple(operator.index(length) for length in shape)
    end = offset + int(np.prod(lengths, dtype=object)) * dtype.itemsize
    if mode in ("w+", "r+"):
        if end == size == 0:  # an error, or a file of one byte: NumPy's versions differ
            np.memmap(file, np.uint8, "r+", shape=0)
        end = max(end, 1)
        if size < end:
            file.seek(end - 1)
            file.write(b"\0")
            file.flush()
    return lengths, end


def govern(array: np.memmap[Any, Any], budget: AnyGuard = None) -> Guard:
    """Keeps an existing np.memmap within a budget, for its lifetime.

    The kernel pages its pages out instead of dropping them, which is safe whatever happens to the
    mapping. This needs a file that you own or may write.

    >>> import evenkeel, numpy
    >>> numpy.zeros(1 << 20, "uint8").tofile("there.bin")
    >>> there = numpy.memmap("there.bin", mode="r")
    >>> evenkeel.govern(there, budget="16MiB").report()["mappings"]
    1
    """
    mapping = getattr(array, "_mmap", None)
    if not isinstance(mapping, mmap.mmap):
        raise TypeError(f"govern: takes a np.memmap, not {type(array).__name__}")
    if isinstance(mapping, _GuardedMmap):
        raise ValueError("govern: this memmap has a guard already")
    if array.filename is None:
        raise ValueError("govern: the file of this memmap has no name to open it by")
    guard = _guard(budget)
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    with open(array.filename, "rb") as file:
        address = _address_of(mapping)
        guard._evictor.add(address, len(mapping), file.fileno(), start, False)
    weakref.finalize(mapping, _forget, guard, address)
    return guard


def _forget(guard: Guard, address: int) -> None:
    guard._evictor.remove(address)


def _guard_in_child() -> None:
    """In a child of fork, the guards have no mappings: adds those that still exist."""
    for reference in list(_guarded.values()):
        mapping = reference()
        if mapping is None or mapping.closed:
            continue
        try:
            mapping._add()
        except Exception as error:  # one bad mapping must not keep others from being guarded
            mapping._guard._lost_in_fork.append(f"not guarded after fork: {error}")


os.register_at_fork(after_in_child=_guard_in_child)
