"""Batches on their way to a GPU: pinned memory, copied while the batch before is used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from evenkeel import _core
from evenkeel._tokens import flat_bytes


def ring_for(
    device: Any, shape: tuple[int, int], dtype: np.dtype[Any], prefetch: int
) -> Ring | None:
    """None where batches need no copy: on the CPU."""
    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"loader: device {device!r}, but torch sees no GPU here")
    return None if where.type == "cpu" else Ring(where, shape, dtype, prefetch)


class _Sent(NamedTuple):
    step: int
    x: torch.Tensor
    y: torch.Tensor
    copied: torch.cuda.Event
    pinned: tuple[Any, Any]  # the arrays that are copied; the loader uses their memory again later


class Ring:
    """Pinned buffers that the loader fills. A buffer goes back to the loader when its copy is done;
    one batch is always being copied while the one before is used. Several threads may use it."""

    keep = 2  # buffers whose copies may still be under way

    def __init__(
        self, device: torch.device, shape: tuple[int, int], dtype: np.dtype[Any], prefetch: int
    ) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        pairs = [
            tuple(torch.empty(shape, dtype=kind, pin_memory=True) for _ in range(2))
            for _ in range(prefetch + 1 + self.keep)
        ]
        # A batch is found by its address: the tensor knows that it is pinned.
        self._pinned = {tensor.data_ptr(): tensor for pair in pairs for tensor in pair}
        self.memory = [(flat_bytes(x.numpy()), flat_bytes(y.numpy())) for x, y in pairs]
        self._lock = threading.Lock()
        self._copying: deque[_Sent] = deque()  # their buffers are in use; oldest first
        # The batch that `next` gives next, and the one after it. A batch stays here until it is
        # given: a signal handler may raise anywhere.
        self._ready: _Sent | None = None
        self._following: _Sent | None = None

    def next(self, reader: _core.BatchReader) -> tuple[Any, Any] | None:
        with self._lock:
            if self._ready is None:
                self._send(reader)
            sent = self._ready
            if sent is None:
                return None
            current = torch.cuda.current_stream(self._device)
            current.wait_event(sent.copied)
            for tensor in (sent.x, sent.y):
                tensor.record_stream(current)
            if self._following is None:
                self._send(reader)
            self._ready, self._following = self._following, None
            return sent.x, sent.y

    def step(self, reader: _core.BatchReader) -> int:
        """Of the batch that `next` gives next, which the reader may have left behind."""
        ready = self._ready
        return reader.next_step if ready is None else ready.step

    def _send(self, reader: _core.BatchReader) -> None:
        """Begins to copy the reader's next batch, if there is one."""
        while len(self._copying) >= self.keep:
            self._copying[0].copied.synchronize()
            self._copying.popleft()
        step = reader.next_step
        batch = reader.take()
        if batch is None:
            return
        try:
            with torch.cuda.stream(self._stream):
                x, y = (
                    self._pinned[array.ctypes.data].to(self._device, non_blocking=True)
                    for array in batch
                )
                copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
                copied.record(self._stream)
            sent = _Sent(step, x, y, copied, batch)
            self._copying.append(sent)
        except BaseException:
            reader.put_back(batch)
            raise
        if self._ready is None:
            self._ready = sent
        else:
            self._following = sent

    def settle(self, then: Callable[[], None] | None = None) -> None:
        """Waits for all copies and forgets the batches that were sent; then calls `then`."""
        with self._lock:
            for sent in self._copying:
                sent.copied.synchronize()
            self._copying.clear()
            self._ready = self._following = None
            if then is not None:
                then()
