"""Loads tensors into torch: what to read, and where to put it. _load_buffers copies through
buffers."""

from __future__ import annotations

import fnmatch
import math
import operator
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from evenkeel import _core
from evenkeel._files import is_url
from evenkeel._weights import ML_DTYPES, NUMPY_TYPES

# A tensor of at least this size has its own pages and is read in place.
OWN_PAGES = 1 << 20
# Bytes that are read together: enough to keep the disk busy, few enough to stop soon after Ctrl-C.
GROUP_BYTES = 16 << 20
GROUP_RUNS = 4096
NO_LIMIT = 2**64 - 1
# With this many processors, large tensors on the CPU also go through a few buffers. The virtual
# disk of a machine with 16 processors filled buffers 1.5 times as fast as memory of the size of the
# tensors, and two threads copy faster than it reads. With 2 processors, in place was faster.
COPYING_PROCESSORS = 8
LEAST_FOR_BUFFERS = 8 << 20  # a smaller budget has no room for buffers

_TORCH = {**NUMPY_TYPES, **ML_DTYPES, "F4": "float4_e2m1fn_x2"}


class Wanted(NamedTuple):
    """A tensor, or a share of one: `runs` runs of `length` bytes, `stride` apart."""

    name: str
    type: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    file: int
    offset: int
    length: int
    runs: int = 1
    stride: int = 0

    @property
    def bytes(self) -> int:
        return self.length * self.runs


def load(
    weights: Any,
    chosen: list[Any],
    device: Any,
    slices: Mapping[str, tuple[int, int, int]],
    into: Mapping[str, torch.Tensor] | None,
    format: str,
) -> dict[str, torch.Tensor]:
    if into is not None and not isinstance(into, Mapping):
        raise TypeError(
            f"load: into must be a dict of names and tensors, not {type(into).__name__}\n"
            "hint: of a module, pass model.state_dict()"
        )
    _check_slices(slices)
    wanted = [_wanted(tensor, slices, format) for tensor in chosen]
    names = [tensor.name for tensor in chosen]
    for pattern in slices:
        if not fnmatch.filter(names, pattern):
            raise KeyError(f"load: no tensor matches {pattern!r} of slice")
    if into is not None:
        wanted = [tensor for tensor in wanted if tensor.name in into]
        targets = {tensor.name: _checked(into[tensor.name], tensor) for tensor in wanted}
        missing = [name for name in into if name not in targets]
        if missing:
            raise KeyError(
                f"load: {len(missing):,} of the {len(into):,} tensors of `into` are not in the"
                f" files, among them {missing[0]!r}"
            )
    else:
        targets = {}
    devices = {tensor.name: _device_of(tensor.name, device) for tensor in wanted}
    in_place: list[Wanted] = []
    through: list[Wanted] = []
    copying = _copying_pays(weights)
    for tensor in wanted:
        where = targets[tensor.name].device if into is not None else devices[tensor.name]
        large = copying and tensor.bytes >= OWN_PAGES
        (in_place if where.type == "cpu" and not large else through).append(tensor)
    result = dict(targets)
    if into is None:
        for tensor in wanted:
            where = devices[tensor.name]
            result[tensor.name] = (
                _on_cpu(tensor, weights.alignment)
                if where.type == "cpu"
                else torch.empty(tensor.shape, dtype=tensor.dtype, device=where)
            )
    _read_in_place(weights, in_place, result, into is None)
    if through:
        from evenkeel._load_buffers import read_through_buffers

        read_through_buffers(weights, through, result)
    return result


# --- what is wanted


def _check_slices(slices: Any) -> None:
    shares: list[tuple[Any, Any]] = [(slices, None)]
    if isinstance(slices, Mapping):
        shares = list(slices.items())
    for pattern, share in shares:
        three = list(share) if isinstance(share, (tuple, list)) and len(share) == 3 else [None]
        if not isinstance(pattern, str) or not all(hasattr(one, "__index__") for one in three):
            raise TypeError(
                "load: slice takes patterns of names and (axis, rank, world), in whole numbers,"
                f' such as {{"*.weight": (0, 0, 2)}}; got {slices!r}'
            )


def _wanted(tensor: Any, slices: Mapping[str, tuple[int, int, int]], format: str) -> Wanted:
    name, type_, shape, file, offset, size = tensor
    dtype = getattr(torch, _TORCH.get(type_, ""), None)
    if dtype is None:
        if format != "gguf":
            raise TypeError(
                f"load: torch {torch.__version__} has no dtype for {type_} (tensor {name!r})\n"
                "hint: exclude it with only="
            )
        # Blocks of quantised numbers are loaded as they are stored: the last axis counts bytes.
        rows = math.prod(shape[:-1])
        shape, dtype = (*shape[:-1], size // rows if rows else 0), torch.uint8
    elif type_ == "F4":  # two numbers in a byte
        if not shape or shape[-1] % 2:
            raise ValueError(
                f"load: tensor {name!r} of F4 has shape {shape}: torch holds two numbers in a byte,"
                " so that the last axis must be even\nhint: exclude it with only="
            )
        shape = (*shape[:-1], shape[-1] // 2)
    whole = _fitting(Wanted(name, type_, tuple(shape), dtype, file, offset, size))
    for pattern, share in slices.items():
        if fnmatch.fnmatchcase(name, pattern):
            return _share(whole, *map(operator.index, share))
    return whole


def _share(tensor: Wanted, axis: int, rank: int, world: int) -> Wanted:
    shape = tensor.shape
    if not 0 <= rank < world:
        raise ValueError(f"load: slice: rank {rank} is not below world {world}")
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"load: slice: tensor {tensor.name!r} of shape {shape} has no axis {axis}")
    axis %= len(shape)
    if shape[axis] % world:
        raise ValueError(
            f"load: slice: axis {axis} of tensor {tensor.name!r}, {shape[axis]:,} long, cannot be"
            f" divided by {world}"
        )
    mine = (*shape[:axis], shape[axis] // world, *shape[axis + 1 :])
    count = math.prod(shape[:axis])
    stride = tensor.length // count if count else 0
    length = stride // world
    return _fitting(
        tensor._replace(
            shape=mine,
            offset=tensor.offset + rank * length,
            length=length,
            runs=count,
            stride=stride,
        )
    )


def _fitting(tensor: Wanted) -> Wanted:
    """Refuses to read into memory of another size."""
    takes = math.prod(tensor.shape) * tensor.dtype.itemsize
    if takes != tensor.bytes:
        raise ValueError(
            f"load: tensor {tensor.name!r} of shape {tensor.shape} takes {takes:,} bytes of"
            f" {tensor.dtype}, but {tensor.bytes:,} would be read"
        )
    return tensor


def _device_of(name: str, device: Any) -> torch.device:
    if isinstance(device, Mapping):
        for pattern, where in device.items():
            if fnmatch.fnmatchcase(name, pattern):
                return _checked_device(where)
        raise KeyError(f"load: no pattern of device= matches tensor {name!r}\nhint: add '*'")
    return _checked_device(device)


def _checked_device(device: Any) -> torch.device:
    where = torch.device(device)
    if where.type not in ("cpu", "cuda"):
        raise ValueError(f"load: tensors go to the CPU or to a GPU of CUDA; got {device!r}")
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"load: device {device!r}, but torch sees no GPU here")
    return where


def _checked(tensor: torch.Tensor, wanted: Wanted) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"load: into: {wanted.name!r} is {type(tensor).__name__}, not a tensor")
    if tuple(tensor.shape) != wanted.shape or tensor.dtype != wanted.dtype:
        raise ValueError(
            f"load: tensor {wanted.name!r} is {tuple(tensor.shape)} of {tensor.dtype}, but the"
            f" file has {wanted.shape} of {wanted.dtype}\nhint: load it without into= and convert"
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"load: tensor {wanted.name!r} is not contiguous\nhint: load it without into=, then"
            " copy_ it"
        )
    _checked_device(tensor.device)
    return tensor


# --- on the CPU


def _copying_pays(weights: Any) -> bool:
    """False for data in the page cache or on a server: it is copied once in any case."""
    few = len(os.sched_getaffinity(0)) < COPYING_PROCESSORS
    small = weights.budget.left < LEAST_FOR_BUFFERS
    if few or small or any(is_url(path) for path in weights.paths):
        return False
    try:
        cached = sum(_core.cached_bytes(path) or 0 for path in weights.paths)
        return cached < sum(os.path.getsize(path) for path in weights.paths) // 2
    except OSError:  # a file was deleted since it was opened, and can still be read
        return False


def _on_cpu(tensor: Wanted, alignment: int) -> torch.Tensor:
    """Allocates memory that the disk can write to directly, if that is worth it."""
    if not _in_place(tensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    memory = torch.from_numpy(_core.allocate(tensor.offset, tensor.bytes, alignment))
    return memory.view(tensor.dtype).view(tensor.shape)


def _in_place(tensor: Wanted) -> bool:
    """Whether a new tensor is read in place. It is not if its offset in the file is not aligned for
    its numbers: its memory would not be aligned, either."""
    aligned = tensor.offset % tensor.dtype.itemsize == 0
    return tensor.bytes >= OWN_PAGES and tensor.runs == 1 and aligned


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory as bytes."""
    return tensor.detach().reshape(-1).view(torch.uint8)


class Runs:
    """Runs of bytes and their places in memory, in groups that are read together."""

    def __init__(self) -> None:
        self._parts: list[Any] = []  # tables of file, offset, length and address
        self._single: list[tuple[int, int, int, int]] = []  # the same, not in a table yet
        self._ends: list[int] = []
        self._roomy: list[bool] = []
        self._runs = 0

    def add(self, tensor: Wanted, address: int, first: int = 0, count: int | None = None) -> None:
        """Adds runs `first` to `first + count` of a tensor, contiguous from `address` on."""
        count = tensor.runs if count is None else count
        offset = tensor.offset + first * tensor.stride
        if count == 1:
            self.add_bytes(tensor.file, offset, tensor.length, address)
            return
        self._end_single()
        number = np.arange(count, dtype=np.uint64)
        part = np.empty((count, 4), np.uint64)
        part[:, 0], part[:, 2] = tensor.file, tensor.length
        part[:, 1] = np.uint64(offset) + number * np.uint64(tensor.stride)
        part[:, 3] = np.uint64(address) + number * np.uint64(tensor.length)
        self._parts.append(part)
        self._runs += count

    def add_bytes(self, file: int, offset: int, length: int, address: int) -> None:
        """Adds one run. A model has thousands, and nothing is read until all are planned."""
        self._single.append((file, offset, length, address))
        self._runs += 1

    def _end_single(self) -> None:
        if self._single:
            self._parts.append(np.array(self._single, np.uint64))
            self._single = []

    def __len__(self) -> int:
        return self._runs

    def end_group(self, roomy: bool = False) -> None:
        self._ends.append(self._runs)
        self._roomy.append(roomy)

    def reader(
        self, weights: Any, ahead: int, most_in_flight: int = NO_LIMIT, fresh: bool = False
    ) -> Any:
        """`ahead` groups are allowed at first, but no more than `most_in_flight` bytes are read at
        a time. `fresh`: the memory of the roomy groups has not been touched yet."""
        self._end_single()
        table = np.concatenate([*self._parts, np.empty((0, 4), np.uint64)])
        files, offsets, lengths, addresses = np.ascontiguousarray(table.T)
        ends, roomy = np.array(self._ends, np.uint64), np.array(self._roomy, bool)
        return _core.GroupReader(
            weights, files, offsets, lengths, addresses, ends, roomy, ahead, most_in_flight, fresh
        )


def _read_in_place(
    weights: Any, wanted: list[Wanted], result: dict[str, torch.Tensor], ours: bool
) -> None:
    runs = Runs()
    groups = 0
    small: list[Wanted] = []
    for tensor in wanted:
        if tensor.bytes == 0:
            continue
        if ours and _in_place(tensor):
            runs.add(tensor, result[tensor.name].data_ptr())
            runs.end_group(roomy=True)
            groups += 1
        else:
            small.append(tensor)
    # A share of a tensor may have a run for each row: as many as take a sixteenth of the budget are
    # planned at a time.
    most = max(GROUP_RUNS, weights.budget.limit // 1024)
    held = count = 0
    for tensor in small:
        first = 0
        while first < tensor.runs:
            now = min(tensor.runs - first, GROUP_RUNS - count)
            runs.add(tensor, result[tensor.name].data_ptr() + first * tensor.length, first, now)
            first, held, count = first + now, held + now * tensor.length, count + now
            if held >= GROUP_BYTES or count >= GROUP_RUNS:
                runs.end_group()
                held, count, groups = 0, 0, groups + 1
                if len(runs) >= most:
                    _read(weights, runs, groups, ours)
                    runs, groups = Runs(), 0
    if held:
        runs.end_group()
        groups += 1
    if groups > 0:
        _read(weights, runs, groups, ours)


def _read(weights: Any, runs: Runs, groups: int, ours: bool) -> None:
    reader = runs.reader(weights, groups, fresh=ours)
    try:
        while reader.next():
            pass
    finally:
        reader.close()
