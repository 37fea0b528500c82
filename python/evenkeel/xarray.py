"""An xarray backend: xarray.open_dataset(path, engine="evenkeel").

Only headers are read until values are needed, and then only the needed values, within the budget.
Files of one array become a variable "data"; containers have a variable for each readable array.
Axes have their names in the file (Zarr), otherwise NAME_0, NAME_1, ...
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from xarray import Dataset, Variable
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

import evenkeel
from evenkeel import _containers
from evenkeel._array import Array


class EvenkeelArray(BackendArray):
    """An array that xarray indexes when its values are needed."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self._get
        )

    def _get(self, key: tuple[Any, ...]) -> Any:
        # Numbers become slices: NumPy would move the axis of a list that a slice separates from a
        # number, but xarray expects axes in their order.
        ranges = tuple(k if _is_range(k) else slice(k, k + 1 or None) for k in key)
        block = np.asarray(self.array[ranges])
        return np.asarray(block[tuple(slice(None) if _is_range(k) else 0 for k in key)])


def _is_range(key: Any) -> bool:
    return isinstance(key, (slice, np.ndarray))


class EvenkeelBackend(BackendEntrypoint):
    """Arrays of files, read by evenkeel within a budget."""

    description = "NPY, Arrow, npz, HDF5, Zarr, FITS and NIfTI arrays, read within a memory budget"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "budget", "name")

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        budget: Any = None,
        name: str | None = None,
    ) -> Dataset:
        path = os.fspath(filename_or_obj)
        shared = evenkeel.Budget(budget)
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        found = _containers.members(path)
        names = [m.name for m in found if not m.refused and not m.list and m.name not in dropped]
        if name is not None:
            names = [name]
        variables = {}
        failure = None
        for one in names or ([] if found else ["data"]):
            inside = one if found else None
            try:
                array = evenkeel.open(path, budget=shared, name=inside)
            except ValueError as error:  # found only when the data is opened
                if name is not None:
                    raise
                failure = failure or error
                continue
            if isinstance(array, Array):
                lazy = indexing.LazilyIndexedArray(EvenkeelArray(array))
                names_of_axes = _dimensions(path, inside, one, array)
                # The chunks of `chunks={}`.
                blocks = {"preferred_chunks": dict(zip(names_of_axes, array.chunks))}
                variables[one] = Variable(names_of_axes, lazy, encoding=blocks)
        if failure and not variables:
            raise failure
        return Dataset(variables)

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        return False  # only if it is requested by name: other backends open these files, too


def _dimensions(path: str, inside: str | None, name: str, array: Array) -> tuple[str, ...]:
    if array.format == "zarr":
        from evenkeel._zarr import dimensions

        named = dimensions(os.fsencode(path), inside or "")
        if len(named) == array.ndim:
            return named
    return tuple(f"{name}_{axis}" for axis in range(array.ndim))
