"""Model weights: tensors of safetensors and GGUF files, read within a budget."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from evenkeel import _core
from evenkeel._array import Array
from evenkeel._closing import Closing
from evenkeel._core import Budget
from evenkeel._files import (
    AnyBudget,
    PathLike,
    dtype_of,
    engine_name,
    name_for_reader,
    require_no_secrets,
    short_repr,
    whole_path,
)

if TYPE_CHECKING:
    import torch

Only = Union[str, Iterable[str], Callable[[str], bool], None]
# Pattern of names to (axis, rank, world): the share of `rank` of `world` along an axis.
Slices = Mapping[str, tuple[int, int, int]]

# The names in NumPy and torch. NumPy has no dtype for the other types; ml_dtypes has some.
NUMPY_TYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
ML_DTYPES = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


class TensorInfo(NamedTuple):
    """A tensor of a file: where its bytes are, and their type."""

    name: str
    type: str  # as the format names it: "BF16", "F8_E4M3", "Q4_K"
    shape: tuple[int, ...]
    file: int  # index into Weights.paths
    offset: int
    bytes: int


class Weights(Closing, Mapping[str, Array]):
    """The tensors of a safetensors or GGUF file, or of all shards of a model.

    Made by `evenkeel.open`. Indexing by name returns an `Array`: only the part that is indexed is
    read, within the budget. `load` reads whole tensors, for torch. A tensor whose rows have no
    bytes, such as shape (5, 0), is an ndarray.

    >>> import evenkeel
    >>> evenkeel.open("model.safetensors")            # doctest: +SKIP
    <evenkeel.Weights model.safetensors: 291 tensors, 13.5 GiB>
    """

    def __init__(self, path: PathLike, budget: AnyBudget = None, engine: str = "auto") -> None:
        self._path = os.fsencode(path)
        self._budget = Budget(budget)
        self._engine = engine
        self._weights = _core.open_weights(self._path, self._budget, engine_name(engine))
        self._tensors = {row[0]: TensorInfo(*row) for row in self._weights.tensors()}
        self._files: list[bytes] = self._weights.paths

    @property
    def format(self) -> str:
        """ "safetensors" or "gguf"."""
        return self._weights.format

    @property
    def paths(self) -> list[str]:
        return [os.fsdecode(path) for path in self._files]

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """The description of each tensor, in the order in which they are stored."""
        return dict(self._tensors)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata in the files."""
        return self._weights.metadata()

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors together."""
        return sum(tensor.bytes for tensor in self._tensors.values())

    @property
    def budget(self) -> Budget:
        return self._budget

    @property
    def engine(self) -> tuple[str, str, str]:
        """The engine that `load` uses, how it works, and why it was chosen."""
        return self._weights.engine

    def stats(self) -> dict[str, int]:
        """What `load` has read so far."""
        return self._weights.stats()

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __getitem__(self, name: str) -> Array:
        tensor = self._find(name)
        if tensor.type in NUMPY_TYPES:
            dtype = dtype_of(NUMPY_TYPES[tensor.type])
        elif tensor.type in ML_DTYPES:
            dtype = _ml_dtype(tensor)
        else:
            raise TypeError(
                f"open: tensor {name!r} holds {tensor.type}, for which NumPy has no dtype\n"
                "hint: load() reads it into a torch tensor"
            )
        if 0 in tensor.shape[1:]:  # rows without bytes: there is nothing to read
            empty: Any = np.empty(tensor.shape, dtype)
            return empty  # type: ignore[no-any-return]
        return Array(
            [self._files[tensor.file]],
            self._budget,
            self._engine,
            dtype,
            tensor.shape,
            tensor.offset,
            # Use the file that was opened: another file may have its name by now.
            reader=self._weights.array(name, name_for_reader(dtype)),
        )

    def _find(self, name: str) -> TensorInfo:
        tensor = self._tensors.get(name)
        if tensor is None:
            if not isinstance(name, str):
                raise KeyError(name)
            try:
                self._weights.require(name)
            except IndexError as error:
                raise KeyError(str(error)) from None
        assert tensor is not None
        return tensor

    def load(
        self,
        *,
        device: Any = "cpu",
        only: Only = None,
        slice: Slices | None = None,
        into: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, torch.Tensor]:
        """Tensors as torch tensors; see `load_safetensors`."""
        from evenkeel._load import load

        shares = {} if slice is None else slice
        return load(self._weights, self._chosen(only), device, shares, into, self.format)

    def _chosen(self, only: Only) -> list[TensorInfo]:
        if only is None:
            return list(self._tensors.values())
        if callable(only):
            return [tensor for tensor in self._tensors.values() if only(tensor.name)]
        if isinstance(only, bytes) or not isinstance(only, Iterable):
            raise _not_only(only)
        patterns = [only] if isinstance(only, str) else list(only)
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise _not_only(pattern)
        chosen = {}
        for pattern in patterns:
            found = fnmatch.filter(self._tensors, pattern)
            if not found:
                if not any(sign in pattern for sign in "*?["):
                    self._find(pattern)  # raises, and suggests a similar name
                raise KeyError(
                    f"load: no tensor matches {pattern!r}; there are {len(self):,}, among them"
                    f" {next(iter(self._tensors), None)!r}"
                )
            chosen.update(dict.fromkeys(found))
        return [tensor for name, tensor in self._tensors.items() if name in chosen]

    def close(self) -> None:
        """Releases memory and files. Arrays that were taken from it stay usable."""
        self._weights.close()

    def __reduce__(self) -> tuple[Any, ...]:
        require_no_secrets([self._path])
        return Weights, (whole_path(self._path), self._budget, self._engine)

    def __repr__(self) -> str:
        text = f"{len(self):,} tensors, {_core.format_size(self.nbytes)}"
        return short_repr("Weights", [self._path], text)


def _not_only(value: object) -> TypeError:
    return TypeError(
        "load: only takes a pattern of names, several of them, or a function of a name; got"
        f" {value!r}"
    )


def _ml_dtype(tensor: TensorInfo) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise ValueError(
            f"open: NumPy has no {tensor.type} of its own\nhint: pip install ml_dtypes"
        ) from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, ML_DTYPES[tensor.type]))
    return dtype


def load_safetensors(
    path: PathLike,
    *,
    device: Any = "cpu",
    budget: AnyBudget = None,
    only: Only = None,
    slice: Slices | None = None,
    into: Mapping[str, torch.Tensor] | None = None,
    engine: str = "auto",
) -> dict[str, torch.Tensor]:
    """Reads model weights into torch tensors at the speed of the disk.

    `path` is a .safetensors file, an index of shards (model.safetensors.index.json), a pattern, or
    the folder of a model. Nothing stays in the page cache.

    `device` is where tensors go: "cpu", "cuda", "cuda:1", or a dict of name patterns to devices;
    the first match applies. Tensors on a GPU are copied through pinned buffers that are part of the
    budget; reading and copying overlap. On the CPU, large tensors are read straight into their own
    memory, in huge pages, or with 8 processors or more through a few buffers.

    `only` chooses tensors: a pattern ("layers.1*"), several of them, or a function of the name.
    `slice` takes a share of each tensor, for tensor parallelism: {"*.weight": (0, rank, world)}
    divides axis 0 by `world`. `into` is a dict of existing tensors, such as model.state_dict():
    they are filled in place and returned.

    `budget` is the memory that reading may occupy beyond the tensors: bytes, "512MiB", or a
    Budget; default an eighth of the memory available.

    >>> state = evenkeel.load_safetensors("model.safetensors", device="cuda")    # doctest: +SKIP
    """
    with Weights(path, budget, engine) as weights:
        return weights.load(device=device, only=only, slice=slice, into=into)
