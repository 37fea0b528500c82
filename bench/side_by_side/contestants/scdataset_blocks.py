"""scDataset over a backed .h5ad file: blocks of neighbouring cells, mixed in memory."""

from scdataset import BlockShuffling, scDataset

from . import _cells

TITLE = "scDataset, blocks"
PACKAGES = ("scDataset", "anndata", "h5py")
CONVERTS = ("cells",)
CONVERTED = "h5ad"

convert = _cells.write_h5ad


class _Matrix:
    """A backed matrix with a length, which scDataset needs."""

    def __init__(self, matrix):
        self._matrix = matrix

    def __len__(self):
        return self._matrix.shape[0]

    def __getitem__(self, rows):
        return self._matrix[rows]


def cells(work):
    """Only the matrix, and sparse: its AnnData transform would make every batch dense."""
    dataset = scDataset(
        _Matrix(_cells.backed(work).X),
        BlockShuffling(block_size=_cells.BLOCK),
        batch_size=work.batch,
        fetch_factor=_cells.FETCHED // work.batch,
        seed=work.seed,
    )
    while True:
        yield from dataset
