"""Copies batches to a GPU from pinned memory, while the previous batch is used."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from evenkeel import _core

Field = tuple[tuple[int, ...], "np.dtype[Any]"]  # the largest shape in a batch


def ring_for(
    device: Any, fields: list[Field], batch_size: int, prefetch: int | None
) -> Ring | None:
    """None if batches need no copy: on the CPU."""
    where = torch.device(device)
    if where.type == "cpu":
        return None
    if where.type != "cuda":
        raise ValueError(
            f"loader: batches go to the CPU or to a GPU of CUDA; got device {device!r}\n"
            'hint: use device="cpu" and move the tensors in transform'
        )
    if not torch.cuda.is_available():
        raise ValueError(f"loader: device {device!r}, but torch sees no GPU here")
    if (
        where.index is None
    ):  # the device that is current now, also for threads that have another one
        where = torch.device("cuda", torch.cuda.current_device())
    return Ring(where, fields, batch_size, prefetch)


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """The dtype of tensors that hold such numbers; TypeError if torch has none."""
    if dtype.name == "bfloat16":
        return torch.bfloat16
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError):
        raise TypeError(
            f"loader: torch has no tensors of {dtype}\nhint: leave out device, and convert batches"
        ) from None


class _Sent(NamedTuple):
    step: int
    tensors: tuple[Any, ...]
    copied: torch.cuda.Event
    pinned: Any  # the arrays that are copied; the loader uses their memory again later


class Ring:
    """Pinned buffers that the loader fills. A buffer returns to the loader when its copy is done.
    One batch is always being copied while the previous one is used. Several threads may use the
    ring."""

    keep = 2  # buffers whose copies may still be in progress

    def __init__(
        self, device: torch.device, fields: list[Field], batch_size: int, prefetch: int | None
    ) -> None:
        if prefetch is None:
            nbytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in fields)
            prefetch = _core.usual_prefetch(batch_size, nbytes)
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        batches = [
            [
                torch.empty(shape, dtype=torch_dtype(dtype), pin_memory=True)
                for shape, dtype in fields
            ]
            for _ in range(prefetch + 1 + self.keep)
        ]
        # A batch is found by its address: the tensor knows that it is pinned.
        self._pinned = {tensor.data_ptr(): tensor for batch in batches for tensor in batch}
        self.memory = [[_flat(tensor) for tensor in batch] for batch in batches]
        # A signal handler may seek or close while its thread is in here.
        self._lock = threading.RLock()
        self._copying: deque[_Sent] = deque()  # their buffers are in use; oldest first
        # The batch that `next` returns next, and the one after it. A batch stays here until it is
        # returned, because a signal handler may raise anywhere.
        self._ready: _Sent | None = None
        self._following: _Sent | None = None
        self._given: _Sent | None = None  # to the main thread, last

    def next(self, reader: Any) -> tuple[Any, ...] | None:
        with self._lock:
            again = self._undelivered(reader)
            if again and not (self._ready and self._ready.tensors is again.tensors):
                return again.tensors
            while self._ready is None:
                if not self._send(reader):
                    return None
            sent = self._ready
            current = torch.cuda.current_stream(self._device)
            current.wait_event(sent.copied)
            for tensor in sent.tensors:
                if isinstance(tensor, torch.Tensor):
                    tensor.record_stream(current)
            if self._ready is sent and self._following is None:
                self._send(reader)
            # Signal handlers run in the main thread. If one raises from here on, before the batch
            # has arrived, the batch is returned again.
            if threading.current_thread() is threading.main_thread():
                self._given = sent._replace(pinned=None)
                reader.begin_delivery()
            if self._ready is sent:  # otherwise a signal handler has moved the reader
                self._ready, self._following = self._following, None
            return sent.tensors

    def _undelivered(self, reader: Any) -> _Sent | None:
        """The last batch that was returned to this thread, if it did not arrive."""
        return self._given if self._given is not None and reader.delivering_here else None

    def step(self, reader: Any) -> int:
        """The step of the batch that `next` returns next. The reader may be ahead of it."""
        ready = self._undelivered(reader) or self._ready
        if ready is not None:
            return ready.step
        next_step: int = reader.next_step
        return next_step

    def _send(self, reader: Any) -> bool:
        """Begins to copy the reader's next batch. Returns False if there is none."""
        while len(self._copying) >= self.keep:
            oldest = self._copying[0]
            oldest.copied.synchronize()
            if self._copying and self._copying[0] is oldest:
                self._copying.popleft()
        batch = reader.take()
        if batch is None:
            return False
        try:
            step: int = reader.taken_step
            with torch.cuda.stream(self._stream):
                # Numbers about the batch stay where they are.
                tensors = tuple(
                    self._rows_of(one) if isinstance(one, np.ndarray) else one for one in batch
                )
                copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
                copied.record(self._stream)
            sent = _Sent(step, tensors, copied, batch)
            self._copying.append(sent)
        except BaseException:
            reader.put_back(batch)
            raise
        if not reader.taken_stands:  # a signal handler has moved the reader
            return True
        if self._ready is None:
            self._ready = sent
        else:
            self._following = sent
        return True

    def _rows_of(self, array: Any) -> torch.Tensor:
        """Begins to copy a field of a batch; the last one of an epoch may have fewer rows."""
        if len(array) == 0:
            return torch.empty(array.shape, dtype=torch_dtype(array.dtype), device=self._device)
        pinned = self._pinned[array.ctypes.data]
        return pinned[: len(array)].to(self._device, non_blocking=True)

    def begin(self, reader: Any, begin_loop: Callable[[], None]) -> None:
        """Begins a loop, or continues one that was left before its last batch."""
        with self._lock:
            if self._ready is None and self._undelivered(reader) is None:
                self._end_copies()
                begin_loop()

    def settle(self, then: Callable[[], None] | None = None) -> None:
        """Waits for all copies and forgets the batches that were sent; then calls `then`."""
        with self._lock:
            self._end_copies()
            self._ready = self._following = self._given = None
            if then is not None:
                then()

    def _end_copies(self) -> None:
        """Returns the buffers to the reader, which needs all of them before it seeks."""
        for sent in self._copying:
            sent.copied.synchronize()
        self._copying.clear()


def _flat(tensor: torch.Tensor) -> Any:
    """Its memory as bytes."""
    return tensor.view(-1).view(torch.uint8).numpy()


def as_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A batch on the CPU, in the memory in which it lies."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
