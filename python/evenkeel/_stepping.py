"""Shared code of all loaders, on top of a reader of batches."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from evenkeel._closing import Closing

if TYPE_CHECKING:
    from evenkeel._device import Ring

    class _Reader:
        """The methods of the readers of _core."""

        deliver: object
        convert: object

        def begin_loop(self) -> None:
            raise NotImplementedError

        def seek_step(self, step: int) -> None:
            raise NotImplementedError

        def load(self, state: str) -> None:
            raise NotImplementedError

        def close_reader(self) -> None:
            raise NotImplementedError

        def state_at(self, step: int) -> str:
            raise NotImplementedError

        def __next__(self) -> Any:
            raise NotImplementedError

        @property
        def next_step(self) -> int:
            raise NotImplementedError

        @property
        def size(self) -> int:
            raise NotImplementedError

        @property
        def blocks_in_use(self) -> tuple[int, int, int]:
            raise NotImplementedError

        @staticmethod
        def blocks_of_state(state: str) -> tuple[int, int, int]:
            raise NotImplementedError

else:
    _Reader = object


class Stepping(Closing, _Reader):
    """Steps, states, ranks and closing of a loader, on top of a reader of _core: see `over`."""

    _ring: Ring | None
    _rank: int
    _world: int
    _owner: int
    _closed: bool

    def _start(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._owner, self._closed = os.getpid(), False
        self._ring = None

    def __iter__(self) -> Iterator[Any]:
        """Continues at the current step. After the end it begins the next loop."""
        if self._ring is None:
            self.begin_loop()
        else:
            self._ring.begin(self, self.begin_loop)
        return self

    # `__next__` is the one of the reader: without Python code in between, a signal handler that
    # raises cannot lose a batch.

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """The number of batches in one loop, as set by `steps` or `epochs`."""
        if self.size == 0:
            raise TypeError("len: this loader does not end; pass steps= or epochs=")
        return self.size

    @property
    def step(self) -> int:
        """The step of the next batch."""
        return self.next_step if self._ring is None else self._ring.step(self)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world(self) -> int:
        return self._world

    def seek(self, step: int) -> None:
        """Makes the batch of `step` the next one, without reading the steps before it."""
        step = number("step", step, 0, what="seek")
        if self._ring is None:
            self.seek_step(step)
        else:
            self._ring.settle(lambda: self.seek_step(step))

    def state_dict(self) -> dict[str, Any]:
        """The position and the identity of the data: small, and fit for torch.save."""
        return {"evenkeel": 1, "state": self.state_at(self.step)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state` was saved, also with another world, batch size or prefetch.
        Raises ValueError, which names the difference, if the state belongs to other data, seed or
        order."""
        if not isinstance(state, Mapping) or not isinstance(state.get("state"), str):
            raise ValueError(f"load: this is not a state of a {type(self).__name__}")
        if self._ring is None:
            self.load(state["state"])
        else:
            self._ring.settle(lambda: self.load(state["state"]))

    def close(self) -> None:
        """Stops reading ahead and releases all memory. Any thread may call it: a thread that waits
        in `next` gets a ValueError."""
        if self._owner != os.getpid():
            return  # a child of fork has nothing to close
        self._closed = True
        self.close_reader()
        if self._ring is not None:
            self._ring.settle()


def over(mixin: type, reader: Any) -> Any:
    """The mixin with this reader as its only base: nanobind 2, the last for Python 3.9, allows only
    one. Methods of the mixin must not use super()."""
    members: dict[str, Any] = {}
    for base in reversed(mixin.__mro__[:-1]):
        members.update(vars(base))
    for own in ("__dict__", "__weakref__"):
        members.pop(own, None)
    return type(reader)(mixin.__name__, (reader,), members)


def whole(name: str, value: Any) -> int:
    """The number, also of NumPy's types; a TypeError that says which argument is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number; got {short(value)}") from None


def real(name: str, value: Any) -> float:
    """The number, also of NumPy's types; not a string of digits."""
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{name} must be a number; got {short(value)}")


def text(name: str, value: Any) -> str:
    """Only checks the type: the reader checks the word."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{name} must be a string; got {short(value)}")


def short(value: Any) -> str:
    """A value in an error: one line, not too long."""
    shown = " ".join(repr(value).split())
    return shown if len(shown) < 60 else f"{shown[:57]}..."


def number(name: str, value: int, least: int, end: int = 1 << 64, what: str = "loader") -> int:
    given = whole(f"{what}: {name}", value)
    if not least <= given < end:
        raise ValueError(f"{what}: {name} must be {least} or more, below {end:,}; got {given:,}")
    return given


def set_common(
    options: Any,
    *,
    batch_size: int,
    order: str,
    seed: int,
    rank: int,
    world: int,
    prefetch: int | None,
    steps: int | None,
    epochs: int | None,
    stride: int,
    phase: int,
) -> None:
    """Checks and sets the options that all loaders have."""
    options.batch_size = number("batch_size", batch_size, 1)
    options.order = text("loader: order", order)
    options.seed = number("seed", seed, 0)
    options.world = number("world", world, 1)
    options.rank = number("rank", rank, 0)
    if prefetch is not None:
        options.prefetch = number("prefetch", prefetch, 0, 1 << 32)
    options.steps = 0 if steps is None else number("steps", steps, 1)
    options.epochs = 0 if epochs is None else number("epochs", epochs, 1)
    options.stride = number("stride", stride, 1)
    options.phase = number("phase", phase, 0)
