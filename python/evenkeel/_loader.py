"""Training batches."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Union

import numpy as np

from evenkeel import _core
from evenkeel._ranks import rank_and_world
from evenkeel._tokens import Tokens, flat_bytes, require_tokens

Mixture = Union[Tokens, Sequence[Union[Tokens, "tuple[Tokens, float]"]], "Mapping[Tokens, float]"]


class TokenLoader:
    """Batches (x, y) of token files, read ahead under the budget of the tokens.

    Every batch is a pure function of the data, seed, step, rank and world: it can be sought,
    resumed on another number of ranks, and explained.

    `tokens` is what evenkeel.tokens gives, or a mixture: pairs of (tokens, weight). `order` is
    "random" (with replacement, as nanoGPT draws), "shuffled" (each block once an epoch) or
    "covering" (the same with a new phase each epoch). `rank` and `world` default to those of
    torch.distributed, else of the environment of torchrun, Slurm or Open MPI, else one process.
    `steps` ends each iteration after so many batches and begins the next one anew, as validation
    wants it; without it the loader does not end.

    Without `device` batches are ndarrays; with it, torch tensors there. To a GPU they go through
    pinned memory on a stream of its own while the batch before is used. Arrays are yours to keep.

    One thread at a time, in the process that made it.

    >>> import evenkeel, numpy
    >>> numpy.arange(1000, dtype="uint16").tofile("train.bin")
    >>> train = evenkeel.tokens("train.bin", budget="16MiB")
    >>> loader = evenkeel.TokenLoader(train, batch_size=2, block_size=4, order="shuffled", seed=1)
    >>> x, y = next(iter(loader))
    >>> x.shape, x.dtype, bool((y == x + 1).all())
    ((2, 4), dtype('int64'), True)
    >>> saved = loader.state_dict()
    >>> expected = next(loader)[0]
    >>> loader.load_state_dict(saved)
    >>> bool((next(loader)[0] == expected).all())
    True
    >>> loader.close()
    """

    def __init__(
        self,
        tokens: Mixture,
        batch_size: int,
        block_size: int,
        *,
        order: str = "random",
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        prefetch: int = 4,
        dtype: str = "int64",
        device: Any = None,
        steps: int | None = None,
        stride: int = 1,
        phase: int = 0,
    ) -> None:
        self._sets = weighted(tokens)
        self._rank, self._world = rank_and_world(rank, world)
        self._batch_size, self._block_size = batch_size, block_size
        self._order, self._steps = order, steps
        self._stride, self._phase = stride, phase
        if steps is not None and steps < 1:
            raise ValueError(f"loader: {steps} steps make no iteration")
        for name, number, least in (
            ("batch_size", batch_size, 1),
            ("block_size", block_size, 1),
            ("seed", seed, 0),
            ("prefetch", prefetch, 0),
            ("rank", self._rank, 0),
            ("world", self._world, 1),
        ):
            if not least <= number < 1 << 64:
                raise ValueError(f"loader: {name} is {number}, it takes {least} or more")
        stored = self._sets[0][0].dtype
        self._dtype = stored if dtype == "stored" else np.dtype(dtype)
        self._owner, self._closed = os.getpid(), False
        self._ring = None
        if device is not None:
            from evenkeel._device import ring_for

            self._ring = ring_for(device, (batch_size, block_size), self._dtype, prefetch)
        self._reader = _core.BatchReader(
            [(one._stream, float(weight)) for one, weight in self._sets],
            batch_size,
            block_size,
            order,
            seed,
            self._rank,
            self._world,
            prefetch,
            "stored" if dtype == "stored" else self._dtype.name,
            0 if self._ring is None else self._ring.keep,
            steps or 0,
            stride,
            phase,
            [] if self._ring is None else self._ring.memory,
        )
        self._to_torch = device is not None and self._ring is None
        self._pool = _Pool((batch_size, block_size), self._dtype)
        _living.add(self)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Goes on where the loader stands; with `steps`, from the beginning if it has ended."""
        if self._steps is not None and self.step >= self._steps:
            self.seek(0)
        return self

    def __next__(self) -> tuple[Any, Any]:
        if self._ring is not None:
            batch = self._ring.next(self._reader)
        else:
            batch = self._next()
        if batch is None:
            raise StopIteration
        return batch

    def _next(self) -> tuple[Any, Any] | None:
        if self._reader.next() < 0:
            return None
        x, y = self._pool.take()
        self._reader.copy(flat_bytes(x), flat_bytes(y))
        if not self._to_torch:
            return x, y
        import torch

        return torch.from_numpy(x), torch.from_numpy(y)

    def __len__(self) -> int:
        """Batches of an iteration: `steps`, or those of an epoch for "shuffled" and "covering"."""
        if self._steps is not None:
            return max(0, -(-(self._steps - self._phase) // self._stride))
        if self._order == "random":
            raise TypeError('len: order "random" has no epochs; give steps')
        return int(self._reader.epoch_samples) // (self._batch_size * self._world * self._stride)

    @property
    def step(self) -> int:
        """Of the batch that comes next."""
        return self._reader.step if self._ring is None else self._ring.step(self._reader)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world(self) -> int:
        return self._world

    def seek(self, step: int) -> None:
        """The next batch is that of `step`, at once."""
        if step < 0:
            raise ValueError(f"seek: there is no step {step}")
        if self._ring is not None:
            self._ring.settle()
        self._reader.seek(step)

    def state_dict(self) -> dict[str, Any]:
        """Where it stands and which data that belongs to: small, plain, fit for torch.save."""
        return {"evenkeel": 1, "state": self._reader.state_at(self.step)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken, also with another world, batch size or prefetch.

        ValueError names the difference when it belongs to other data, seed or order."""
        if not isinstance(state, Mapping) or "state" not in state:
            raise ValueError("load: this is no state of a TokenLoader")
        if self._ring is not None:
            self._ring.settle()
        self._reader.load(state["state"])

    def explain(self, step: int) -> list[dict[str, Any]]:
        """Which tokens, files and bytes each row of a step's batch is cut from. Reads nothing."""
        rows = self._reader.explain(step)
        for row in rows:
            row["path"] = os.fsdecode(row["path"])  # type: ignore[arg-type]
        return rows

    def close(self) -> None:
        """Ends the reading ahead and gives all memory back."""
        if self._owner != os.getpid():
            return  # a child of fork has nothing to end
        if self._ring is not None:
            self._ring.settle()
        self._closed = True
        self._reader.close()

    def __enter__(self) -> TokenLoader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a TokenLoader stays in its process: send its tokens and state_dict() instead, or use "
            "TokenIterableDataset"
        )

    def __repr__(self) -> str:
        if self._closed:
            return "<evenkeel.TokenLoader: closed>"
        return (
            f"<evenkeel.TokenLoader: {self._batch_size} x {self._block_size} {self._dtype}, "
            f"{self._order}, rank {self._rank} of {self._world}, step {self.step}>"
        )


def weighted(tokens: Mixture, what: str = "loader") -> list[tuple[Tokens, float]]:
    """One set, or several with weights, as pairs."""
    if isinstance(tokens, Tokens) or not isinstance(tokens, (Mapping, Sequence)):
        return [(require_tokens(tokens, what), 1.0)]
    if isinstance(tokens, (str, bytes)) or not tokens:
        require_tokens(tokens, what)
    pairs = tokens.items() if isinstance(tokens, Mapping) else tokens
    sets = [one if isinstance(one, tuple) and len(one) == 2 else (one, 1.0) for one in pairs]
    return [(require_tokens(one, what), float(weight)) for one, weight in sets]


class _Pool:
    """Arrays for batches, used again once nobody holds them: new ones would cost page faults."""

    _MOST = 4

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._pairs: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self._alone = (0, 0)

    def take(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        for number, pair in enumerate(self._pairs):
            if self._holders(number) == self._alone:  # `pair` is not one of them
                return pair[0].view(), pair[1].view()
        x, y = np.empty(self._shape, self._dtype), np.empty(self._shape, self._dtype)
        if len(self._pairs) == self._MOST:
            return x, y
        self._pairs.append((x, y))
        del x, y
        # How the interpreter counts when nobody else holds them differs from version to version.
        self._alone = self._holders(-1)
        return self._pairs[-1][0].view(), self._pairs[-1][1].view()

    def _holders(self, number: int) -> tuple[int, int]:
        return sys.getrefcount(self._pairs[number][0]), sys.getrefcount(self._pairs[number][1])


# Their threads end before the interpreter does.
_living: weakref.WeakSet[TokenLoader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loader in list(_living):
        loader.close()
