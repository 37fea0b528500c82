"""Token files far larger than memory."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from evenkeel import _core
from evenkeel._array import AnyBudget
from evenkeel._core import Budget
from evenkeel._files import Paths, expand


def tokens(
    paths: Paths, *, budget: AnyBudget = None, engine: str = "auto", dtype: Any = None
) -> Tokens:
    """Opens token files as one stream: nanoGPT, llm.c, Megatron, datatrove, NPY or headerless.

    `paths` is a path, a pattern with * ? [], or several of them; what a file is, its first bytes
    decide. `dtype` says what a file without a header holds (default uint16). `budget` is what the
    tokens and all loaders made from them may occupy in memory.

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
    """
    return Tokens(expand(paths), budget, engine, None if dtype is None else np.dtype(dtype).name)


def is_tensor(value: Any) -> bool:
    """Without importing torch for those who do not use it."""
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

    Several threads may use it, and a child of fork may go on using it. Pickling sends paths and
    options, not data.
    """

    def __init__(
        self, paths: list[bytes], budget: AnyBudget, engine: str, dtype: str | None
    ) -> None:
        self._recipe = ([os.path.abspath(path) for path in paths], budget, engine, dtype)
        self._stream = _core.open_tokens(paths, Budget(budget), engine, dtype)

    def __reduce__(self) -> Any:
        return Tokens, self._recipe

    def __len__(self) -> int:
        return len(self._stream)

    def __repr__(self) -> str:
        name, _, why = self._stream.engine
        return (
            f"<evenkeel.Tokens {len(self):,} of {self.dtype}, {self.format}; budget "
            f"{_core.format_size(self.budget.limit)}, {_core.format_size(self.budget.in_use)} in "
            f"use; engine {name}: {why}>"
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "tokens: a stream is not one array; take crops by xy, or open the file as an array by "
            "evenkeel.open"
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""
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
        """The engine at work, how it works, and why it: a fallback is never silent."""
        name, how, why = self._stream.engine
        return f"{name} ({how}): {why}"

    @property
    def fingerprint(self) -> str:
        """Which data this is: the same text for the same files wherever they lie."""
        return self._stream.fingerprint

    def xy(
        self,
        ix: Any,
        block_size: int,
        out: tuple[Any, Any] | None = None,
        dtype: str | np.dtype[Any] = "int64",
    ) -> tuple[Any, Any]:
        """Rows x[i] = tokens[ix[i] : ix[i] + block_size], and y the same one token on.

        Just what slicing a memmap gives, widened to int64 (or "int32", or "stored": as it is).
        Torch tensors for torch tensors, ndarrays for all else; `out` is a pair of such to fill
        instead, C-contiguous, of that dtype and of shape (len(ix), block_size).
        """
        block_size = _positive("block_size", block_size)
        torch_in = is_tensor(ix)
        starts = ix.cpu().numpy() if torch_in else np.asarray(ix)
        if starts.size == 0:
            starts = starts.astype(np.int64)
        if starts.ndim != 1 or starts.dtype.kind not in "iu":
            raise TypeError(
                f"xy: ix is one axis of whole numbers, not {starts.ndim} of {starts.dtype}"
            )
        if starts.size and starts.min() < 0:
            raise IndexError(f"xy: start {starts.min()} is before the first token")
        wanted = self.dtype if isinstance(dtype, str) and dtype == "stored" else np.dtype(dtype)
        shape = (starts.size, block_size)
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


def _positive(what: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"xy: {what} is {number}, at least 1 makes sense")
    return int(number)


def _as_array(
    what: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = out.numpy() if is_tensor(out) else out
    if not isinstance(array, np.ndarray):
        raise TypeError(f"xy: out for {what} is an ndarray or a tensor, not {type(out).__name__}")
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"xy: out for {what} is {array.dtype} of shape {array.shape}, it takes {dtype} of "
            f"shape {shape}, C-contiguous"
        )
    if not array.flags.writeable:
        raise ValueError(f"xy: out for {what} is read-only")
    return array
