"""Opens and describes the arrays that paths name: files that describe themselves, raw files,
containers of several arrays, model weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenkeel import _core
from evenkeel._array import Array
from evenkeel._containers import open_container
from evenkeel._files import AnyBudget, Paths, engine_name, expand, is_url, names_weights
from evenkeel._weights import Weights


def open(
    paths: Paths,
    *,
    budget: AnyBudget = None,
    engine: str = "auto",
    dtype: Any = None,
    shape: int | Sequence[int] | None = None,
    offset: int = 0,
    cache: int | str | bool | None = None,
    page_cache: str = "spare",
    name: str | None = None,
    column: str | None = None,
) -> Array | Any:
    """Opens an array in one file, or in several files that are concatenated along the first axis.

    `paths` is a path, a pattern with * ? [], or several of them. NPY files describe their contents;
    for raw files give `dtype` (anything np.dtype accepts, also "bfloat16" if ml_dtypes is
    installed) and, unless there is only one axis, `shape`, whose first axis may be -1.

    `budget` is the memory that the array may occupy: bytes, "64MiB", "1GiB/node", or a Budget that
    several arrays share; default an eighth of the memory available. `engine` is "auto", or one of
    "map", "remap", "advise", "read", "direct", "fill" to compare them.

    The rest of the budget is a cache of rows that were read. It shrinks when something else needs
    the memory, and is not used if nothing is read twice. `cache` limits its size: bytes, or
    "64MiB"; False for none. For URLs it may be a folder and a size, "/nvme/ek:200GiB": fetched data
    is then kept there, for all processes that use this folder.

    `page_cache` is "spare" or "fill". With "spare", reading leaves nothing in the kernel's page
    cache. "fill" is for machines whose free memory should be used: data that was read stays in the
    page cache until something else needs the memory, so that later epochs come from memory. The
    budget then covers only the library's own memory.

    Files that hold several arrays are read in place, too: Arrow tables and folders of Hugging Face
    `datasets`, .npz, HDF5 (with h5py), Zarr, FITS, NIfTI, MosaicML and litData folders; see
    docs/formats.md. `name` chooses the array ("obsm/X_pca"); for a column of a table it may be
    called `column`. A column of lists is returned as a `ragged`. A name is needed if there are
    several arrays.

    Model weights (names that end with .safetensors, .safetensors.index.json or .gguf) are returned
    as `Weights`: a dict of such arrays by name.

    Only headers are read, and nothing is ever written.

    >>> import evenkeel, numpy
    >>> numpy.arange(12, dtype=">i2").tofile("numbers.bin")
    >>> evenkeel.open("numbers.bin", dtype=">i2", shape=(-1, 4))[1]
    array([4, 5, 6, 7], dtype='>i2')
    """
    engine = engine_name(engine)
    if dtype is None and names_weights(paths):
        if shape is not None or offset != 0 or cache is not None or page_cache != "spare":
            raise ValueError(
                "open: shape, offset, cache and page_cache are for arrays, not for weights"
            )
        if name is not None or column is not None:
            raise ValueError(
                "open: name and column choose one array, and weights are returned as a dict\n"
                'hint: evenkeel.open(path)["NAME"] is one tensor'
            )
        return Weights(paths, budget, engine)  # type: ignore[arg-type]
    files = expand(paths)
    if dtype is None and shape is None and offset == 0:
        opened = open_container(files, name, column, (budget, engine, cache, page_cache))
        if opened is not None:
            return opened
    if name is not None or column is not None:
        raise ValueError(
            "open: name and column choose an array of a file that describes its arrays; dtype,"
            " shape and offset are for files that do not"
        )
    return Array(files, budget, engine, dtype, shape, offset, cache, page_cache)


def info(
    path: Paths,
    *,
    dtype: Any = None,
    shape: int | Sequence[int] | None = None,
    offset: int = 0,
) -> dict[str, Any]:
    """Describes what is in a file, or in several: format, dtype, shape, bytes, and how many of
    these bytes are in the page cache now (None if the kernel does not report it). For raw files
    give `dtype`, `shape` and `offset` as for `open`.

    >>> import evenkeel, numpy
    >>> numpy.save("zeros.npy", numpy.zeros((3, 2)))
    >>> what = evenkeel.info("zeros.npy")
    >>> what["format"], what["dtype"], what["shape"], what["bytes"]
    ('npy', dtype('float64'), (3, 2), 48)
    """
    if dtype is None and names_weights(path):
        raise ValueError(
            "info: the file holds weights, not one array\n"
            "hint: evenkeel.open(path).tensors describes them; so does the command evenkeel info"
        )
    files = expand(path)
    engine = "auto" if is_url(files[0]) else "read"
    with Array(files, None, engine, dtype, shape, offset) as array:
        cached = [None if is_url(file) else _core.cached_bytes(file) for file in files]
        known = [number for number in cached if number is not None]
        return {
            "paths": array.paths,
            "format": array.format,
            "dtype": array.dtype,
            "shape": array.shape,
            "bytes": array.nbytes,
            "cached": sum(known) if len(known) == len(cached) else None,
        }
