"""Loads tensors through buffers: one is copied while the next ones are read."""

from __future__ import annotations

import concurrent.futures
import contextlib
import mmap
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from evenkeel import _core
from evenkeel._files import is_url
from evenkeel._load import GROUP_RUNS, NO_LIMIT, OWN_PAGES, Runs, Wanted, flat_bytes

# From a disk: 16 MiB in huge pages are filled again and again faster than 128 MiB in turn. Half of
# them are read into at a time. The others are free when these are full, so the disk does not wait
# until they have been copied.
_BUFFER_BYTES = 2 << 20
# A server answers later than a disk, so more must be in flight.
_REMOTE_BUFFER_BYTES = 16 << 20
_MOST_BUFFERS = 8
_LEAST_BUFFERS = 2
# To the CPU. Two threads copy as fast as the disk reads. All threads of torch were no faster, and
# took six times the processor time.
_COPYING_THREADS = 2
_PAGE = mmap.PAGESIZE
# Requested bytes this close together are read in one request.
_GAP = 1 << 20


class _Copy(NamedTuple):
    """Bytes of a buffer, and where they go."""

    name: str
    first: int  # byte of the tensor
    begin: int  # byte of the buffer
    length: int


def read_through_buffers(
    weights: Any, wanted: list[Wanted], result: dict[str, torch.Tensor]
) -> None:
    """Fills buffers in turn and copies each while the next ones are read. They are pinned if one of
    the tensors is on a GPU."""
    wanted = [tensor for tensor in wanted if tensor.bytes > 0]
    if not wanted:
        return
    remote = any(is_url(path) for path in weights.paths)
    size, number = _buffers(weights.budget, _REMOTE_BUFFER_BYTES if remote else _BUFFER_BYTES)
    to_gpu = any(result[tensor.name].device.type != "cpu" for tensor in wanted)
    share = weights.reserve(size * number, "pinned buffers" if to_gpu else "buffers of tensors")
    pinned = None
    try:
        # In one piece, so that all of it is in huge pages.
        if to_gpu:
            pinned = _Pinned(size * number)
            region = pinned.bytes
        else:
            region = torch.from_numpy(_core.allocate(0, size * number, _PAGE))
        buffers = [region[i * size : (i + 1) * size] for i in range(number)]
        runs, copies = _fill_plan(wanted, buffers, size, weights.alignment)
        most_in_flight = NO_LIMIT if remote else size * number // 2
        copying = _CopyingThreads({result[tensor.name].device for tensor in wanted})
        reader = runs.reader(weights, number, most_in_flight)
        _copy_all(reader, copying, copies, buffers, result)
        del buffers, region
    finally:
        if pinned is not None:
            pinned.release()
        share.release()


class _Pinned:
    """Memory that a GPU can read directly. It is not allocated by torch, which keeps what it
    pins."""

    def __init__(self, size: int) -> None:
        self.bytes = torch.from_numpy(_core.allocate(0, size, _PAGE))
        portable = 1  # cudaHostRegisterPortable: for every GPU
        self._cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        error = self._cudart.cudaHostRegister(self.bytes.data_ptr(), size, portable)
        self._registered = int(error) == 0
        if not self._registered:
            with contextlib.suppress(
                RuntimeError
            ):  # CUDA reports the failure again to the next kernel
                torch.zeros(1, device="cuda")
            self.bytes = torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def release(self) -> None:
        """No copy from it may be in progress."""
        if self._registered:
            self._cudart.cudaHostUnregister(self.bytes.data_ptr())
            self._registered = False
        self.bytes = torch.empty(0, dtype=torch.uint8)


def _buffers(budget: Any, size: int) -> tuple[int, int]:
    """Size and number of the buffers: at most half of what the budget has left."""
    left = budget.left // 2
    while size > OWN_PAGES and left // size <= _LEAST_BUFFERS:
        size //= 2
    return size, max(_LEAST_BUFFERS, min(_MOST_BUFFERS, left // size))


def _fill_plan(
    wanted: list[Wanted], buffers: list[torch.Tensor], size: int, alignment: int
) -> tuple[Runs, list[list[_Copy]]]:
    """Plans what each buffer is filled with, and what is copied from it. An aligned read fills a
    buffer from its first byte, which is the first of a page: disks are slower within pages."""
    runs = Runs()
    copies: list[list[_Copy]] = []

    addresses = [int(buffer.data_ptr()) for buffer in buffers]

    def address() -> int:
        return addresses[len(copies) % len(buffers)]

    def room(begin: int) -> int:
        return size - begin % alignment

    # Runs of a share that do not fit a buffer are read in parts, like tensors.
    together = [t for t in wanted if t.runs > 1 and t.length <= size]
    apart = [
        (t._replace(offset=t.offset + run * t.stride, runs=1, stride=0), run * t.length)
        for t in wanted
        if t.runs == 1 or t.length > size
        for run in range(t.runs)
    ]
    apart.sort(key=lambda one: (one[0].file, one[0].offset))
    # A run, its first byte within the tensor, the first byte of it here, bytes; close together.
    span: list[tuple[Wanted, int, int, int]] = []

    def bounds() -> tuple[int, int]:
        (first, _, at, _), (last, _, last_at, count) = span[0], span[-1]
        return first.offset + at, last.offset + last_at + count

    def end_span() -> None:
        if not span:
            return
        begin, end = bounds()
        lead = begin % alignment
        runs.add_bytes(span[0][0].file, begin, end - begin, address() + lead)
        runs.end_group(roomy=True)
        copies.append(
            [_Copy(t.name, base + at, lead + t.offset + at - begin, n) for t, base, at, n in span]
        )
        span.clear()

    for tensor, base in apart:
        at = 0
        while at < tensor.length:
            if span:
                begin, end = bounds()
                place = tensor.offset + at
                far = place - end > _GAP or place - begin >= room(begin)
                if far or span[0][0].file != tensor.file:
                    end_span()
            begin = bounds()[0] if span else tensor.offset + at
            now = min(tensor.length - at, room(begin) - (tensor.offset + at - begin))
            span.append((tensor, base, at, now))
            at += now
    end_span()
    for tensor in together:
        # Rows of the share, contiguous in the buffer.
        first = 0
        rows = min(size // tensor.length, GROUP_RUNS)
        while first < tensor.runs:
            now = min(rows, tensor.runs - first)
            runs.add(tensor, address(), first, now)
            runs.end_group()
            copies.append([_Copy(tensor.name, first * tensor.length, 0, now * tensor.length)])
            first += now
    return runs, copies


def _copy_all(
    reader: Any,
    copying: _CopyingThreads,
    copies: list[list[_Copy]],
    buffers: list[torch.Tensor],
    result: dict[str, torch.Tensor],
) -> None:
    names = {copy.name for group in copies for copy in group}
    flat = {name: flat_bytes(result[name]) for name in names}
    returned = _InOrder(reader.release)
    under_way: deque[concurrent.futures.Future[None]] = deque()

    def copy(number: int) -> None:
        copying.copy(copies[number], buffers[number % len(buffers)], flat)
        returned.end(number)

    try:
        for number in range(len(copies)):
            while under_way and (under_way[0].done() or len(under_way) == len(buffers)):
                under_way.popleft().result()  # raises if it failed
            reader.next()
            under_way.append(copying.threads.submit(copy, number))
        for last in under_way:
            last.result()
        reader.next()  # raises if a file changed after the last group
    finally:
        reader.close()
        copying.close()


class _InOrder:
    """Returns buffers in the order in which they are filled, whichever copy ends first, and as soon
    as it ends: nothing is read into a buffer that is not returned."""

    def __init__(self, release: Callable[[], object]) -> None:
        self._release = release
        self._lock = threading.Lock()
        self._ended: set[int] = set()
        self._next = 0

    def end(self, number: int) -> None:
        with self._lock:
            self._ended.add(number)
            while self._next in self._ended:
                self._ended.remove(self._next)
                self._next += 1
                self._release()


class _CopyingThreads:
    """Threads that copy out of buffers. Each has its own stream for each GPU.
    `devices` are all that are copied to, each once."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        gpus = [device for device in devices if device.type != "cpu"]
        # The memory of the tensors may be in use by work that was queued before.
        before = [torch.cuda.current_stream(gpu).record_event() for gpu in gpus]
        self._streams = [
            {gpu: torch.cuda.Stream(gpu) for gpu in gpus}  # type: ignore[no-untyped-call]
            for _ in range(_COPYING_THREADS)
        ]
        for streams in self._streams:
            for stream in streams.values():
                for event in before:
                    stream.wait_event(event)
        self._not_taken = list(self._streams)
        self._of_thread = threading.local()
        self.threads = concurrent.futures.ThreadPoolExecutor(
            _COPYING_THREADS, initializer=self._begin
        )

    def _begin(self) -> None:
        self._of_thread.streams = self._not_taken.pop()
        for gpu, stream in self._of_thread.streams.items():
            with torch.cuda.device(gpu):
                torch.cuda.set_stream(stream)

    def copy(
        self, group: list[_Copy], buffer: torch.Tensor, flat: dict[str, torch.Tensor]
    ) -> None:
        """Returns when the bytes are in their tensors."""
        used = set()
        # The tensors may have been created in this mode, which threads do not inherit.
        with torch.inference_mode():
            for copy in group:
                target = flat[copy.name][copy.first : copy.first + copy.length]
                source = buffer[copy.begin : copy.begin + copy.length]
                if target.device.type == "cpu":
                    np.copyto(target.numpy(), source.numpy())  # without the GIL
                else:
                    target.copy_(source, non_blocking=True)
                    used.add(target.device)
        for gpu in used:
            self._of_thread.streams[gpu].synchronize()

    def close(self) -> None:
        self.threads.shutdown(cancel_futures=True)
        for streams in self._streams:
            for stream in streams.values():  # after an error, a copy may be under way
                stream.synchronize()
