"""Reads data far larger than memory, and keeps memory within a budget you set.

>>> import evenkeel, numpy
>>> numpy.save("features.npy", numpy.arange(12, dtype="float32").reshape(4, 3))
>>> with evenkeel.open("features.npy", budget="64MiB") as a:
...     print(a.shape, a[1], a[[3, 0], 2])
...     for rows in a.batches(3):
...         print(rows.sum())
(4, 3) [3. 4. 5.] [11.  2.]
36.0
30.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenkeel._array import Array as Array
    from evenkeel._batches import Batches as Batches
    from evenkeel._blocks import ShuffleWarning as ShuffleWarning
    from evenkeel._core import Budget as Budget
    from evenkeel._documents import TokenBatch as TokenBatch
    from evenkeel._loader import TokenLoader as TokenLoader
    from evenkeel._manifest import Manifest as Manifest
    from evenkeel._memmap import Guard as Guard
    from evenkeel._memmap import govern as govern
    from evenkeel._memmap import memmap as memmap
    from evenkeel._metrics import metrics as metrics
    from evenkeel._open import info as info
    from evenkeel._open import open as open
    from evenkeel._profile import mark as mark
    from evenkeel._profile import profile as profile
    from evenkeel._ragged import csr as csr
    from evenkeel._ragged import ragged as ragged
    from evenkeel._rows import Loader as Loader
    from evenkeel._shuffle import plan_shuffle as plan_shuffle
    from evenkeel._shuffle import shuffle as shuffle
    from evenkeel._stats import stats as stats
    from evenkeel._tokenize.api import plan as plan
    from evenkeel._tokenize.api import tokenize as tokenize
    from evenkeel._tokens import Tokens as Tokens
    from evenkeel._tokens import tokens as tokens
    from evenkeel._version import __version__ as __version__
    from evenkeel._weights import Weights as Weights
    from evenkeel._weights import load_safetensors as load_safetensors
    from evenkeel._write import ArrayWriter as ArrayWriter
    from evenkeel._write import create as create
    from evenkeel._write_tokens import TokenWriter as TokenWriter
    from evenkeel.torch import RowIterableDataset as RowIterableDataset
    from evenkeel.torch import TokenDataset as TokenDataset
    from evenkeel.torch import TokenIterableDataset as TokenIterableDataset

# The module of each name. Modules are imported when they are first used: importing NumPy takes
# longer than the rest, and the tool does not need it.
_HOME = {
    "Array": "_array",
    "ArrayWriter": "_write",
    "Batches": "_batches",
    "Budget": "_core",
    "__version__": "_version",
    "Guard": "_memmap",
    "create": "_write",
    "csr": "_ragged",
    "govern": "_memmap",
    "info": "_open",
    "Loader": "_rows",
    "load_safetensors": "_weights",
    "Manifest": "_manifest",
    "mark": "_profile",
    "memmap": "_memmap",
    "metrics": "_metrics",
    "open": "_open",
    "plan": "_tokenize.api",
    "plan_shuffle": "_shuffle",
    "profile": "_profile",
    "ragged": "_ragged",
    "RowIterableDataset": "torch",
    "shuffle": "_shuffle",
    "ShuffleWarning": "_blocks",
    "stats": "_stats",
    "TokenBatch": "_documents",
    "TokenDataset": "torch",
    "TokenIterableDataset": "torch",
    "TokenLoader": "_loader",
    "Tokens": "_tokens",
    "tokenize": "_tokenize.api",
    "TokenWriter": "_write_tokens",
    "tokens": "_tokens",
    "Weights": "_weights",
}
__all__ = sorted(name for name in _HOME if not name.startswith("_"))


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evenkeel' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"evenkeel.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
