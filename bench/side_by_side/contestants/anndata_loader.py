"""AnnData: AnnLoader over a backed .h5ad file. Its batches are dense tensors."""

from anndata.experimental.pytorch import AnnLoader

from . import _cells

TITLE = "AnnData, AnnLoader"
PACKAGES = ("anndata", "h5py", "torch")
CONVERTS = ("cells",)
CONVERTED = "h5ad"

convert = _cells.write_h5ad


def cells(work):
    import torch

    torch.manual_seed(work.seed)
    while True:
        for batch in AnnLoader(_cells.backed(work), batch_size=work.batch, shuffle=True):
            yield batch.X
