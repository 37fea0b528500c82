"""annbatch: a collection of sharded Zarr, shuffled when it was written, read by zarrs."""

import zarr
from annbatch import DatasetCollection, Loader

from . import _cells

TITLE = "annbatch"
PACKAGES = ("annbatch", "anndata", "zarr", "zarrs")
CONVERTS = ("cells",)

zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})


def convert(work):
    import os

    _cells.write_h5ad(work)
    path = f"{work.converted}/cells.h5ad"
    DatasetCollection(f"{work.converted}/cells.zarr").add_adatas([path], shuffle=True)
    os.unlink(path)


def _matrix(group):
    import anndata

    return anndata.AnnData(X=anndata.io.sparse_dataset(group["X"]))


def cells(work):
    """The size of chunks and how many are in memory, as its documentation recommends."""
    import numpy as np

    loader = Loader(
        batch_size=work.batch,
        chunk_size=_cells.BLOCK,
        preload_nchunks=_cells.FETCHED // _cells.BLOCK,
        shuffle=True,
        preload_to_gpu=False,
        rng=np.random.default_rng(work.seed),
    )
    collection = DatasetCollection(f"{work.converted}/cells.zarr", mode="r")
    loader.use_collection(collection, load_adata=_matrix)
    while True:
        for batch in loader:
            yield batch["X"]
