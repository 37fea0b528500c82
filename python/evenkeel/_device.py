"""Batches on their way to a GPU: pinned memory, copied while the batch before is used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

Field = tuple[tuple[int, ...], "np.dtype[Any]"]  # the largest shape that a batch has of it


def ring_for(device: Any, fields: list[Field], prefetch: int) -> Ring | None:
    """None where batches need no copy: on the CPU."""
    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"loader: device {device!r}, but torch sees no GPU here")
    return None if where.type == "cpu" else Ring(where, fields, prefetch)


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Of tensors that hold such numbers; TypeError where torch has none."""
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
    tensors: tuple[torch.Tensor, ...]
    copied: torch.cuda.Event
    pinned: Any  # the arrays that are copied; the loader uses their memory again later


class Ring:
    """Pinned buffers that the loader fills. A buffer goes back to the loader when its copy is done;
    one batch is always being copied while the one before is used. Several threads may use it."""

    keep = 2  # buffers whose copies may still be under way

    def __init__(self, device: torch.device, fields: list[Field], prefetch: int) -> None:
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
        self._lock = threading.Lock()
        self._copying: deque[_Sent] = deque()  # their buffers are in use; oldest first
        # The batch that `next` gives next, and the one after it. A batch stays here until it is
        # given: a signal handler may raise anywhere.
        self._ready: _Sent | None = None
        self._following: _Sent | None = None

    def next(self, reader: Any) -> tuple[Any, ...] | None:
        with self._lock:
            if self._ready is None:
                self._send(reader)
            sent = self._ready
            if sent is None:
                return None
            current = torch.cuda.current_stream(self._device)
            current.wait_event(sent.copied)
            for tensor in sent.tensors:
                tensor.record_stream(current)
            if self._following is None:
                self._send(reader)
            self._ready, self._following = self._following, None
            return sent.tensors

    def step(self, reader: Any) -> int:
        """Of the batch that `next` gives next, which the reader may have left behind."""
        ready = self._ready
        if ready is not None:
            return ready.step
        next_step: int = reader.next_step
        return next_step

    def _send(self, reader: Any) -> None:
        """Begins to copy the reader's next batch, if there is one."""
        while len(self._copying) >= self.keep:
            self._copying[0].copied.synchronize()
            self._copying.popleft()
        step: int = reader.next_step
        batch = reader.take()
        if batch is None:
            return
        try:
            with torch.cuda.stream(self._stream):
                tensors = tuple(self._rows_of(array) for array in batch)
                copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
                copied.record(self._stream)
            sent = _Sent(step, tensors, copied, batch)
            self._copying.append(sent)
        except BaseException:
            reader.put_back(batch)
            raise
        if self._ready is None:
            self._ready = sent
        else:
            self._following = sent

    def _rows_of(self, array: Any) -> torch.Tensor:
        """Begins to copy a field of a batch; the last one of an epoch may have fewer rows."""
        if len(array) == 0:
            return torch.empty(array.shape, dtype=torch_dtype(array.dtype), device=self._device)
        pinned = self._pinned[array.ctypes.data]
        return pinned[: len(array)].to(self._device, non_blocking=True)

    def settle(self, then: Callable[[], None] | None = None) -> None:
        """Waits for all copies and forgets the batches that were sent; then calls `then`."""
        with self._lock:
            for sent in self._copying:
                sent.copied.synchronize()
            self._copying.clear()
            self._ready = self._following = None
            if then is not None:
                then()


def _flat(tensor: torch.Tensor) -> Any:
    """Its memory as bytes."""
    return tensor.view(-1).view(torch.uint8).numpy()


def as_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A batch on the CPU, in the memory in which it lies."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
