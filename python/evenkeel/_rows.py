"""Batches of rows: from one array, or from several that belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Union

from evenkeel import _core
from evenkeel._array import Array
from evenkeel._blocks import InBlocks, whole_chunks
from evenkeel._mixture import MaxEpochs, Schedule, set_mixture, stages
from evenkeel._ragged import Csr, Form, Ragged
from evenkeel._ranks import rank_and_world
from evenkeel._stepping import number, over, set_common, short

Field = Union[Array, Ragged]
Fields = Union[Field, "tuple[Field, ...]", "Mapping[str, Field]"]
Data = Union[Fields, "Sequence[tuple[Fields, float]]"]


if TYPE_CHECKING:

    class _Base(InBlocks, _core.RowReader):
        pass

else:
    _Base = over(InBlocks, _core.RowReader)


class Loader(_Base):
    """Batches of rows, read ahead within the budget of the (first) array.

    `data` is an array from evenkeel.open, a tuple of arrays or a dict of them; a batch is then
    an array, a tuple of arrays or a dict of arrays. Arrays that belong together have the same
    number of rows. A list of pairs (data, weight) is a mixture of such data. Rows of different
    lengths and sparse matrices are passed as `evenkeel.ragged` and `evenkeel.csr`.

    Every batch is a pure function of the data, order, seed, step, rank and world: you can seek to
    it, resume on another number of ranks, and see which rows it has (`explain`). `order` is
    "shuffled" (each row once per epoch, exactly), "blocks" (each row once per epoch, at the speed
    of a scan), "sequential", or "random" (with replacement). For "blocks", `block` and `window` are
    rows, or bytes of all arrays together as text ("64KiB"); a window takes a quarter of the budget
    by default, and two are in memory; the sets of a mixture share that evenly. `streams` is a
    multiple of every `world` that will continue the run, 64 by default; a mixture takes this many
    rows of a set at a time, and has fewer by default. These are part of the state: a loader created
    without `block` and `window` takes them from the state. `rank` and `world` default to those of
    torch.distributed, then to the environment of torchrun, Slurm or Open MPI, then to one process.

    A loop is one epoch, and the next loop the next epoch; `epochs` makes a loop of several. With
    `steps` a loop ends after that many batches, and the next loop begins again at step 0, as
    validation needs it. "random" and mixtures have no epochs: without `steps` or `max_epochs` they
    do not end, and `len` is a TypeError. Rows at the end of an epoch that do not fill a step make a
    short batch, divided evenly among the ranks; `drop_last` leaves them out.

    `schedule` changes the weights of a mixture during training: {0: [3, 1], 200_000: [1, 3]} has
    weights 1 : 3 from step 200,000 on. Each set continues where it was, and shares are exact within
    each stage. `max_epochs` limits the epochs of all sets, or of each: [1, None]. `exhausted` says
    what happens when a set reaches the limit: "stop" ends the loader, "drop" gives its weight to
    the other sets, "repeat" starts the set again with its first epoch. With order="blocks", weights
    change and sets end between two turns of `streams` rows.

    Without `device` batches are ndarrays; with it, torch tensors on that device. Batches for a GPU
    are copied from pinned memory on their own stream while the previous batch is used. `transform`
    is called with each batch in the thread that requests it, and its result is returned. You may
    keep or change the arrays: a batch is in the memory into which it was read, and that memory is
    reused after you release it.

    Several threads may call `next` (each batch is returned once), `seek` and `close`. A child of
    fork needs its own loader.

    >>> import evenkeel, numpy
    >>> numpy.save("x.npy", numpy.arange(20).reshape(10, 2))
    >>> numpy.save("y.npy", numpy.arange(10) % 3)
    >>> x, y = evenkeel.open("x.npy", budget="16MiB"), evenkeel.open("y.npy", budget="16MiB")
    >>> loader = evenkeel.Loader({"x": x, "y": y}, batch_size=4, seed=1)
    >>> len(loader)
    3
    >>> for batch in loader:
    ...     print(batch["x"].shape, bool((batch["x"][:, 0] // 2 % 3 == batch["y"]).all()))
    (4, 2) True
    (4, 2) True
    (2, 2) True
    >>> saved = loader.state_dict()
    >>> expected = next(iter(loader))["y"]
    >>> loader.load_state_dict(saved)
    >>> bool((next(iter(loader))["y"] == expected).all())
    True
    >>> loader.close()
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
        device: Any = None,
        steps: int | None = None,
        epochs: int | None = None,
        schedule: Schedule | None = None,
        max_epochs: MaxEpochs | None = None,
        exhausted: str = "stop",
        drop_last: bool = False,
        block: int | str | None = None,
        window: int | str | None = None,
        streams: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        stride: int = 1,
        phase: int = 0,
    ) -> None:
        sets, keys = row_sets(data)
        self._start(*rank_and_world(rank, world))
        # Python's integer: products of NumPy's may overflow.
        batch_size = number("batch_size", batch_size, 1)
        self._batch_size, self._sets = batch_size, sets
        self._stages = [] if schedule is None else stages(schedule)
        options = _core.RowLoaderOptions()
        options.drop_last = bool(drop_last)
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
        first = sets[0][0][0]
        opened = first if isinstance(first, Array) else first._values
        self._row_bytes = sum(_row_bytes(field) for field in sets[0][0])
        blocks = self._choose_blocks(
            order,
            {"block": block, "window": window, "streams": streams},
            budget=first.budget,
            has_budget=opened._recipe[1] is not None,
            sample_bytes=self._row_bytes,
            batch_size=batch_size,
            samples=self._samples(),
            block=whole_chunks(opened._chunk_rows, self._row_bytes),
        )
        if blocks is not None:
            options.blocks = blocks
        if transform is not None and not callable(transform):
            raise TypeError(f"loader: transform must be a function; got {transform!r}")
        fields = sets[0][0]
        forms = [form for field in fields for form in _forms(field)]
        _require_same_forms(sets)
        memory: list[list[Any]] = []
        if device is not None:
            from evenkeel._device import ring_for, torch_dtype

            for dtype, _ in forms:
                torch_dtype(dtype)
            if any(isinstance(field, Csr) and len(_forms(field)) > 1 for field in fields):
                raise ValueError(
                    "loader: a SciPy sparse matrix cannot be copied to a device\n"
                    "hint: use csr(..., dense=True), or leave out device"
                )
            shapes = [((batch_size, *shape), dtype) for dtype, shape in forms]
            self._ring = ring_for(device, shapes, batch_size, prefetch)
            differ = any(isinstance(field, Ragged) and len(_forms(field)) > 1 for field in fields)
            if self._ring is not None and differ:
                raise ValueError(
                    f"loader: rows of different lengths cannot be copied to device {device!r}\n"
                    'hint: use device="cpu" and copy what you need in transform'
                )
        if self._ring is not None:
            options.keep = self._ring.keep
            memory = self._ring.memory
        super().__init__(
            [([_field(one) for one in arrays], weight) for arrays, weight in sets],
            options,
            forms,
            [(len(_forms(field)), _combine(field)) for field in fields],
            keys,
            memory,
        )
        if self._ring is not None:
            self.flat = True
            ring = self._ring

            def deliver(reader: _core.RowReader) -> Any:
                tensors = ring.next(reader)
                return None if tensors is None else reader.structured(list(tensors))

            self.deliver = deliver
        elif device is not None:
            from evenkeel._device import as_tensor

            self.convert = as_tensor
        self.transform = transform

    def _samples(self) -> list[int]:
        return [len(arrays[0]) for arrays, _ in self._sets]

    def explain(self, step: int) -> list[dict[str, Any]]:
        """The set and the row number of each row in the batch of a step. Reads nothing."""
        return self.explained(number("step", step, 0, what="explain"))

    @property
    def epoch(self) -> int:
        """The epoch of the next batch; 0 for mixtures and for an order without epochs."""
        return self.epoch_at(self.step)

    def describe(self) -> str:
        """Describes what is read, in which order, and how much memory that takes, in several
        lines."""
        if self._closed:
            return "loader: closed"
        size = _core.format_size
        lines = [repr(self)[1:-1].replace("evenkeel.Loader", "loader")]
        for arrays, weight in self._sets:
            scheduled = self._stages and self._stages[0][0] == 0
            share = f"weight {weight:g}: " if len(self._sets) > 1 and not scheduled else ""
            lines += [f"{share}{array!r}" for array in arrays]
        for step, weights in self._stages:
            lines.append(f"from step {step:,}: weights {', '.join(f'{w:g}' for w in weights)}")
        budget = self._sets[0][0][0].budget
        lines += self._describe_blocks(self._samples(), self._batch_size, "rows")
        lines += [
            f"batches: {self._batch_size:,} rows of {self._row_bytes:,} bytes, {self.buffers} in"
            " memory",
            f"loop: {f'{self.size:,} batches' if self.size else 'does not end'}",
            f"budget: {budget.describe()}, {size(budget.in_use)} in use",
        ]
        return "\n".join(lines)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Loader stays in its process: send its arrays and state_dict() instead, or use "
            "RowIterableDataset"
        )

    def __repr__(self) -> str:
        if self._closed:
            return "<evenkeel.Loader: closed>"
        rows = sum(self._samples())
        return (
            f"<evenkeel.Loader: {self._batch_size} of {rows:,} rows, {self._order}, "
            f"rank {self._rank} of {self._world}, step {self.step}>"
        )

    def _repr_html_(self) -> str:
        from evenkeel import _html

        return _html.row_loader(self)


def row_sets(
    data: Data, what: str = "loader"
) -> tuple[list[tuple[tuple[Field, ...], float]], object]:
    """Sets of arrays with weights, and the form of batches: None (an array), a tuple, or a list of
    the keys of dicts."""
    if isinstance(data, list):
        if not data:
            raise ValueError(f"{what}: the mixture is empty\nhint: give pairs of (data, weight)")
        sets: list[tuple[tuple[Field, ...], float]] = []
        first: object = None
        for one in data:
            if not (isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], Real)):
                raise TypeError(
                    f"{what}: a list is a mixture of pairs (data, weight); it has {short(one)}\n"
                    "hint: give arrays that belong together as a tuple or as a dict"
                )
            arrays, keys = _fields(one[0], what)
            if sets and keys != first:
                raise ValueError(
                    f"{what}: the sets of a mixture must have the same fields: {_names(first)} and"
                    f" {_names(keys)}"
                )
            first = keys
            sets.append((arrays, float(one[1])))
        return sets, first
    arrays, keys = _fields(data, what)
    return [(arrays, 1.0)], keys


def _fields(data: Any, what: str) -> tuple[tuple[Field, ...], object]:
    keys: object
    if isinstance(data, Mapping):
        keys, arrays = list(data), tuple(data.values())
    elif isinstance(data, tuple):
        keys, arrays = (), data
    else:
        keys, arrays = None, (data,)
    if not arrays:
        raise ValueError(f"{what}: no arrays were given")
    for array in arrays:
        if isinstance(array, Ragged):
            continue
        if not isinstance(array, Array):
            raise TypeError(
                f"{what}: batches are read from arrays of evenkeel.open; got {short(array)}"
            )
        if not array.shape:
            raise TypeError(f"{what}: {array!r} has no rows")
    return arrays, keys


def _field(field: Field) -> _core.LoaderField:
    return _core.LoaderField(field._reader) if isinstance(field, Array) else field._field()


def _forms(field: Field) -> list[Form]:
    return [(field.dtype, field.shape[1:])] if isinstance(field, Array) else field._forms()


def _require_same_forms(sets: list[tuple[tuple[Field, ...], float]]) -> None:
    """Batches of a mixture have the form of its first set."""
    first = sets[0][0]
    for fields, _ in sets[1:]:
        for mine, other in zip(first, fields):
            rows = isinstance(mine, Array) and isinstance(other, Array)  # others are not mixed
            if rows and _forms(mine) != _forms(other):
                raise ValueError(
                    "loader: the sets of a mixture must have the same fields, of one dtype and row"
                    f" shape: {mine!r} and {other!r}"
                )


def _combine(field: Field) -> Callable[..., Any] | None:
    return None if isinstance(field, Array) else field._combine()


def _row_bytes(field: Field) -> int:
    """For rows of different lengths, the mean."""
    if isinstance(field, Array):
        return field._row_bytes
    values = sum(len(array) * array._row_bytes for array in field.arrays[:-1])
    return 2 * field._offsets._row_bytes + values // max(1, len(field))


def _names(keys: object) -> str:
    if isinstance(keys, list):
        return ", ".join(map(repr, keys))
    return "an array alone" if keys is None else "a tuple"
