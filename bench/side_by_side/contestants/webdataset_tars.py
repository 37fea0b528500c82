"""WebDataset: tar files of 64 MB, shuffled by file and in a buffer of 10,000 samples."""

import os

import numpy as np
import webdataset

from . import _labelled

TITLE = "WebDataset"
PACKAGES = ("webdataset", "torch")
CONVERTS = ("labelled",)


def convert(work):
    pattern = f"{work.converted}/rows-%05d.tar"
    with webdataset.ShardWriter(pattern, maxsize=64 << 20, maxcount=1 << 20, verbose=0) as out:
        for number, (row, label) in enumerate(_labelled.samples(work)):
            written = {"__key__": f"{number:08d}", "x.bin": row.tobytes(), "y.cls": label}
            out.write(written)


def _decoded(sample):
    return np.frombuffer(sample["x.bin"], np.float32), int(sample["y.cls"])


def _together(samples):
    import torch

    rows, labels = zip(*samples, strict=True)
    return torch.from_numpy(np.stack(rows)), torch.tensor(labels)


def labelled(work):
    names = sorted(name for name in os.listdir(work.converted) if name.endswith(".tar"))
    dataset = (
        webdataset.WebDataset(
            [f"{work.converted}/{name}" for name in names], shardshuffle=len(names), seed=work.seed
        )
        .shuffle(10_000)
        .map(_decoded)
        .batched(work.batch, collation_fn=_together)
    )
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=work.workers)
    while True:
        yield from loader
