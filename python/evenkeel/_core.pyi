"""The native half of evenkeel; use the package, not this."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def version() -> str: ...

class Reservation:
    """A share of a budget, given back when it goes."""

    @property
    def bytes(self) -> int: ...

    def release(self) -> None: ...

class Budget:
    """
    A number of bytes that arrays may occupy: together, if they share it.

    It covers buffers, resident pages of mappings and page-cache pages that reads bring in, and is
    reserved before it is used. `size` is a number of bytes, "64MiB", or "1GiB/node", which processes of
    one node share (by LOCAL_WORLD_SIZE, SLURM_NTASKS_PER_NODE or OMPI_COMM_WORLD_LOCAL_SIZE); without
    it, one eighth of the memory available. Another process that is sent one has its own.

    >>> import evenkeel
    >>> budget = evenkeel.Budget("64MiB")
    >>> budget.limit, budget.in_use
    (67108864, 0)
    """

    def __init__(self, size: int | str | Budget | None = None) -> None: ...

    @property
    def limit(self) -> int:
        """Bytes in all."""

    @property
    def in_use(self) -> int:
        """Bytes reserved now."""

    @property
    def peak(self) -> int:
        """The most that was ever reserved."""

    @property
    def left(self) -> int:
        """Bytes that may still be reserved."""

    def describe(self) -> str:
        """The limit and where it comes from, in words."""

    def reserve(self, bytes: int, what: str) -> Reservation:
        """A share, or MemoryError with the arithmetic."""

    def __repr__(self) -> str: ...

    def __reduce__(self) -> tuple[type[Budget], tuple[int]]: ...

def format_size(bytes: int) -> str:
    """"64 MiB", "1.5 GiB"."""

class Reader:
    """Rows of files, as bytes; evenkeel.Array is made of it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def paths(self) -> list[bytes]: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def engine(self) -> tuple[str, str, str]:
        """The engine at work, how it works, and why it was chosen."""

    @property
    def closed(self) -> bool: ...

    def room_for(self, bytes: int, what: str) -> Reservation:
        """
        A share of the budget for the result of one read. Waits for other reads; MemoryError if it cannot fit.
        """

    def row(self, index: int, shape: tuple[int, ...], dtype: object) -> object:
        """One row as an ndarray; a scalar if `shape` is ()."""

    def read(self, first: int, count: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def gather(self, rows: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def close(self) -> None: ...

def open(paths: Sequence[bytes], budget: Budget, engine: str, dtype: str | None, shape: Sequence[int], offset: int) -> Reader: ...

def expand_paths(path_or_glob: bytes) -> list[bytes]:
    """The files that a pattern names, sorted."""

def cached_bytes(path: bytes) -> int | None:
    """
    Bytes of a file in the page cache; None where the kernel does not tell.
    """

class ChunkReader:
    """Chunk after chunk, read ahead."""

    def next(self) -> int:
        """Rows of the next chunk; 0 after the last."""

    def read(self, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')] | None = None) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """The bytes of the next chunk, which are yours."""

    def close(self) -> None: ...

def chunks(reader: Reader, rows: int, shuffle: bool, seed: int, epoch: int, rank: int, world: int) -> ChunkReader: ...

class Recording:
    """This process, recorded until `end`."""

    def mark(self, text: str) -> None: ...

class Report:
    """What was recorded."""

    @property
    def title(self) -> str: ...

    @property
    def subtitle(self) -> str: ...

    @property
    def budget(self) -> int | None: ...

    @property
    def seconds(self) -> float: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def marks(self) -> list[tuple[float, str]]: ...

    @property
    def peaks(self) -> dict[str, int | None]: ...

    @property
    def slopes(self) -> dict[str, float | None]: ...

    @property
    def counters(self) -> dict[str, float]: ...

    def json(self) -> str: ...

    def html(self) -> str: ...

    def svg(self) -> str: ...

    def csv(self) -> str: ...

def begin_recording(interval: float, files: Sequence[str]) -> Recording: ...

def end_recording(recording: Recording, name: str, ended: str, budget: int | None) -> Report: ...

def write_report(path: str, text: str) -> None: ...

def mark(text: str) -> None: ...

class TokenStream:
    """Tokens of files; evenkeel.Tokens is made of it."""

    def __len__(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def paths(self) -> list[bytes]: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def engine(self) -> tuple[str, str, str]: ...

    @property
    def fingerprint(self) -> str: ...

    def xy(self, starts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], block_size: int, dtype: str, x: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], y: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

def open_tokens(paths: Sequence[bytes], budget: Budget, engine: str, dtype: str | None) -> TokenStream: ...

class BatchReader:
    """Batch after batch, read ahead."""

    def __init__(self, mixture: Sequence[tuple[TokenStream, float]], batch_size: int, block_size: int, order: str, seed: int, rank: int, world: int, prefetch: int, dtype: str, keep: int, steps: int, stride: int, phase: int, memory: Sequence[tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]]]) -> None: ...

    def next(self) -> int:
        """Its number among the given memory; -1 after the last."""

    def copy(self, x: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], y: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def seek(self, step: int) -> None: ...

    def load(self, state: str) -> None: ...

    def close(self) -> None: ...

    def explain(self, step: int) -> list[dict[str, object]]: ...

    def state_at(self, step: int) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def buffers(self) -> int: ...

    @property
    def epoch_samples(self) -> int: ...

class Governor:
    """Keeps mappings under a line; evenkeel.Guard is made of it."""

    def __init__(self, budget: int, keep_cache: bool, access: str) -> None: ...

    def add(self, address: int, length: int, fd: int, offset: int, removed_before_unmap: bool) -> None: ...

    def remove(self, address: int) -> bool: ...

    def report(self) -> dict[str, object]: ...
