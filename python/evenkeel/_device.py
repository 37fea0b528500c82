"""Batches on their way to a GPU: pinned memory, copied while the batch before is used."""

from __future__ import annotations

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


class Ring:
    """Pinned buffers that the loader fills in turn. A buffer is given back, to be filled anew, only
    when its copy is done; one batch is always on its way while the one before is used."""

    keep = 2  # buffers whose copies may still be under way

    def __init__(
        self, device: torch.device, shape: tuple[int, int], dtype: np.dtype[Any], prefetch: int
    ) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        self._buffers = [
            (
                torch.empty(shape, dtype=kind, pin_memory=True),
                torch.empty(shape, dtype=kind, pin_memory=True),
            )
            for _ in range(prefetch + 1 + self.keep)
        ]
        self.memory = [(flat_bytes(x.numpy()), flat_bytes(y.numpy())) for x, y in self._buffers]
        self._copied: list[torch.cuda.Event] = []  # of the last batches, oldest first
        self._ready: _Sent | None = None

    def next(self, reader: _core.BatchReader) -> tuple[Any, Any] | None:
        sent = self._ready or self._send(reader)
        if sent is None:
            return None
        self._ready = self._send(reader)  # on its way while this one is used
        current = torch.cuda.current_stream(self._device)
        current.wait_event(sent.copied)
        for tensor in (sent.x, sent.y):
            tensor.record_stream(current)
        return sent.x, sent.y

    def step(self, reader: _core.BatchReader) -> int:
        """Of the batch that `next` gives next, which the reader may have left behind."""
        return reader.step if self._ready is None else self._ready.step

    def _send(self, reader: _core.BatchReader) -> _Sent | None:
        # The reader takes back what is older than `keep` batches.
        while len(self._copied) > self.keep:
            self._copied.pop(0).synchronize()
        step = reader.step
        number = reader.next()
        if number < 0:
            return None
        with torch.cuda.stream(self._stream):
            x, y = (one.to(self._device, non_blocking=True) for one in self._buffers[number])
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        self._copied.append(copied)
        return _Sent(step, x, y, copied)

    def settle(self) -> None:
        """All copies done, none ahead: before the reader is sought or closed."""
        for copied in self._copied:
            copied.synchronize()
        self._copied.clear()
        self._ready = None
