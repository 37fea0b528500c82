"""Training batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from evenkeel import _core
from evenkeel._blocks import InBlocks
from evenkeel._documents import DocumentsLayout, document_options
from evenkeel._mixture import MaxEpochs, Schedule, set_mixture
from evenkeel._ranks import rank_and_world
from evenkeel._stepping import number, over, real, set_common
from evenkeel._tokens import Tokens, require_tokens

Mixture = Union[Tokens, Sequence[Union[Tokens, "tuple[Tokens, float]"]], "Mapping[Tokens, float]"]
LossMask = Union[Tokens, "Sequence[Tokens | None]"]


if TYPE_CHECKING:

    class _Base(InBlocks, _core.BatchReader):
        pass

else:
    _Base = over(InBlocks, _core.BatchReader)


class TokenLoader(_Base):
    """Batches (x, y) of token files, read ahead within the budget of the tokens.

    Every batch is a pure function of the data, seed, step, rank and world: you can seek to it,
    resume on another number of ranks, and see what it is made of (`explain`).

    `tokens` is the result of evenkeel.tokens, or a mixture: pairs of (tokens, weight). `order` is
    "random" (with replacement, as in nanoGPT), "shuffled" (each block once per epoch), "covering"
    (the same with a new phase each epoch), "blocks" (the crops of "covering", read in large
    requests and mixed in memory: see docs/orders.md) or "megatron" (below). For "blocks", `block`
    and `window` are crops, or bytes as text ("64KiB"), and `streams` is a multiple of every `world`
    that will continue the run; a window takes a quarter of the budget by default, and two are in
    memory. These are part of the state: a loader created without `block` and `window` takes them
    from the state. "megatron" has the samples of megatron-core's GPTDataset, and for several sets
    of its BlendedDataset, in the same order, for `samples` samples (default: those of `steps`,
    otherwise of one epoch). Sets without weights are then blended by their size; `surplus` is
    Megatron's mid_level_dataset_surplus. `rank` and `world` default to those of torch.distributed,
    then to the environment of torchrun, Slurm or Open MPI, then to one process.

    `schedule` changes the weights of a mixture during training: {0: [3, 1], 200_000: [1, 3]} has
    weights 1 : 3 from step 200,000 on. Each set continues where it was, and shares are exact within
    each stage. `max_epochs` limits the epochs of all sets, or of each: [1, None]. `exhausted` says
    what happens when a set reaches the limit: "stop" ends the loader, "drop" gives its weight to
    the other sets, "repeat" starts the set again with its first epoch. With order="blocks", weights
    change and sets end between two turns of `streams` samples.

    `documents` says what to do with documents: "mask" returns the same rows and where documents
    begin in them, "start" rows that begin where a document begins, "packed" rows of whole
    documents, and "whole" batches of `batch_size` documents of different lengths, each cut off
    after `block_size` tokens. The batches are of class `TokenBatch`: x and y, and also
    position_ids, cu_seqlens, max_seqlen, document_ids and loss_mask. Documents are found with the
    index of the files (Megatron, datatrove, NAME.doc.npy), or by the token that they begin with
    (`bos`) or end with (`eos`). If an index must be built, it is stored beside the file, or in the
    folder `documents_index`. `most_documents` gives cu_seqlens a fixed length,
    `predict_first=False` excludes the first tokens of documents from loss_mask, and `packing`
    reports what a mode costs. `loss_mask` is a result of evenkeel.tokens with one number for each
    token, 0 for tokens that are not to be predicted, such as prompts; for a mixture a list of them,
    with None for sets without a mask. `leftovers` belongs to "start"; `window` (here the rows that
    are packed together, 512 by default), `mixed_windows`, `pad` and `long_documents` ("split", or
    "crop" to use only their first `block_size` tokens) belong to "packed". With "whole", `window`
    documents (4,096 by default) are sorted by length and cut into buckets of `bucket` (default
    world x batch_size), which come in random order. With order="blocks", "start" has the crops of
    that order, "packed" mixes `mixed_windows` windows that are read whole, and "whole" sorts
    windows of blocks of `block` neighbouring documents (64 by default).

    Without `steps`, `epochs` or `max_epochs`, the loader does not end, and `len` is a TypeError;
    order="megatron" ends with its last sample. With `steps` a loop ends after that many batches,
    and the next loop begins again at step 0, as validation needs it. With `epochs` a loop ends
    after the whole batches of that many epochs, and the next loop continues with the epochs that
    follow.

    Without `device` batches are ndarrays; with it, torch tensors on that device. Batches for a GPU
    are copied from pinned memory on their own stream while the previous batch is used. You may keep
    or change the arrays: a batch is in the memory into which it was read, and that memory is reused
    after you release it.

    Several threads may call `next` (each batch is returned once), `seek` and `close`. A child of
    fork needs its own loader.

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
        prefetch: int | None = None,
        dtype: str = "int64",
        device: Any = None,
        steps: int | None = None,
        epochs: int | None = None,
        block: int | str | None = None,
        window: int | str | None = None,
        streams: int | None = None,
        schedule: Schedule | None = None,
        max_epochs: MaxEpochs | None = None,
        exhausted: str = "stop",
        samples: int | None = None,
        surplus: float = 0.005,
        stride: int = 1,
        phase: int = 0,
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
        sets = weighted(tokens)
        self._sources = [one for one, _ in sets]
        self._start(*rank_and_world(rank, world))
        # Python's integers: products of NumPy's may overflow.
        batch_size = number("batch_size", batch_size, 1)
        block_size = number("block_size", block_size, 1)
        self._shape = batch_size, block_size
        stored = sets[0][0].dtype
        self._dtype = stored if dtype == "stored" else np.dtype(dtype)
        options = _core.LoaderOptions()
        options.block_size = block_size
        options.dtype = "stored" if dtype == "stored" else self._dtype.name
        set_common(
            options,
            batch_size=batch_size,
            order=order,
            seed=seed,
            rank=self._rank,
            world=self._world,
            prefetch=prefetch,
            steps=steps,
            epochs=epochs,
            stride=stride,
            phase=phase,
        )
        set_mixture(options, len(sets), schedule, max_epochs, exhausted)
        if order == "megatron":
            wanted = 0 if samples is None else number("samples", samples, 1)
            share = real("loader: surplus", surplus)
            options.megatron = (wanted, share, not has_weights(tokens))
        elif samples is not None:
            raise ValueError('loader: samples belongs to order="megatron"\nhint: give steps')
        in_pieces = documents in ("packed", "whole")
        # Here `window` counts documents.
        packs = documents is not None and (order != "blocks" or in_pieces)
        requested = {"block": block, "window": None if packs else window, "streams": streams}
        if order == "blocks" and in_pieces:
            options.blocks = self._blocks_of_documents(requested)
        else:
            blocks = self._choose_blocks(
                order,
                requested,
                budget=sets[0][0].budget,
                has_budget=sets[0][0]._recipe[1] is not None,
                sample_bytes=options.block_size * stored.itemsize,
                batch_size=batch_size,
                samples=self._samples(),
            )
            if blocks is not None:
                options.blocks = blocks
        options.documents = document_options(
            documents,
            bos=bos,
            eos=eos,
            documents_index=documents_index,
            most_documents=most_documents,
            predict_first=predict_first,
            leftovers=leftovers,
            window=window if packs else None,
            mixed_windows=mixed_windows,
            bucket=bucket,
            long_documents=long_documents,
            pad=pad,
        )
        masks = loss_masks(loss_mask, len(sets))
        layout = None
        if options.documents.mode != "none":
            layout = DocumentsLayout(batch_size, block_size, options.documents.most_documents)
        memory: list[list[Any]] = []
        if device is not None:
            from evenkeel._device import ring_for

            shape: tuple[int, ...] = self._shape
            if documents == "whole":  # batches have one axis, of at most this many tokens
                shape = (batch_size * block_size,)
            fields: list[Any] = [(shape, self._dtype), (shape, self._dtype)]
            if layout is not None:
                fields.append(((layout.bytes,), np.dtype(np.uint8)))
            self._ring = ring_for(device, fields, batch_size, prefetch)
        if self._ring is not None:
            options.keep = self._ring.keep
            memory = self._ring.memory
        weights = [(one._stream, float(weight)) for one, weight in sets]
        super().__init__(weights, options, memory, masks)
        if self._ring is not None:
            self.deliver = self._ring.next
        elif device is not None:
            import torch

            self.convert = torch.from_numpy
        if layout is not None:
            self.transform = layout.batch

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Continues at the current step. After the end it begins the next loop."""
        return super().__iter__()

    def explain(self, step: int) -> list[dict[str, Any]]:
        """Which tokens, files and bytes each row of a step's batch is cut from. Reads nothing."""
        rows = self.explained(number("step", step, 0, what="explain"))
        for row in rows:
            row["path"] = os.fsdecode(row["path"])  # type: ignore[arg-type]
        return rows

    def _samples(self) -> list[int]:
        """The number of crops per epoch of each set, in the order blocks."""
        return [max(0, len(one) // self._shape[1] - 1) for one in self._sources]

    def describe(self) -> str:
        """Describes what is read, in which order, and how much memory that takes, in several
        lines."""
        if self._closed:
            return "loader: closed"
        rows, columns = self._shape
        budget = self._sources[0].budget
        return "\n".join(
            [
                repr(self)[1:-1].replace("evenkeel.TokenLoader", "loader"),
                *(repr(source) for source in self._sources),
                *self._describe_blocks(self._samples(), rows, "crops"),
                *self._describe_documents(),
                f"batches: {rows:,} x {columns:,} tokens, {self.buffers} in memory",
                f"loop: {f'{self.size:,} batches' if self.size else 'does not end'}",
                f"budget: {budget.describe()}, {_core.format_size(budget.in_use)} in use",
            ]
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a TokenLoader stays in its process: send its tokens and state_dict() instead, or use "
            "TokenIterableDataset"
        )

    def __repr__(self) -> str:
        if self._closed:
            return "<evenkeel.TokenLoader: closed>"
        rows, columns = self._shape
        return (
            f"<evenkeel.TokenLoader: {rows} x {columns} {self._dtype}, {self._order}, "
            f"rank {self._rank} of {self._world}, step {self.step}>"
        )

    def _repr_html_(self) -> str:
        from evenkeel import _html

        return _html.loader(self)


def loss_masks(given: LossMask | None, sets: int) -> list[_core.TokenStream | None]:
    """One mask for each set; empty if there are none."""
    if given is None:
        return []
    each = [given] if isinstance(given, Tokens) else given
    if isinstance(each, (str, bytes)) or not isinstance(each, Sequence):
        require_tokens(each, "loss_mask")
    if len(each) != sets:
        raise ValueError(
            f"loss_mask: {len(each)} masks for {sets} sets\n"
            "hint: pass one for each set, None for a set whose tokens all count"
        )
    return [None if one is None else require_tokens(one, "loss_mask")._stream for one in each]


def has_weights(tokens: Mixture) -> bool:
    if isinstance(tokens, Tokens) or not isinstance(tokens, (Mapping, Sequence)):
        return False
    return isinstance(tokens, Mapping) or any(isinstance(one, tuple) for one in tokens)


def weighted(tokens: Mixture, what: str = "loader") -> list[tuple[Tokens, float]]:
    """One set, or several with weights, as pairs."""
    if isinstance(tokens, Tokens) or not isinstance(tokens, (Mapping, Sequence)):
        return [(require_tokens(tokens, what), 1.0)]
    if isinstance(tokens, (str, bytes)) or not tokens:
        require_tokens(tokens, what)
    pairs = tokens.items() if isinstance(tokens, Mapping) else tokens
    sets = [one if isinstance(one, tuple) and len(one) == 2 else (one, 1.0) for one in pairs]
    return [(require_tokens(one, what), _weight(weight, what)) for one, weight in sets]


def _weight(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what}: the weight of a set must be a number; got {value!r}") from None
