"""The rows of an array in an order, some at a time."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from evenkeel import _core
from evenkeel._blocks import Blocks, choose, warn_if_few, whole_chunks
from evenkeel._closing import Closing
from evenkeel._files import base_name
from evenkeel._stepping import whole

if TYPE_CHECKING:
    from evenkeel._array import Array


def whole_number(name: str, number: Any) -> int:
    value = whole(name, number)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{name} must be a whole number of 0 or more, below 2**64; it is {value}")
    return value


class Batches(Closing):
    """The rows of an array, `n` at a time; the next ones are read while you use the current ones.

    Made by `Array.batches`. It is an iterator with a position: `for` continues with the batch at
    `position`. After the last batch of an epoch a loop ends, and the next loop over the same object
    is the next epoch. `len` is the number of batches per epoch.

    The object holds buffers of the budget from its creation to the end of the epoch, or until
    `close`. Threads that share it get different batches. It works only in the process that created
    it.

    >>> import evenkeel, numpy
    >>> numpy.save("ten.npy", numpy.arange(10))
    >>> batches = evenkeel.open("ten.npy").batches(5, shuffle=True, seed=0)
    >>> [rows.tolist() for rows in batches]
    [[4, 9, 0, 6, 5], [7, 3, 8, 1, 2]]
    >>> [rows.tolist() for rows in batches]  # another order: the next epoch
    [[8, 1, 5, 9, 6], [2, 7, 0, 4, 3]]
    >>> batches.epoch, batches.position, len(batches)
    (1, 2, 2)
    """

    def __init__(
        self,
        array: Array,
        n: int,
        shuffle: bool | str,
        seed: int,
        epoch: int,
        rank: int,
        world: int,
        with_index: bool,
        drop_last: bool,
        start: int,
        block: int | str | None = None,
        window: int | str | None = None,
        streams: int | None = None,
    ) -> None:
        in_blocks = isinstance(shuffle, str) and shuffle == "blocks"
        if not in_blocks and not isinstance(shuffle, (bool, np.bool_)):
            raise ValueError(
                f'batches: shuffle must be True or False or "blocks"; got {shuffle!r}\n'
                "hint: to choose an order by number, pass seed="
            )
        if not in_blocks and not block is window is streams is None:
            raise ValueError('batches: block, window and streams belong to shuffle="blocks"')
        self._array, self._n = array, whole_number("n", n)
        if self._n == 0:
            raise ValueError("batches: n, the rows of a batch, must be 1 or more; it is 0")
        self._dtype, self._row_shape = array.dtype, array.shape[1:]
        self._shuffle: bool | str = "blocks" if in_blocks else bool(shuffle)
        self._seed = whole_number("seed", seed)
        self._epoch, self._position = whole_number("epoch", epoch), whole_number("start", start)
        self._rank, self._world = whole_number("rank", rank), whole_number("world", world)
        self._with_index, self._drop_last = with_index, drop_last
        self._lock = threading.RLock()  # a second thread waits and gets the next batch
        self._closed = False
        self._source: _core.ChunkReader | None = None
        self._row_bytes = array._row_bytes
        self._blocks: Blocks | None = None
        # Numbers that the caller did not pass may come from a state instead.
        self._requested = {"block": block, "window": window, "streams": streams}
        if in_blocks:
            self._blocks = self._choose_blocks(array.budget)
            warn_if_few(self._blocks, len(array), stacklevel=3)
        first = self._open()  # checks the numbers before anything is divided by them
        rows = max(0, -(-(len(array) - self._rank) // self._world))
        self._length = rows // self._n if drop_last else -(-rows // self._n)
        if self._position > self._length:
            raise IndexError(f"batches: start is {self._position}, of {self._length} batches")
        if self._position == self._length:
            first.close()
            return
        if self._position > 0:
            first.seek(self._position)
        self._source = first

    def _choose_blocks(self, budget: _core.Budget) -> Blocks:
        if self._world > 1 and self._requested["window"] is None and self._array._recipe[1] is None:
            raise ValueError(
                "batches: without a budget, every rank would choose a window by the memory that is"
                " free when it starts, and ranks with different windows read different rows\n"
                'hint: give window=, the same on every rank, or open the array with budget="..."'
            )
        requested = dict(self._requested)
        if requested["block"] is None:
            requested["block"] = whole_chunks(self._array._chunk_rows, self._row_bytes)
        return choose("batches", budget, self._row_bytes, self._world, **requested)

    def _open(self) -> _core.ChunkReader:
        return _core.chunks(
            self._array._reader,
            self._n,
            bool(self._shuffle),
            self._seed,
            self._epoch,
            self._rank,
            self._world,
            self._blocks,
        )

    def __len__(self) -> int:
        return self._length

    @property
    def epoch(self) -> int:
        """The epoch of the next batches, or of those that have just ended."""
        return self._epoch

    @property
    def position(self) -> int:
        """The number of the next batch in this epoch; `len` after the last."""
        return self._position

    def __iter__(self) -> Iterator[Any]:
        with self._lock:
            self._require_open()
            if self._position == self._length:
                self._move(self._epoch + 1, 0)
        return self

    def __next__(self) -> Any:
        with self._lock:
            if self._closed:
                self._require_open()
            if self._position == self._length:
                raise StopIteration
            # In CPython 3.9, a signal handler can raise between the end of a read and the new
            # position.
            if self._source is not None and self._source.position != self._position:
                self._drop_source()
            source = self._source or self._at_position()
            try:
                rows = source.next()
                index = np.empty(rows, np.int64) if self._with_index else None
                read = source.read(index)
            except BaseException:
                # If the batch was not taken, the next call returns it. If it was, it is read again.
                if source.closed or source.position != self._position:
                    self._drop_source()
                raise
            self._position += 1
            if self._position == self._length:
                self._let_go()
        block = read.view(self._dtype).reshape((rows, *self._row_shape))
        return (index, block) if self._with_index else block

    def seek(self, position: int) -> None:
        """Makes batch `position` of this epoch the next one, without reading those before it."""
        number = whole("seek: position", position)
        if not 0 <= number <= self._length:
            raise IndexError(f"seek: there is no batch {number} of {self._length}")
        with self._lock:
            self._require_open()
            self._move(self._epoch, number)

    def set_epoch(self, epoch: int) -> None:
        """Begins epoch `epoch`. Keeps the position if it is the current epoch.

        Programs that count epochs themselves may call it before each epoch, like set_epoch of
        torch's DistributedSampler."""
        number = whole_number("epoch", epoch)
        with self._lock:
            self._require_open()
            if number != self._epoch:
                self._move(number, 0)

    def state_dict(self) -> dict[str, Any]:
        """The position, the order and the identity of the data: small, and fit for JSON."""
        ended = self._position == self._length
        taken = len(self._array) if ended else self._position * self._n * self._world
        state = {
            "evenkeel": 1,
            "data": self._data(),
            "shuffle": self._shuffle,
            "seed": self._seed,
            "epoch": self._epoch,
            "rows": taken,
        }
        if self._blocks is not None:
            state["blocks"] = list(self._blocks)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state` was saved, also with another `n` or `world` if n × world divides
        the rows that were taken. Raises ValueError if the state belongs to other data or to another
        order. With shuffle="blocks", sizes of blocks and windows that were not passed come from
        `state`."""
        if not isinstance(state, Mapping) or not {"data", "rows", "epoch"} <= state.keys():
            raise ValueError("load: this is not a state of Array.batches")
        for name, mine in (
            ("data", self._data()),
            ("shuffle", self._shuffle),
            ("seed", self._seed),
        ):
            if state.get(name) != mine:
                raise ValueError(
                    f"load: the state has {name} {state.get(name)!r}, these batches {mine!r}"
                )
        epoch, taken = whole_number("epoch", state["epoch"]), whole_number("rows", state["rows"])
        position = self._length
        if taken < len(self._array):
            position, rest = divmod(taken, self._n * self._world)
            if rest or position > self._length:
                raise ValueError(
                    f"load: the state has {taken:,} rows of the epoch, which is not divisible by"
                    f" n × world = {self._n * self._world:,}"
                )
        blocks = self._blocks_of(state)
        with self._lock:
            self._require_open()
            if blocks != self._blocks:
                self._let_go()
                self._blocks = blocks
            self._move(epoch, position)

    def _blocks_of(self, state: Mapping[str, Any]) -> Blocks | None:
        if self._blocks is None:
            return None
        try:
            blocks = Blocks(*(whole_number("blocks", number) for number in state["blocks"]))
        except (KeyError, TypeError):
            raise ValueError("load: this state has no sizes of blocks and windows") from None
        requested = {**self._requested, "block": self._requested["block"] or blocks.block_rows}
        given = choose("batches", self._array.budget, self._row_bytes, self._world, **requested)
        for name, mine, theirs in zip(("block", "window", "streams"), given, blocks):
            if self._requested[name] is not None and mine != theirs:
                raise ValueError(
                    f"load: the state has {name} {theirs}, these batches {mine}\n"
                    f"hint: leave {name}= out, and it comes from the state"
                )
        return blocks

    def describe(self) -> str:
        """Describes the order and the position; with shuffle="blocks" also the sizes of blocks and
        windows, and how well they mix."""
        shuffled = "shuffled in blocks" if self._blocks else "shuffled"
        order = shuffled if self._shuffle else "in order"
        ranks = "" if self._world == 1 else f", rank {self._rank} of {self._world}"
        lines = [
            f"batches: {self._length:,} of {self._n:,} rows, {order}, seed {self._seed}, epoch"
            f" {self._epoch}, at {self._position:,}{ranks}"
        ]
        if self._blocks is not None:
            lines.append(
                self._blocks.describe(len(self._array), self._row_bytes, self._world, self._n)
            )
        return "\n".join(lines)

    def close(self) -> None:
        """Stops reading ahead and releases the buffers. Arrays that were returned stay valid."""
        self._closed = True
        source = self._source
        if source is not None:
            source.close()  # a thread that waits in `next` gets an error and leaves the lock
        with self._lock:
            self._let_go()

    def __reduce__(self) -> Any:
        raise TypeError("batches stay in their process: send the array and state_dict() instead")

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"at {self._position:,} of {self._length:,}"
        return f"<evenkeel.Batches of {self._n:,} rows, epoch {self._epoch}, {where}>"

    def _repr_html_(self) -> str:
        from evenkeel import _html

        return _html.batches(self)

    def _at_position(self) -> _core.ChunkReader:
        if self._source is None:
            source = self._open()
            if self._position > 0:
                source.seek(self._position)
            self._source = source
        return self._source

    def _move(self, epoch: int, position: int) -> None:
        """A new epoch is opened when its first batch is requested."""
        if epoch == self._epoch and position < self._length and self._source is not None:
            try:
                self._source.seek(position)
            except BaseException:
                self._drop_source()  # its position is unknown
                raise
        else:
            self._let_go()
        self._epoch, self._position = epoch, position

    def _let_go(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _drop_source(self) -> None:
        """Closes it at once, even if a traceback still refers to it: it holds much of the
        budget."""
        source, self._source = self._source, None
        if source is not None:
            source.drop()

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("batches: used after close\nhint: call batches() again")

    def _data(self) -> str:
        """Identifies the data: the same text in whichever folder the files are."""
        names = zlib.crc32(b"\0".join(base_name(path) for path in self._array._recipe[0]))
        return f"shape={self._array.shape} dtype={self._array.dtype.str} names={names}"
