"""Datasets for torch's DataLoader. Imported when first used: the rest does not need torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from evenkeel._loader import LossMask, Mixture, TokenLoader, weighted
from evenkeel._mixture import MaxEpochs, Schedule
from evenkeel._ranks import rank_and_world
from evenkeel._rows import Data, Loader
from evenkeel._stepping import Stepping, number
from evenkeel._tokens import Tokens, require_tokens

Pair = tuple[torch.Tensor, torch.Tensor]


class TokenDataset(Dataset[Pair]):
    """Blocks of a token stream by number: item i is x = tokens[i*T : (i+1)*T] and y is shifted by
    one token.

    For a DataLoader with its own sampler. A whole batch is read at once (`__getitems__`). Works
    with any number of workers, by fork and by spawn.

    >>> import evenkeel, numpy
    >>> numpy.arange(1000, dtype="uint16").tofile("train.bin")
    >>> blocks = evenkeel.TokenDataset(evenkeel.tokens("train.bin", budget="16MiB"), block_size=8)
    >>> len(blocks), blocks[2][0].tolist()
    (124, [16, 17, 18, 19, 20, 21, 22, 23])
    """

    def __init__(self, tokens: Tokens, block_size: int) -> None:
        block_size = number("block_size", block_size, 1, what="dataset")
        self._tokens, self._block_size = require_tokens(tokens, "dataset"), block_size
        if len(self) == 0:
            raise ValueError(
                f"dataset: {len(tokens):,} tokens are too few for a block of {block_size:,} and"
                " the token after it"
            )

    def __len__(self) -> int:
        return max(0, len(self._tokens) - 1) // self._block_size

    def __getitem__(self, index: int) -> Pair:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        wanted = torch.as_tensor(indices)
        if len(wanted) and (wanted.dtype.is_floating_point or wanted.dtype == torch.bool):
            raise IndexError(f"dataset: blocks are numbered by integers; got {indices!r}")
        wanted = wanted.to(torch.int64)
        wanted = torch.where(wanted < 0, wanted + len(self), wanted)
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < len(self):
            raise IndexError(f"dataset: an index is outside its {len(self):,} blocks")
        x, y = self._tokens.xy(wanted * self._block_size, self._block_size)
        return list(zip(x, y))


class _StepDataset(IterableDataset[Any]):
    """The batches of a loader. The workers of a DataLoader take its steps in turn."""

    def __init__(self, options: dict[str, Any], steps: int | None, *, repeats: bool) -> None:
        self._options = options
        self._repeats = repeats  # every iteration is all of the data
        if steps is not None:
            steps = number("steps", steps, 1, what="dataset")
        self._steps = steps  # per iteration; None: it does not end
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self._loader: Stepping | None = None
        self._next: int | None = None  # step
        self._resumed: int | None = None
        self._state: str | None = None  # loaded state, which has the sizes of blocks

    def _make(self, **options: Any) -> Stepping:
        """A loader in the calling process."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Takes effect when the next iteration begins, in workers too."""
        self._epoch.fill_(number("epoch", epoch, 0, 1 << 63, what="dataset"))

    def __len__(self) -> int:
        if self._steps is None:
            raise TypeError("len: without steps the dataset does not end")
        return self._steps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loader": None}

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        turns, turn = (worker.num_workers, worker.id) if worker else (1, 0)
        begin = 0 if self._repeats else int(self._epoch) * (self._steps or 0)
        end = None if self._steps is None else begin + self._steps
        # A worker's turn depends on the position in this iteration, which begins with worker 0.
        first = begin + turn if self._resumed is None else self._resumed
        self._resumed = None
        with self._make(device="cpu", stride=turns, phase=first % turns, steps=end) as loader:
            if self._state is not None:
                loader.load_state_dict({"evenkeel": 1, "state": self._state})
            loader.seek(first)
            self._loader = loader
            try:
                self._next = first
                while end is None or loader.step < end:
                    try:
                        batch = next(loader)
                    except StopIteration:  # max_epochs, or Megatron's last sample
                        if self._next == begin:
                            raise self._nothing_at(begin) from None
                        return
                    self._next = loader.step
                    yield batch
            finally:
                self._loader = None

    def _nothing_at(self, begin: int) -> ValueError:
        return ValueError(
            f"dataset: epoch {int(self._epoch):,} of {self._steps:,} steps begins at step"
            f" {begin:,}, but the data ends before that\n"
            "hint: omit steps to get all of it in every epoch, or pass fewer steps"
        )

    def state_dict(self) -> dict[str, Any]:
        """The state of the current iteration in this process."""
        if self._loader is None:
            return {"evenkeel": 1, "next": self._next, "epoch": int(self._epoch)}
        state = self._loader.state_dict()
        return {**state, "next": self._next, "epoch": int(self._epoch)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration continues where `state` was saved, with the same number of workers."""
        if not isinstance(state, Mapping) or "next" not in state:
            raise ValueError(f"load: this is not a state of a {type(self).__name__}")
        if "state" in state:
            with self._make(prefetch=0) as probe:
                probe.load_state_dict({"evenkeel": 1, "state": state["state"]})  # the same data?
            self._state = state["state"]
        self._resumed = state["next"]
        self._epoch.fill_(int(state.get("epoch", 0)))


class TokenIterableDataset(_StepDataset):
    """The batches of a TokenLoader, for DataLoader(dataset, batch_size=None, num_workers=k).

    Workers take the steps in turn, so the batches and their order are the same for any number of
    workers, by fork and by spawn. Each worker has the whole budget of the tokens: divide the
    memory you have by the number of workers. With order="blocks" each worker reads and holds the
    windows of its rank whole, so one worker is enough.

    With `steps`, an iteration has that many batches; `set_epoch(e)` starts it at e * steps, also
    for persistent workers. Without `steps`, an iteration is all of data that ends (`max_epochs`,
    order="megatron"), the same in every epoch. `state_dict` and `load_state_dict` are called by
    torchdata's StatefulDataLoader, in each worker.

    Options are those of TokenLoader. With `documents` the batches are of class TokenBatch, whose
    fields are tensors; workers return them unchanged, and pin_memory=True pins them. If an index of
    documents must be built, the first worker builds it.
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
        prefetch: int | None = None,
        dtype: str = "int64",
        steps: int | None = None,
        block: int | str | None = None,
        window: int | str | None = None,
        streams: int | None = None,
        schedule: Schedule | None = None,
        max_epochs: MaxEpochs | None = None,
        exhausted: str = "stop",
        samples: int | None = None,
        surplus: float = 0.005,
        documents: str | None = None,
        bos: int | None = None,
        eos: int | None = None,
        documents_index: str | os.PathLike[str] | None = None,
        most_documents: int | None = None,
        predict_first: bool = True,
        leftovers: str = "drop",
        mixed_windows: int = 8,
        bucket: int | None = None,
        long_documents: str | None = None,
        loss_mask: LossMask | None = None,
        pad: int = 0,
    ) -> None:
        weighted(tokens, "dataset")  # checks the type in this process
        self._sets = tokens
        # Determined here, because workers do not have torch.distributed.
        rank, world = rank_and_world(rank, world)
        options = _options(locals(), without={"tokens", "steps"})
        repeats = steps is None and (max_epochs is not None or order == "megatron")
        if repeats:
            with TokenLoader(self._sets, **{**options, "prefetch": 0}) as probe:
                steps = probe.size or None
        if order == "megatron" and samples is None and steps is not None:
            # The same for every iteration. NumPy's integers might overflow.
            steps = number("steps", steps, 1, what="dataset")
            options["samples"] = steps * int(batch_size) * int(world)
        super().__init__(options, steps, repeats=repeats)

    def _make(self, **options: Any) -> TokenLoader:
        return TokenLoader(self._sets, **{**self._options, **options})


class RowIterableDataset(_StepDataset):
    """The batches of a Loader, for DataLoader(dataset, batch_size=None, num_workers=k).

    `data` is the data of an evenkeel.Loader: an array, a tuple or a dict of arrays, or a mixture;
    batches are tensors in the same form. Workers take the steps in turn, so the batches and their
    order are the same for any number of workers, by fork and by spawn. Each worker has the whole
    budget of the arrays: divide the memory you have by the number of workers.

    An iteration is one epoch, or `steps` batches; `set_epoch(e)` moves to the e-th, also for
    persistent workers. Without `steps`, an iteration is all of a mixture that ends
    (`max_epochs`), the same in every epoch. With order="blocks" each worker reads and holds the
    windows of its rank whole, so one worker is enough. `transform` is called with each batch in the
    worker. `state_dict` and `load_state_dict` are called by torchdata's StatefulDataLoader, in each
    worker.

    >>> import evenkeel, numpy
    >>> from torch.utils.data import DataLoader
    >>> numpy.save("x.npy", numpy.arange(12).reshape(6, 2))
    >>> rows = evenkeel.RowIterableDataset(evenkeel.open("x.npy", budget="16MiB"), 4, seed=1)
    >>> [tuple(batch.shape) for batch in DataLoader(rows, batch_size=None)]
    [(4, 2), (2, 2)]
    """

    def __init__(
        self,
        data: Data,
        batch_size: int,
        *,
        order: str = "shuffled",
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        prefetch: int | None = None,
        steps: int | None = None,
        drop_last: bool = False,
        block: int | str | None = None,
        window: int | str | None = None,
        streams: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        schedule: Schedule | None = None,
        max_epochs: MaxEpochs | None = None,
        exhausted: str = "stop",
    ) -> None:
        self._data = data
        rank, world = rank_and_world(rank, world)
        options = _options(locals(), without={"data", "steps"})
        repeats = steps is None and max_epochs is not None
        if steps is None:
            with Loader(data, **{**options, "prefetch": 0}) as probe:
                steps = probe.size or None
        super().__init__(options, steps, repeats=repeats)

    def _make(self, **options: Any) -> Loader:
        return Loader(self._data, **{**self._options, **options})


def _options(given: dict[str, Any], without: set[str]) -> dict[str, Any]:
    """The arguments of a dataset that its loaders get unchanged."""
    without = {"self", "__class__", *without}
    return {name: value for name, value in given.items() if name not in without}
