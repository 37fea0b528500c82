"""Loads tensors through buffers: one is copied while the next ones are read."""

from __future__ import annotations

import concurrent.futures
import contextlib
import mmap
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from evenkeel import _core
from evenkeel._files import is_url
from evenkeel._load import GROUP_RUNS, OWN_PAGES, Runs, Wanted, flat_bytes

# From a disk: 16 MiB in huge pages are filled again and again faster than 128 MiB in turn.
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
            region = torch.from_numpy(_core.allocate(0, size * number))
        buffers = [region[i * size : (i + 1) * size] for i in range(number)]
        runs, copies = _fill_plan(wanted, buffers, size)
        _copy_all(runs.reader(weights, number), copies, buffers, result)
        del buffers, region
    finally:
        if pinned is not None:
            pinned.release()
        share.release()


class _Pinned:
    """Memory that a GPU can read directly. It is not allocated by torch, which keeps what it
    pins."""

    def __init__(self, size: int) -> None:
        self.bytes = torch.from_numpy(_core.allocate(0, size))
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
    wanted: list[Wanted], buffers: list[torch.Tensor], size: int
) -> tuple[Runs, list[list[_Copy]]]:
    """Plans what each buffer is filled with, and what is copied from it."""
    runs = Runs()
    copies: list[list[_Copy]] = []

    def address() -> int:
        return int(buffers[len(copies) % len(buffers)].data_ptr())

    room = size - 2 * _PAGE
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
        lead = begin % _PAGE
        one = span[0][0]._replace(offset=begin, length=end - begin, runs=1, stride=0)
        runs.add(one, address() + lead)
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
                if span[0][0].file != tensor.file or place - end > _GAP or place - begin >= room:
                    end_span()
            begin = bounds()[0] if span else tensor.offset + at
            now = min(tensor.length - at, room - (tensor.offset + at - begin))
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
    copies: list[list[_Copy]],
    buffers: list[torch.Tensor],
    result: dict[str, torch.Tensor],
) -> None:
    streams: dict[torch.device, torch.cuda.Stream] = {}
    flat = {name: flat_bytes(result[name]) for group in copies for name, *_ in group}
    # Of each buffer that is being copied, calls that return when a part of it has been.
    under_way: deque[list[Callable[[], object]]] = deque()
    most_under_way = min(_COPYING_THREADS, len(buffers) - 1)
    # Its threads are started when there is something to copy to the CPU.
    threads = concurrent.futures.ThreadPoolExecutor(_COPYING_THREADS)
    try:
        for number, group in enumerate(copies):
            reader.next()
            buffer = buffers[number % len(buffers)]
            to_cpu = []
            used = set()
            for copy in group:
                target = flat[copy.name][copy.first : copy.first + copy.length]
                source = buffer[copy.begin : copy.begin + copy.length]
                if target.device.type == "cpu":
                    to_cpu.append((target.numpy(), source.numpy()))
                    continue
                stream = streams.get(target.device)
                if stream is None:
                    stream = torch.cuda.Stream(target.device)  # type: ignore[no-untyped-call]
                    # The memory may be in use by work that was queued before.
                    stream.wait_stream(torch.cuda.current_stream(target.device))
                    streams[target.device] = stream
                with torch.cuda.stream(stream):
                    target.copy_(source, non_blocking=True)
                used.add(stream)
            ends: list[Callable[[], object]] = []
            if to_cpu:
                ends.append(threads.submit(_copy_to_cpu, to_cpu).result)
            for stream in used:
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(stream)
                ends.append(event.synchronize)
            under_way.append(ends)
            # Buffers are returned in order: one behind a copy in progress waits, too.
            if len(under_way) > most_under_way:
                for end in under_way.popleft():
                    end()
                reader.release()
        for ends in under_way:
            for end in ends:
                end()
        reader.next()  # raises if a file changed after the last group
    finally:
        reader.close()
        threads.shutdown()
        for device, stream in streams.items():
            stream.synchronize()
            torch.cuda.current_stream(device).wait_stream(stream)


def _copy_to_cpu(copies: list[tuple[Any, Any]]) -> None:
    for target, source in copies:
        np.copyto(target, source)  # without the GIL
