"""Token files far larger than memory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from evenkeel import _core
from evenkeel._core import Budget
from evenkeel._files import (
    AnyBudget,
    Paths,
    cache_bytes,
    disk_cache,
    engine_name,
    expand,
    page_cache_name,
    printable,
    require_no_secrets,
    short_repr,
    whole_path,
)
from evenkeel._index import SMALL, pieces_bytes, resolve, row_pieces, shape_alone
from evenkeel._stepping import text, whole

_size = _core.format_size


def tokens(
    paths: Paths,
    *,
    budget: AnyBudget = None,
    engine: str = "auto",
    dtype: Any = None,
    start: int = 0,
    stop: int | None = None,
    cache: int | str | bool | None = None,
    page_cache: str = "spare",
) -> Tokens:
    """Opens token files as one stream: nanoGPT, llm.c, Megatron, datatrove, NPY or headerless.

    `paths` is a path, a pattern with * ? [], Megatron's prefix (without .bin and .idx), or several
    of them. The first bytes of a file determine its format. `dtype` is the type of a file without a
    header (default uint16). `budget` is the memory that the tokens and all their loaders may
    occupy. `start` and `stop` select a part of the stream; negative numbers count from its end.
    `cache` limits the part of the budget that caches tokens, as in evenkeel.open: all that is left,
    or bytes, or False for none; or, for URLs, a folder and a size. `page_cache="fill"` leaves data
    in the kernel's page cache while memory is free, as in `evenkeel.open`.

    >>> import evenkeel, numpy
    >>> numpy.arange(1000, dtype="uint16").tofile("train.bin")
    >>> train = evenkeel.tokens("train.bin", budget="16MiB")
    >>> len(train)
    1000
    >>> x, y = train.xy([10, 500], block_size=3)
    >>> x
    array([[ 10,  11,  12],
           [500, 501, 502]])
    >>> y[0]
    array([11, 12, 13])
    >>> train[10:13], int(train[-1])
    (array([10, 11, 12], dtype=uint16), 999)
    """
    return Tokens(
        expand(paths, _core.expand_token_paths),
        budget,
        engine,
        None if dtype is None else _native("tokens", np.dtype(dtype)).name,
        _position("start", start),
        None if stop is None else _position("stop", stop),
        cache,
        page_cache,
    )


def _position(name: str, value: Any) -> int:
    """Of a token. Beyond the end of any stream, all positions are the same."""
    return max(-(1 << 63), min(whole(f"tokens: {name}", value), (1 << 63) - 1))


def is_tensor(value: Any) -> bool:
    """Does not import torch for users who do not need it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def require_tokens(value: Any, what: str) -> Tokens:
    if isinstance(value, Tokens):
        return value
    raise TypeError(
        f"{what}: tokens come from evenkeel.tokens(...), alone or as (tokens, weight) pairs, not "
        f"from {type(value).__name__}"
    )


def flat_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


class Tokens:
    """One stream of tokens in one file or in several. Made by `evenkeel.tokens`.

    Indexing returns ndarrays of the stored dtype, as in NumPy; `xy` returns training crops; `slice`
    and `split` return streams. Several threads may use it, and a child of fork may continue to use
    it. Pickling sends paths and options, not data.
    """

    def __init__(
        self,
        paths: list[bytes],
        budget: AnyBudget,
        engine: str,
        dtype: str | None,
        start: int = 0,
        stop: int | None = None,
        cache: int | str | bool | None = None,
        page_cache: str = "spare",
    ) -> None:
        self._recipe: tuple[Any, ...] = (
            [whole_path(path) for path in paths],
            budget,
            engine,
            dtype,
            start,
            stop,
            cache,
            page_cache,
        )
        self._set(
            _core.open_tokens(
                paths,
                Budget(budget),
                engine_name(engine),
                dtype,
                start,
                stop,
                cache_bytes(cache),
                page_cache_name(page_cache),
                disk_cache(cache),
            )
        )

    def _set(self, stream: _core.TokenStream) -> None:
        self._stream = stream
        self._shape_alone = shape_alone((len(stream),))

    def __reduce__(self) -> Any:
        require_no_secrets(self._recipe[0])
        return Tokens, self._recipe

    def __len__(self) -> int:
        return len(self._stream)

    def __repr__(self) -> str:
        return short_repr(
            "Tokens",
            self._recipe[0],
            f"{len(self):,} {self.dtype}, {self.format}, budget {_size(self.budget.limit)}",
        )

    def _repr_html_(self) -> str:
        from evenkeel import _html

        return _html.tokens(self)

    def describe(self) -> str:
        """Describes the stream, its use of the budget and its engine, in several lines."""
        budget = self.budget
        return "\n".join(
            [
                f"tokens: {len(self):,} of {self.dtype}, {self.format}",
                *(f"file: {printable(path)}" for path in self._recipe[0]),
                f"budget: {budget.describe()}, {_size(budget.in_use)} in use",
                f"engine: {self.engine}",
                f"fingerprint: {self.fingerprint}",
            ]
        )

    def __getitem__(self, index: Any) -> Any:
        """Tokens in the stored dtype, by a number, a slice, index arrays or masks, as in NumPy."""
        if isinstance(index, str):
            raise IndexError("tokens: a name is not an index; use integers, slices or index arrays")
        wanted = resolve(index, self._shape_alone, self._room_to_sort)
        rows, dtype = wanted.rows, self.dtype
        nbytes = (len(rows) + (0 if wanted.direct else math.prod(wanted.shape))) * dtype.itemsize
        limit = self.budget.limit
        nbytes += wanted.index_bytes
        if nbytes > SMALL:
            nbytes += pieces_bytes(rows, limit)
        room = self._room(nbytes, wanted.shape) if nbytes > SMALL else None
        block = np.empty(len(rows), dtype)
        if isinstance(rows, range) and rows.step == 1:
            self._stream.crops(np.array([rows.start], np.uint64), len(rows), flat_bytes(block))
        else:
            for first, starts in row_pieces(rows, len(self), limit):
                self._stream.crops(starts, 1, flat_bytes(block[first : first + len(starts)]))
        del room
        if wanted.direct:
            return block.reshape(wanted.shape) if wanted.shape else block[0]
        return block[wanted.index]

    def _room_to_sort(self, nbytes: int, shape: tuple[int, ...]) -> _core.Reservation | None:
        return self._room(nbytes, shape) if nbytes > SMALL else None

    def _room(self, nbytes: int, shape: tuple[int, ...]) -> _core.Reservation:
        try:
            return self.budget.reserve(nbytes, "tokens")
        except MemoryError:
            pass
        budget = self.budget
        raise MemoryError(
            f"read {printable(self.paths[0])}: a result of shape {shape} takes {nbytes:,} bytes;"
            f" {budget.left:,} bytes are left of a budget of {budget.describe()}\n"
            "hint: take smaller slices, or raise the budget"
        )

    def __iter__(self) -> Iterator[Any]:
        step = SMALL // self.dtype.itemsize
        for first in range(0, len(self), step):
            yield from self[first : first + step]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        whole: np.ndarray[Any, Any] = self[...]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """All tokens, for torch.as_tensor and torch.tensor."""
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # memory of the CPU

    def stats(self) -> dict[str, int]:
        """Counters of what was read since the tokens were opened, and from where, also by loaders
        of only these tokens. They are those of Array.stats."""
        return self._stream.stats()

    def slice(self, start: int = 0, stop: int | None = None) -> Tokens:
        """Tokens start .. stop-1 as a separate stream, which shares the budget of this one.
        Negative numbers count from the end."""
        last = None if stop is None else _position("stop", stop)
        return self._part(self._stream.slice(_position("start", start), last))

    def _part(self, part: _core.TokenStream) -> Tokens:
        paths, _, engine, dtype, _, _, *caches = self._recipe
        made = Tokens.__new__(Tokens)
        first = part.first_token
        made._recipe = (paths, self.budget, engine, dtype, first, first + len(part), *caches)
        made._set(part)
        return made

    def split(self, fraction: float) -> tuple[Tokens, Tokens]:
        """Two streams: the first `fraction` of the tokens, and the rest, for training and
        validation. Both share the budget of this stream.

        >>> import evenkeel, numpy
        >>> numpy.arange(1000, dtype="uint16").tofile("train.bin")
        >>> train, validation = evenkeel.tokens("train.bin", budget="16MiB").split(0.9)
        >>> len(train), len(validation), int(validation[0])
        (900, 100, 900)
        """
        try:
            inside = 0 < fraction < 1
        except TypeError:
            raise TypeError(f"split: the fraction must be a number; got {fraction!r}") from None
        if not inside:
            raise ValueError(f"split: the fraction must be between 0 and 1; got {fraction}")
        cut = int(len(self) * fraction)
        if cut == 0:
            raise ValueError(f"split: {fraction} of {len(self):,} tokens are none")
        return self.slice(0, cut), self.slice(cut)

    def megatron_split(self, split: str) -> list[Tokens | None]:
        """The parts of a Megatron split such as "969,30,1": training, validation and test, each
        with the same documents as in megatron-core. None for a part without documents."""
        parts = self._stream.megatron_split(text("megatron_split: split", split))
        return [None if part is None else self._part(part) for part in parts]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored dtype."""
        return np.dtype(self._stream.dtype)

    @property
    def format(self) -> str:
        return self._stream.format

    @property
    def paths(self) -> list[str]:
        return [os.fsdecode(path) for path in self._stream.paths]

    @property
    def budget(self) -> Budget:
        return self._stream.budget

    @property
    def engine(self) -> str:
        """The engine in use, how it reads, and why it was chosen, so that a fallback is never
        silent."""
        name, how, why = self._stream.engine
        return f"{name} ({how}): {why}"

    @property
    def fingerprint(self) -> str:
        """Identifies the data: the same text for the same files in any folder."""
        return self._stream.fingerprint

    def xy(
        self,
        ix: Any,
        block_size: int,
        out: tuple[Any, Any] | None = None,
        dtype: str | np.dtype[Any] = "int64",
    ) -> tuple[Any, Any]:
        """Rows x[i] = tokens[ix[i] : ix[i] + block_size], and y the same shifted by one token.

        The result is that of slicing a memmap, widened to int64 (or "int32", or "stored": as it
        is). It is a pair of torch tensors if `ix` is a torch tensor, otherwise of ndarrays. `out`
        is such a pair to fill instead, C-contiguous, of that dtype and of shape (len(ix),
        block_size).
        """
        block_size = _positive("block_size", block_size)
        torch_in = is_tensor(ix)
        starts = ix.cpu().numpy() if torch_in else np.asarray(ix)
        if starts.size == 0:
            starts = starts.astype(np.int64)
        if starts.ndim != 1 or starts.dtype.kind not in "iu":
            raise TypeError(
                f"xy: ix must have one axis of whole numbers; it has {starts.ndim} of"
                f" {starts.dtype}"
            )
        if starts.size and starts.min() < 0:
            raise IndexError(f"xy: start {starts.min()} is before the first token")
        stored = isinstance(dtype, str) and dtype == "stored"
        wanted = self.dtype if stored else _native("xy", np.dtype(dtype))
        shape = (starts.size, block_size)
        if out is not None and not (isinstance(out, (tuple, list)) and len(out) == 2):
            raise TypeError(
                f"xy: out must be a pair of arrays or tensors, not {type(out).__name__}"
            )
        x, y = (
            (np.empty(shape, wanted), np.empty(shape, wanted))
            if out is None
            else (_as_array("x", out[0], shape, wanted), _as_array("y", out[1], shape, wanted))
        )
        self._stream.xy(
            np.ascontiguousarray(starts, np.uint64),
            block_size,
            wanted.name,
            flat_bytes(x),
            flat_bytes(y),
        )
        if out is not None:
            return out[0], out[1]
        if torch_in:
            import torch

            return torch.from_numpy(x), torch.from_numpy(y)
        return x, y


def _native(what: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The reader knows dtypes by names that do not tell the byte order."""
    if dtype.isnative:
        return dtype
    hint = ""
    if what == "tokens":
        hint = f"\nhint: evenkeel.open(path, dtype={dtype.str!r}) reads such a file as an array"
    raise ValueError(
        f"{what}: tokens have the byte order of this machine, but dtype is {dtype.str!r}{hint}"
    )


def _positive(what: str, value: int) -> int:
    number = whole(f"xy: {what}", value)
    if number < 1:
        raise ValueError(f"xy: {what} must be 1 or more; it is {number}")
    return number


def _as_array(
    what: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = out.numpy() if is_tensor(out) else out
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"xy: out for {what} must be an ndarray or a tensor, not {type(out).__name__}"
        )
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"xy: out for {what} is {array.dtype} of shape {array.shape}; it must be {dtype} of "
            f"shape {shape}, C-contiguous"
        )
    if not array.flags.writeable:
        raise ValueError(f"xy: out for {what} is read-only")
    return array
