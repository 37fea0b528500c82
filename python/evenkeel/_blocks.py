"""The order `blocks`: how large its blocks and windows are, and how well they mix."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from evenkeel import _core
from evenkeel._stepping import Stepping, whole

# With fewer blocks in a window, data that is sorted by label trains worse than with an exact
# shuffle: docs/orders.md has the measurements.
FEW_BLOCKS = 64


class ShuffleWarning(UserWarning):
    """A window of the order `blocks` is too small to mix data that is sorted."""


class Blocks(NamedTuple):
    """The order of rows depends on these three numbers, so they are part of a loop's state."""

    block_rows: int
    window_blocks: int
    streams: int

    def describe(self, rows: int, row_bytes: int, world: int, n: int, noun: str = "rows") -> str:
        """Sizes, memory and expected quality, in two lines."""
        size = _core.format_size
        window = min(self.block_rows * self.window_blocks, max(rows, 1))
        share = 100 * window / max(rows, 1)
        blocks = min(self.window_blocks, -(-window // self.block_rows))
        ranks = "" if world == 1 else f" of {world} ranks"
        return (
            f"blocks: {self.block_rows:,} {noun} ({size(self.block_rows * row_bytes)}); windows:"
            f" {blocks:,} blocks ({window:,} {noun}, {size(window * row_bytes)}, {share:.3g} % of"
            f" the {noun}){ranks}; {self.streams} streams\n"
            f"quality: {self._quality(blocks, window >= rows, n * world, noun)}"
        )

    def _quality(self, blocks: int, whole: bool, batch: int, noun: str) -> str:
        if whole:
            return f"one window holds all {noun}, so they are mixed as in an exact shuffle"
        # Streams alternate, so this many rows of a batch come from different blocks. The others
        # share a block with one of them: see docs/orders.md.
        apart = min(batch, self.streams, blocks)
        varies = (1 + (batch - apart) / blocks) ** 0.5
        return (
            f"if neighbouring {noun} are alike, the share of each kind in a batch of {batch:,}"
            f" {noun}"
            f" varies {varies:.2f} times as much as with an exact shuffle; if they are not, there"
            " is no difference"
        )


def rows_of(what: str, name: str, value: Any, row_bytes: int) -> int:
    """Converts a number of rows, or a size such as "64KiB", to rows. 0: not given."""
    if value is None:
        return 0
    if isinstance(value, str):
        return max(1, _core.parse_size(value) // max(1, row_bytes))
    rows = whole(f"{what}: {name}", value)
    if not 0 < rows < 1 << 64:
        raise ValueError(
            f"{what}: {name} must be 1 row or more; it is {rows}\n"
            f'hint: give {name} in rows, or in bytes as text: {name}="64MiB"'
        )
    return rows


def choose(
    what: str,
    budget: _core.Budget,
    row_bytes: int,
    world: int,
    block: Any,
    window: Any,
    streams: Any,
    mixture: Any = (1, 0),
) -> Blocks:
    """The numbers that were given; the others are chosen to suit the budget. `mixture` is the
    number of sets, which share the budget, and the rows of a step."""
    given = 0 if streams is None else whole(f"{what}: streams", streams)
    if streams is not None and given < 1:
        raise ValueError(f"{what}: streams must be 1 or more; it is {given}")
    return Blocks(
        *_core.choose_blocks(
            max(1, row_bytes),
            budget.limit,
            max(1, world),
            rows_of(what, "block", block, row_bytes),
            rows_of(what, "window", window, row_bytes),
            given,
            *mixture,
        )
    )


def whole_chunks(chunk_rows: int, row_bytes: int) -> int | None:
    """The rows of a block if `chunk_rows` rows are decoded together; None: rows are not decoded.

    Blocks begin at another row in each epoch, so the chunks at both ends are decoded twice: several
    in a block are better than one, as long as blocks stay small."""
    several = (1 << 20) // max(1, chunk_rows * row_bytes)
    return chunk_rows * max(1, min(16, several)) if chunk_rows else None


class InBlocks(Stepping):
    """What the order `blocks` adds to a loader. Its other base is a reader of _core."""

    _order: str
    _requested: dict[str, Any]
    _chosen_by: tuple[_core.Budget, int, int, int] | None

    def _choose_blocks(
        self,
        order: str,
        requested: dict[str, Any],
        *,
        budget: _core.Budget,
        has_budget: bool,
        sample_bytes: int,
        batch_size: int,
        samples: list[int],
        block: int | None = None,
    ) -> Blocks | None:
        """None: the order has no blocks. `samples` is the number of samples in each set; `block` is
        the default."""
        self._order, self._requested = order, requested
        self._chosen_by = budget, sample_bytes, len(samples), batch_size * self._world
        if order != "blocks":
            if any(value is not None for value in requested.values()):
                raise ValueError('loader: block, window and streams belong to order="blocks"')
            return None
        if self._world > 1 and requested["window"] is None and not has_budget:
            raise ValueError(
                "loader: without a budget, every rank would choose a window by the memory that is"
                " free when it starts, and ranks with different windows read different rows\n"
                'hint: give window=, the same on every rank, or open the data with budget="..."'
            )
        if requested["block"] is None:
            requested = {**requested, "block": block}
        blocks = self._blocks_for(requested)
        warn_if_few(blocks, max(samples), stacklevel=3, exact='order="shuffled"')
        return blocks

    def _blocks_of_documents(self, requested: dict[str, Any]) -> Blocks:
        """For rows made of documents: the library chooses the numbers that were not given."""
        self._order, self._requested, self._chosen_by = "blocks", requested, None
        given = {"block": requested["block"], "streams": requested["streams"]}
        for name, value in given.items():
            if value is not None and whole(f"loader: {name}", value) < 1:
                raise ValueError(f"loader: {name} must be 1 or more; it is {value}")
        return Blocks(given["block"] or 0, 0, given["streams"] or 0)

    def _describe_documents(self) -> list[str]:
        if self._order != "blocks" or self._chosen_by is not None:
            return []
        block, window, streams = self.blocks_in_use
        return [f"blocks: {block:,} in a block, {window:,} blocks in a window; {streams} streams"]

    def _blocks_for(self, requested: dict[str, Any]) -> Blocks:
        assert self._chosen_by is not None
        budget, sample_bytes, sets, step = self._chosen_by
        return choose(
            "loader", budget, sample_bytes, self._world, **requested, mixture=(sets, step)
        )

    def _describe_blocks(self, samples: list[int], batch_size: int, noun: str) -> list[str]:
        if self._order != "blocks" or self._chosen_by is None:
            return []
        blocks = Blocks(*self.blocks_in_use)
        return [blocks.describe(max(samples), self._chosen_by[1], self._world, batch_size, noun)]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state` was saved, also with another world, batch size or prefetch.
        Raises ValueError, which names the difference, if the state belongs to other data, seed or
        order. With order="blocks", the sizes of blocks and windows come from the state, unless
        others were passed to the loader. A mixture with documents="packed" or "whole", with stages
        or with max_epochs needs the streams= of the state, whose default depends on world and batch
        size."""
        known = isinstance(state, Mapping) and isinstance(state.get("state"), str)
        if self._order == "blocks" and known:
            self._require_told(Blocks(*self.blocks_of_state(state["state"])))
        Stepping.load_state_dict(self, state)  # no super(): see _stepping.over

    def _require_told(self, theirs: Blocks) -> None:
        if not any(theirs) or self._chosen_by is None:
            return  # another order is refused by name, or the library compares
        mine = self._blocks_for(
            {**self._requested, "block": self._requested["block"] or theirs.block_rows}
        )
        for name, there, here in zip(self._requested, theirs, mine):
            if self._requested[name] is not None and there != here:
                # The default of streams= need not be what a mixture that changes has in its state.
                hint = f"leave {name}= out, and it comes from the state"
                if name == "streams":
                    hint = f"pass streams={there}"
                raise ValueError(
                    f"load: the state has {name} {there:,}, this loader has {here:,}\nhint: {hint}"
                )


def warn_if_few(blocks: Blocks, rows: int, stacklevel: int, exact: str = "shuffle=True") -> None:
    window = blocks.block_rows * blocks.window_blocks
    if window >= rows or blocks.window_blocks >= FEW_BLOCKS:
        return
    enough = FEW_BLOCKS * blocks.block_rows
    smaller = max(1, window // FEW_BLOCKS)
    warnings.warn(
        f"a window of {blocks.window_blocks} blocks mixes too few parts of the data if neighbouring"
        f" rows are alike, as in data sorted by label\nhint: use window={enough} rows or more,"
        f" smaller blocks (block={smaller}), a larger budget, or {exact}, which is exact",
        ShuffleWarning,
        stacklevel=stacklevel + 1,
    )
