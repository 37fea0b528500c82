"""litData: token chunks and its TokensLoader, in its own shuffled order."""

import litdata
import torch

from . import _cut

TITLE = "litData"
PACKAGES = ("litdata", "torch")
CONVERTS = ("blocks",)
CANNOT = {
    "crops": "samples come only in the library's own order; see epoch-shuffled",
    "rows": "samples come only in the library's own order; see epoch-shuffled",
    "scan": "samples come only in the library's own order; see epoch-shuffled",
    "train": "samples come only in the library's own order; see epoch-shuffled",
}
CHUNK = 32768  # samples: 64 MiB of tokens, as its documentation recommends


class _Cut:
    """The tokens of 1,024 samples, as one array."""

    def __init__(self, work):
        self.work = work

    def __call__(self, first):
        import numpy as np

        work = self.work
        tokens = np.memmap(work.path, np.uint16, "r")
        starts = np.arange(first, min(work.blocks, first + 1024)) * work.block
        cut = tokens[starts[:, None] + np.arange(work.block + 1)].reshape(-1)
        yield torch.from_numpy(cut)


def convert(work):
    litdata.optimize(
        fn=_Cut(work),
        inputs=list(range(0, work.blocks, 1024)),
        output_dir=work.converted,
        chunk_size=CHUNK * (work.block + 1),
        item_loader=litdata.TokensLoader(block_size=work.block + 1),
        num_workers=1,
        reorder_files=False,
    )


def _batches(work, workers):
    dataset = litdata.StreamingDataset(
        work.converted,
        item_loader=litdata.TokensLoader(block_size=work.block + 1),
        shuffle=True,
        seed=work.seed,
    )
    loader = litdata.StreamingDataLoader(dataset, batch_size=work.batch, num_workers=workers)
    if work.first_batch:
        taken = work.first_batch * work.batch
        state = {
            "dataset": dataset.state_dict(taken, workers, work.batch),
            "current_epoch": dataset.current_epoch,
            "num_samples_yielded": taken,
            "latest_worker_idx": 0,
        }
        loader.load_state_dict(state)
    for tokens in loader:
        yield _cut.halves(tokens)


def epoch(work):
    return _batches(work, 0)


def workers(work):
    return _batches(work, work.workers)
