"""The order `blocks`: how large its blocks and windows are, and how well they mix."""

from __future__ import annotations

import operator
import warnings
from typing import Any, NamedTuple

from evenkeel import _core

# Below so many blocks in a window, data that is sorted by label trains worse than with an exact
# shuffle: docs/orders.md has the measurements.
FEW_BLOCKS = 64


class ShuffleWarning(UserWarning):
    """A window of the order `blocks` is too small to mix data that is sorted."""


class Blocks(NamedTuple):
    """Which rows come when depends on these three numbers, so they are part of a loop's state."""

    block_rows: int
    window_blocks: int
    streams: int

    def describe(self, rows: int, row_bytes: int, world: int, n: int) -> str:
        """Sizes, memory and expected quality, in two lines."""
        size = _core.format_size
        window = min(self.block_rows * self.window_blocks, max(rows, 1))
        share = 100 * window / max(rows, 1)
        blocks = min(self.window_blocks, -(-window // self.block_rows))
        ranks = "" if world == 1 else f" of {world} ranks"
        return (
            f"blocks: {self.block_rows:,} rows ({size(self.block_rows * row_bytes)}); windows:"
            f" {blocks:,} blocks ({window:,} rows, {size(window * row_bytes)}, {share:.3g} % of"
            f" the rows){ranks}; {self.streams} streams\n"
            f"quality: {self._quality(blocks, window >= rows, n * world)}"
        )

    def _quality(self, blocks: int, whole: bool, batch: int) -> str:
        if whole:
            return "one window holds all rows, so they are mixed as in an exact shuffle"
        # Streams take turns, so that many rows of a batch come from different blocks. The others
        # share a block with one of them: docs/orders.md.
        apart = min(batch, self.streams, blocks)
        varies = (1 + (batch - apart) / blocks) ** 0.5
        return (
            f"if neighbouring rows are alike, what a batch of {batch:,} rows holds of each kind"
            f" varies {varies:.3g} times as much as with an exact shuffle; if they are not, there"
            " is no difference"
        )


def rows_of(what: str, name: str, value: Any, row_bytes: int) -> int:
    """Rows, of a number of rows or of a size such as "256KiB". 0: not given."""
    if value is None:
        return 0
    if isinstance(value, str):
        return max(1, _core.parse_size(value) // max(1, row_bytes))
    rows = operator.index(value)
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
) -> Blocks:
    """The numbers that were given, and for the others those that suit the budget."""
    given = 0 if streams is None else operator.index(streams)
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
        )
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
