"""litData: token chunks and its TokensLoader, in its own shuffled order."""

import litdata
import torch

from . import _cut, _labelled

TITLE = "litData"
PACKAGES = ("litdata", "torch")
CONVERTS = ("blocks", "labelled")
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


class _Rows:
    """Samples of 8,192 rows."""

    def __init__(self, work):
        self.work = work

    def __call__(self, first):
        import numpy as np

        x, y = _labelled.arrays(self.work)
        some = np.array(x[first : first + 8192])
        for row, label in zip(some, y[first : first + 8192].tolist(), strict=True):
            yield {"x": torch.from_numpy(row), "y": label}


def convert(work):
    if work.kind == "labelled":
        litdata.optimize(
            fn=_Rows(work),
            inputs=list(range(0, work.count, 8192)),
            output_dir=work.converted,
            chunk_bytes="64MB",
            num_workers=1,
            reorder_files=False,
        )
        return
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


def labelled(work):
    dataset = litdata.StreamingDataset(work.converted, shuffle=True, seed=work.seed)
    loader = litdata.StreamingDataLoader(dataset, batch_size=work.batch, num_workers=work.workers)
    while True:
        yield from _labelled.collated(loader)
