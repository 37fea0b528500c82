"""Sparse cells: three .npy files of a CSR matrix, and the same as an .h5ad file for peers."""

import numpy as np

COLUMNS = 20_000  # of the matrix; see data.make_cells
ARRAYS = ("data", "indices", "indptr")
BLOCK = 32  # neighbouring cells that stay together if a peer shuffles blocks
FETCHED = 8192  # cells that a peer mixes in memory


def mapped(work):
    """The matrix over np.memmap; nothing is read."""
    from scipy.sparse import csr_matrix

    data, indices, indptr = (np.load(f"{work.path}/{name}.npy", mmap_mode="r") for name in ARRAYS)
    matrix = csr_matrix((len(indptr) - 1, COLUMNS), dtype=data.dtype)
    # The constructor would read the arrays. Index arrays of two kinds would be converted by every
    # operation.
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr.astype(indices.dtype)
    return matrix


def write_h5ad(work):
    """As AnnData writes it by default: not compressed."""
    import anndata

    matrix = mapped(work)
    in_memory = matrix.copy()
    anndata.AnnData(X=in_memory).write_h5ad(f"{work.converted}/cells.h5ad")


def backed(work):
    import anndata

    return anndata.read_h5ad(f"{work.converted}/cells.h5ad", backed="r")
