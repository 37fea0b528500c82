"""The native part of evenkeel; use the package, not this module."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


def version() -> str: ...

def metrics_text() -> str: ...

class Reservation:
    """A share of a budget, released when this object is destroyed."""

    @property
    def bytes(self) -> int: ...

    def release(self) -> None: ...

class Budget:
    """
    A number of bytes that arrays may occupy in memory, together if they share it.

    It covers buffers, resident pages of mappings and page-cache pages that reads bring in. Memory is
    reserved before it is used. `size` is a number of bytes, "64MiB", "auto", or "1GiB/node", which the
    processes of one node share (by LOCAL_WORLD_SIZE, SLURM_NTASKS_PER_NODE or OMPI_COMM_WORLD_LOCAL_SIZE).
    The default is one eighth of the memory available. "auto" starts with that and follows memory
    pressure: it grows while memory is free and shrinks when others need it. A budget that is pickled
    for another process becomes a separate budget there.

    >>> import evenkeel
    >>> budget = evenkeel.Budget("64MiB")
    >>> budget.limit, budget.in_use
    (67108864, 0)
    """

    def __init__(self, size: int | str | Budget | None = None) -> None: ...

    @property
    def limit(self) -> int:
        """The limit in bytes."""

    @property
    def in_use(self) -> int:
        """Bytes reserved now."""

    @property
    def cached(self) -> int:
        """Bytes that caches hold. They are freed when a reservation needs them."""

    @property
    def peak(self) -> int:
        """The most bytes that were ever reserved."""

    @property
    def left(self) -> int:
        """Bytes that can still be reserved, including those of caches."""

    @property
    def automatic(self) -> bool:
        """Whether it follows memory pressure."""

    def resize(self, size: int | str) -> None:
        """
        Changes the limit for all users of the budget. If it is smaller, caches shrink, then loaders read less ahead, and reads in progress are waited for; MemoryError, with the arithmetic, if the rest does not fit. If it is larger, caches may grow.
        """

    def describe(self) -> str:
        """The limit and where it comes from, in words."""

    def uses(self) -> dict[str, int]:
        """What holds the budget now, with the bytes of each."""

    def reserve(self, bytes: int, what: str) -> Reservation:
        """
        Reserves a share; MemoryError, with the arithmetic, if it does not fit.
        """

    def __repr__(self) -> str: ...

    def __reduce__(self) -> tuple[type[Budget], tuple[int | str]]: ...

def format_size(bytes: int) -> str:
    """"64 MiB", "1.5 GiB"."""

def parse_size(text: str) -> int:
    """Bytes of "64MiB", "1.5 GB"."""

class Reader:
    """Reads rows of files as bytes. The implementation of evenkeel.Array."""

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
        """The engine in use, how it reads, and why it was chosen."""

    @property
    def closed(self) -> bool: ...

    @property
    def lists(self) -> int:
        """The number of lists, for an array of offsets."""

    @property
    def versions(self) -> list[str]:
        """The ETags of objects on servers, or the closest equivalent."""

    def list_place(self, list: int) -> tuple[int, int]:
        """Where the two offsets of a list are, and what they count from."""

    def room_for(self, bytes: int, what: str) -> Reservation:
        """
        A reservation for the result of one read. Waits for other reads; MemoryError if it cannot fit.
        """

    def row(self, index: int, shape: tuple[int, ...], dtype: object) -> object:
        """One row as an ndarray; a scalar if `shape` is ()."""

    def read(self, first: int, count: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def gather(self, rows: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def stats(self) -> dict[str, int]: ...

    def close(self) -> None: ...

def open(paths: Sequence[bytes], budget: Budget, engine: str, dtype: str | None, shape: Sequence[int], offset: int, cache: int | None, page_cache: str, disk_cache: str, name: str = '') -> Reader: ...

def expand_paths(path_or_glob: bytes) -> list[bytes]:
    """The files that a pattern names, sorted."""

def cached_bytes(path: bytes) -> int | None:
    """
    Bytes of a file in the page cache; None if the kernel does not report it.
    """

class ChunkReader:
    """Reads chunks ahead."""

    def next(self) -> int:
        """Rows of the next chunk; 0 after the last."""

    def read(self, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')] | None = None) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """The bytes of the next chunk, in memory that the caller owns."""

    def seek(self, chunk: int) -> None:
        """Makes this chunk the next one."""

    def close(self) -> None: ...

    def drop(self) -> None:
        """Closes it without waiting for the disk."""

    @property
    def position(self) -> int:
        """Number of the next chunk."""

    @property
    def closed(self) -> bool: ...

def chunks(reader: Reader, rows: int, shuffle: bool, seed: int, epoch: int, rank: int, world: int, blocks: tuple[int, int, int] | None = None) -> ChunkReader: ...

def choose_blocks(row_bytes: int, budget: int, world: int, block_rows: int, window_rows: int, streams: int, sets: int = 1, step_rows: int = 0) -> tuple[int, int, int]:
    """
    Rows per block, blocks per window and streams of the order `blocks`; numbers that are 0 are chosen.
    """

def npy_descr(path: bytes, member: str = '') -> tuple[object, str, int] | None:
    """
    The element type that an NPY header names, with strings as bytes; their encoding; and
    the size of an element. None for a file that is not NPY.
    """

def members(path: bytes, count_rows: bool) -> list[tuple[str, str, tuple[int, ...], bool, str]] | None:
    """
    Name, type, shape, whether its rows are lists, and why it cannot be read, of each array in
    a file; None for a file that holds one.
    """

def kind_of(path: bytes) -> str:
    """The kind of a file: arrow, npz, fits, nifti or hdf5, or ""."""

def open_places(format: str, paths: Sequence[bytes], places: Annotated[NDArray[numpy.uint64], dict(shape=(None, 3), order='C', device='cpu', writable=False)], dtype: str, big_endian: bool, shape: Sequence[int], budget: Budget, engine: str, cache: int | None, page_cache: str) -> Reader:
    """
    Opens rows of a dtype and shape at places (file, offset, rows) in files.
    """

def crc32c(bytes: bytes) -> int:
    """The CRC-32C of bytes."""

def open_chunks(format: str, grid: dict[str, object], dtype: str, big_endian: bool, budget: Budget, engine: str, cache: int | None, page_cache: str) -> Reader:
    """
    Opens rows in chunks that must be decoded; `grid` has the fields of ChunkGrid.
    """

class Recording:
    """A recording of this process, until `end`."""

    def mark(self, text: str) -> None: ...

class Report:
    """The result of a recording."""

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

class MixtureOptions:
    """How a mixture changes over time."""

    def __init__(self) -> None: ...

    @property
    def stages(self) -> list[tuple[int, list[float]]]:
        """The first step and the weights of each stage."""

    @stages.setter
    def stages(self, arg: Sequence[tuple[int, Sequence[float]]], /) -> None: ...

    @property
    def max_epochs(self) -> list[int]:
        """The limit of each set; 0: no limit."""

    @max_epochs.setter
    def max_epochs(self, arg: Sequence[int], /) -> None: ...

    @property
    def exhausted(self) -> str:
        """stop, drop or repeat."""

    @exhausted.setter
    def exhausted(self, arg: str, /) -> None: ...

class TokenStream:
    """Tokens of files. The implementation of evenkeel.Tokens."""

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

    def stats(self) -> dict[str, int]: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def first_token(self) -> int: ...

    def xy(self, starts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], block_size: int, dtype: str, x: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], y: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def crops(self, starts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], count: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """`count` tokens from each start, as they are stored."""

    def slice(self, start: int, stop: int | None) -> TokenStream: ...

    def megatron_split(self, split: str) -> list[TokenStream | None]: ...

def open_tokens(paths: Sequence[bytes], budget: Budget, engine: str, dtype: str | None, start: int, stop: int | None, cache: int | None, page_cache: str, disk_cache: str) -> TokenStream: ...

def expand_token_paths(path_or_glob: bytes) -> list[bytes]:
    """The token files that a pattern or a Megatron prefix names, sorted."""

class DocumentOptions:
    """What a TokenLoader does with documents."""

    def __init__(self) -> None: ...

    @property
    def mode(self) -> str: ...

    @mode.setter
    def mode(self, arg: str, /) -> None: ...

    @property
    def bos(self) -> int | None: ...

    @bos.setter
    def bos(self, arg: int | None, /) -> None: ...

    @property
    def eos(self) -> int | None: ...

    @eos.setter
    def eos(self, arg: int | None, /) -> None: ...

    @property
    def index(self) -> bytes: ...

    @index.setter
    def index(self, arg: bytes, /) -> None: ...

    @property
    def predict_first(self) -> bool: ...

    @predict_first.setter
    def predict_first(self, arg: bool, /) -> None: ...

    @property
    def most_documents(self) -> int: ...

    @most_documents.setter
    def most_documents(self, arg: int, /) -> None: ...

    @property
    def use_leftovers(self) -> bool: ...

    @use_leftovers.setter
    def use_leftovers(self, arg: bool, /) -> None: ...

    @property
    def window(self) -> int: ...

    @window.setter
    def window(self, arg: int, /) -> None: ...

    @property
    def mixed_windows(self) -> int: ...

    @mixed_windows.setter
    def mixed_windows(self, arg: int, /) -> None: ...

    @property
    def bucket(self) -> int: ...

    @bucket.setter
    def bucket(self, arg: int, /) -> None: ...

    @property
    def crop_long(self) -> bool: ...

    @crop_long.setter
    def crop_long(self, arg: bool, /) -> None: ...

    @property
    def pad(self) -> int: ...

    @pad.setter
    def pad(self, arg: int, /) -> None: ...

def documents_layout(rows: int, columns: int, most_documents: int) -> tuple[int, int, int, int, int]:
    """
    Byte offsets of position_ids, document_ids, cu_seqlens and loss_mask, and the total size.
    """

class LoaderOptions:
    """The options of a TokenLoader."""

    def __init__(self) -> None: ...

    @property
    def batch_size(self) -> int: ...

    @batch_size.setter
    def batch_size(self, arg: int, /) -> None: ...

    @property
    def seed(self) -> int: ...

    @seed.setter
    def seed(self, arg: int, /) -> None: ...

    @property
    def blocks(self, /) -> tuple[int, int, int]:
        """Rows per block, blocks per window and streams, for the order blocks."""

    @blocks.setter
    def blocks(self, value: tuple[int, int, int], /) -> None: ...

    @property
    def rank(self) -> int: ...

    @rank.setter
    def rank(self, arg: int, /) -> None: ...

    @property
    def world(self) -> int: ...

    @world.setter
    def world(self, arg: int, /) -> None: ...

    @property
    def prefetch(self) -> int | None:
        """None: see usual_prefetch."""

    @prefetch.setter
    def prefetch(self, arg: int | None, /) -> None: ...

    @property
    def steps(self) -> int:
        """0: not given."""

    @steps.setter
    def steps(self, arg: int, /) -> None: ...

    @property
    def epochs(self) -> int:
        """0: not given."""

    @epochs.setter
    def epochs(self, arg: int, /) -> None: ...

    @property
    def stride(self) -> int: ...

    @stride.setter
    def stride(self, arg: int, /) -> None: ...

    @property
    def phase(self) -> int: ...

    @phase.setter
    def phase(self, arg: int, /) -> None: ...

    @property
    def keep(self) -> int:
        """
        Batches in the given memory that are still in use when the next one is taken.
        """

    @keep.setter
    def keep(self, arg: int, /) -> None: ...

    @property
    def block_size(self) -> int: ...

    @block_size.setter
    def block_size(self, arg: int, /) -> None: ...

    @property
    def order(self) -> str: ...

    @order.setter
    def order(self, arg: str, /) -> None: ...

    @property
    def dtype(self) -> str: ...

    @dtype.setter
    def dtype(self, arg: str, /) -> None: ...

    @property
    def mixture(self) -> MixtureOptions: ...

    @mixture.setter
    def mixture(self, arg: MixtureOptions, /) -> None: ...

    @property
    def megatron(self) -> tuple[int, float, bool]:
        """
        Samples (0: not given), surplus, and whether sets are blended by their size.
        """

    @megatron.setter
    def megatron(self, arg: tuple[int, float, bool], /) -> None: ...

    @property
    def documents(self) -> DocumentOptions: ...

    @documents.setter
    def documents(self, arg: DocumentOptions, /) -> None: ...

class BatchReader:
    """Reads batches ahead."""

    def __init__(self, mixture: Sequence[tuple[TokenStream, float]], options: LoaderOptions, memory: Sequence[Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]]], masks: Sequence[TokenStream | None]) -> None: ...

    def take(self) -> tuple[Any, ...] | None:
        """
        The next batch (x, y), in memory that the caller owns; None after the last. With documents also their fields, and (documents, longest, positions).
        """

    def __next__(self) -> tuple[Any, Any]: ...

    @property
    def packing(self) -> dict[str, float]:
        """
        What `documents` costs, for the rows prepared so far: the shares of positions that are padding, of tokens that are in no row, of documents that were split although they fit a row, and of rows that begin inside a document.
        """

    def explained(self, step: int) -> list[dict[str, object]]: ...

    @property
    def convert(self, /) -> object:
        """
        Called with each ndarray; returns what the user gets. None: the ndarray.
        """

    @convert.setter
    def convert(self, value: object, /) -> None: ...

    @property
    def deliver(self, /) -> object:
        """`next` calls this with the reader instead of `take`. None: `take`."""

    @deliver.setter
    def deliver(self, value: object, /) -> None: ...

    @property
    def transform(self, /) -> object:
        """
        `next` calls this with each batch; it returns what the user gets. None: the batch.
        """

    @transform.setter
    def transform(self, value: object, /) -> None: ...

    def put_back(self, batch: object) -> None:
        """Makes `take` return this batch again."""

    def begin_delivery(self) -> None:
        """This thread is about to return a batch from `deliver`."""

    @property
    def delivering_here(self) -> bool:
        """The batch that this thread was about to return has not reached `next`."""

    def begin_loop(self) -> None: ...

    def seek_step(self, step: int) -> None: ...

    def load(self, state: str) -> None: ...

    def close_reader(self) -> None: ...

    def state_at(self, step: int) -> str: ...

    def stats(self) -> dict[str, int]:
        """
        Counters of what was read since the data was opened, and from where, as in Array.stats. Without a mixture they are those of the data itself. `batches` is the number of batches returned, and `batch_wait_ns` the time that the program waited for them.
        """

    @property
    def next_step(self) -> int: ...

    @property
    def taken_step(self) -> int:
        """The step of the batch that `take` returned last."""

    @property
    def taken_stands(self) -> bool:
        """False: the reader has moved since `take` returned its last batch."""

    @property
    def size(self) -> int:
        """Batches of one loop; 0: it does not end."""

    @property
    def blocks_in_use(self) -> tuple[int, int, int]:
        """
        Rows per block, blocks per window and streams; all 0 unless the order is blocks.
        """

    @staticmethod
    def blocks_of_state(state: str) -> tuple[int, int, int]:
        """
        Rows per block, blocks per window and streams; all 0 unless the order is blocks.
        """

    @property
    def buffers(self) -> int: ...

    @property
    def epoch_samples(self) -> int: ...

class RowLoaderOptions:
    """The options of a Loader."""

    def __init__(self) -> None: ...

    @property
    def batch_size(self) -> int: ...

    @batch_size.setter
    def batch_size(self, arg: int, /) -> None: ...

    @property
    def seed(self) -> int: ...

    @seed.setter
    def seed(self, arg: int, /) -> None: ...

    @property
    def blocks(self, /) -> tuple[int, int, int]:
        """Rows per block, blocks per window and streams, for the order blocks."""

    @blocks.setter
    def blocks(self, value: tuple[int, int, int], /) -> None: ...

    @property
    def rank(self) -> int: ...

    @rank.setter
    def rank(self, arg: int, /) -> None: ...

    @property
    def world(self) -> int: ...

    @world.setter
    def world(self, arg: int, /) -> None: ...

    @property
    def prefetch(self) -> int | None:
        """None: see usual_prefetch."""

    @prefetch.setter
    def prefetch(self, arg: int | None, /) -> None: ...

    @property
    def steps(self) -> int:
        """0: not given."""

    @steps.setter
    def steps(self, arg: int, /) -> None: ...

    @property
    def epochs(self) -> int:
        """0: not given."""

    @epochs.setter
    def epochs(self, arg: int, /) -> None: ...

    @property
    def stride(self) -> int: ...

    @stride.setter
    def stride(self, arg: int, /) -> None: ...

    @property
    def phase(self) -> int: ...

    @phase.setter
    def phase(self, arg: int, /) -> None: ...

    @property
    def keep(self) -> int:
        """
        Batches in the given memory that are still in use when the next one is taken.
        """

    @keep.setter
    def keep(self, arg: int, /) -> None: ...

    @property
    def order(self) -> str: ...

    @order.setter
    def order(self, arg: str, /) -> None: ...

    @property
    def mixture(self) -> MixtureOptions: ...

    @mixture.setter
    def mixture(self, arg: MixtureOptions, /) -> None: ...

    @property
    def drop_last(self) -> bool: ...

    @drop_last.setter
    def drop_last(self, arg: bool, /) -> None: ...

class LoaderField:
    """An array or a set of arrays that a loader reads rows from."""

    def __init__(self, array: Reader) -> None: ...

    @staticmethod
    def ragged(values: Reader, offsets: Reader) -> LoaderField: ...

    @staticmethod
    def csr(data: Reader, indices: Reader, indptr: Reader, columns: int, dense: bool) -> LoaderField: ...

class RowReader:
    """Reads batches of rows ahead."""

    def __init__(self, sets: Sequence[tuple[Sequence[LoaderField], float]], options: RowLoaderOptions, forms: Sequence[Any], groups: Sequence[Any], keys: object, memory: Sequence[Sequence[Any]]) -> None: ...

    def take(self) -> Any:
        """The next batch, in memory that the caller owns; None after the last."""

    def __next__(self) -> Any: ...

    @property
    def flat(self) -> bool:
        """`take` returns a list of fields."""

    @flat.setter
    def flat(self, arg: bool, /) -> None: ...

    def structured(self, fields: list[Any]) -> Any:
        """Fields as a batch: alone, as a tuple or as a dict."""

    def epoch_at(self, step: int) -> int:
        """The epoch of a step; 0 if there are no epochs."""

    def explained(self, step: int) -> list[dict[str, object]]: ...

    @property
    def convert(self, /) -> object:
        """
        Called with each ndarray; returns what the user gets. None: the ndarray.
        """

    @convert.setter
    def convert(self, value: object, /) -> None: ...

    @property
    def deliver(self, /) -> object:
        """`next` calls this with the reader instead of `take`. None: `take`."""

    @deliver.setter
    def deliver(self, value: object, /) -> None: ...

    @property
    def transform(self, /) -> object:
        """
        `next` calls this with each batch; it returns what the user gets. None: the batch.
        """

    @transform.setter
    def transform(self, value: object, /) -> None: ...

    def put_back(self, batch: object) -> None:
        """Makes `take` return this batch again."""

    def begin_delivery(self) -> None:
        """This thread is about to return a batch from `deliver`."""

    @property
    def delivering_here(self) -> bool:
        """The batch that this thread was about to return has not reached `next`."""

    def begin_loop(self) -> None: ...

    def seek_step(self, step: int) -> None: ...

    def load(self, state: str) -> None: ...

    def close_reader(self) -> None: ...

    def state_at(self, step: int) -> str: ...

    def stats(self) -> dict[str, int]:
        """
        Counters of what was read since the data was opened, and from where, as in Array.stats. Without a mixture they are those of the data itself. `batches` is the number of batches returned, and `batch_wait_ns` the time that the program waited for them.
        """

    @property
    def next_step(self) -> int: ...

    @property
    def taken_step(self) -> int:
        """The step of the batch that `take` returned last."""

    @property
    def taken_stands(self) -> bool:
        """False: the reader has moved since `take` returned its last batch."""

    @property
    def size(self) -> int:
        """Batches of one loop; 0: it does not end."""

    @property
    def blocks_in_use(self) -> tuple[int, int, int]:
        """
        Rows per block, blocks per window and streams; all 0 unless the order is blocks.
        """

    @staticmethod
    def blocks_of_state(state: str) -> tuple[int, int, int]:
        """
        Rows per block, blocks per window and streams; all 0 unless the order is blocks.
        """

    @property
    def buffers(self) -> int: ...

    @property
    def epoch_samples(self) -> int: ...

def usual_prefetch(batch_size: int, batch_bytes: int) -> int:
    """How many batches are read ahead by default."""

class Evictor:
    """Keeps mappings within a budget. The implementation of evenkeel.Guard."""

    def __init__(self, budget: int, keep_cache: bool, access: str) -> None: ...

    def add(self, address: int, length: int, fd: int, offset: int, promised: bool) -> None: ...

    def remove(self, address: int) -> bool: ...

    def report(self) -> dict[str, object]: ...

def map_over(address: int, length: int, fd: int, offset: int, protection: int, shared: bool) -> None: ...

MAP_NORESERVE: int = 16384

class Weights:
    """Tensors of files. The implementation of evenkeel.Weights."""

    @property
    def format(self) -> str: ...

    @property
    def paths(self) -> list[bytes]: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def engine(self) -> tuple[str, str, str]: ...

    @property
    def alignment(self) -> int:
        """Reads begin and end at multiples of this many bytes of a file."""

    def tensors(self) -> list[tuple[str, str, tuple[int, ...], int, int, int]]:
        """Name, type, shape, file, offset and bytes of each tensor."""

    def metadata(self) -> dict[str, str]: ...

    def require(self, name: str) -> None:
        """Raises IndexError, with the closest name, if there is no such tensor."""

    def array(self, name: str, dtype: str) -> Reader:
        """One tensor, read as an array."""

    def reserve(self, bytes: int, what: str) -> Reservation: ...

    def stats(self) -> dict[str, int]: ...

    def close(self) -> None: ...

class GroupReader:
    """Reads groups of runs into memory, on its own thread."""

    def __init__(self, weights: Weights, files: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], roomy: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], ahead: int, most_in_flight: int, fresh: bool) -> None: ...

    def next(self) -> bool:
        """Waits for the next group. Returns False after the last."""

    def release(self) -> None:
        """Allows one more group to be read."""

    def close(self) -> None: ...

def open_weights(path: bytes, budget: Budget, engine: str) -> Weights: ...

def allocate(offset: int, bytes: int, alignment: int) -> NDArray[numpy.uint8]:
    """
    Memory for bytes at this offset of a file. If reads have this alignment, they can be read in place.
    """

class ArrayWriter:
    """The implementation of evenkeel.ArrayWriter."""

    def __init__(self, path: bytes, dtype: str, descr: str, shape: Sequence[int], format: str, budget: Budget, checksums: bool, resume: bool) -> None: ...

    def append(self, rows: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def assign(self, first: int, rows: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    @property
    def rows(self) -> int: ...

    @property
    def shape(self) -> list[int]: ...

    def checkpoint(self, state: bytes) -> None: ...

    @property
    def state(self) -> bytes: ...

    @property
    def how(self) -> str: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def drop(self) -> None: ...

class TokenWriter:
    """The implementation of evenkeel.TokenWriter."""

    def __init__(self, path: bytes, dtype: str, format: str, eot: int | None, budget: Budget, checksums: bool, resume: bool) -> None: ...

    def append(self, tokens: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Appends tokens of the dtype, as bytes."""

    def append_values(self, values: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def append_documents(self, tokens: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Appends whole documents: their tokens as bytes, and the length of each.
        """

    def end_document(self) -> None: ...

    @property
    def tokens(self) -> int: ...

    @property
    def documents(self) -> int: ...

    @property
    def format(self) -> str: ...

    @property
    def path(self) -> bytes: ...

    def checkpoint(self, state: bytes) -> None: ...

    @property
    def state(self) -> bytes: ...

    @property
    def how(self) -> str: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def drop(self) -> None: ...

class Items:
    """Input files, and the unit of their items."""

    def __init__(self, paths: Sequence[bytes], unit: str | None = None, dtype: str | None = None, shape: Sequence[int] = [], block: int = 0, bos: int | None = None, eos: int | None = None) -> None: ...

    @property
    def unit(self) -> str: ...

def shuffle(items: Items, output: bytes, format: str, seed: int, budget: Budget, scratch: bytes, checksums: bool, resume: bool, checkpoint: int, progress: object | None) -> dict[str, object]: ...

def plan_shuffle(items: Items, output: bytes, format: str, budget: Budget, parts: int) -> dict[str, object]: ...

def count_lines(items: Items, budget: Budget, begin: int, end: int, progress: object | None) -> tuple[int, int]:
    """
    Counts the lines that begin within these bytes: where the first begins, and how many there are.
    """

def distribute_part(items: Items, output: bytes, seed: int, budget: Budget, checkpoint: int, kind: str, first: int, offset: int, count: int, buckets: int, progress: object | None) -> dict[str, object]: ...

def write_part(items: Items, output: bytes, format: str, seed: int, budget: Budget, checkpoint: int, kind: str, scratch: Sequence[bytes], first: int, end: int, progress: object | None) -> dict[str, object]: ...

def copy_items(items: Items, output: bytes, format: str, budget: Budget, checksums: bool, resume: bool, progress: object | None) -> dict[str, object]: ...

def stats(items: Items, budget: Budget, quantiles: Sequence[float], sketch: int, bins: int, top: int, state: bytes, resume: bool, checkpoint: int, progress: object | None) -> dict[str, object]: ...
