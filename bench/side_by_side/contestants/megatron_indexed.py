"""Megatron's IndexedDataset (megatron-core): a mapped .bin, and an .idx of its documents."""

import os

import numpy as np
from megatron.core.datasets import indexed_dataset

from . import _cut

TITLE = "Megatron IndexedDataset"
PACKAGES = ("megatron-core", "torch")
CONVERTS = ("tokens", "blocks", "huge")
DOCUMENT = 1 << 20  # tokens
CANNOT = {
    "rows": "stores only tokens",
    "scan": "stores documents of tokens; see crops",
    "workers": "maps the file like np.memmap, kept; see epoch-shuffled",
}


def convert(work):
    """Its .bin holds only the tokens, so a hard link to the file is enough."""
    os.link(work.path, f"{work.converted}/data.bin")
    lengths = [DOCUMENT] * (work.tokens // DOCUMENT)
    if work.tokens % DOCUMENT:
        lengths.append(work.tokens % DOCUMENT)
    with indexed_dataset._IndexWriter(f"{work.converted}/data.idx", np.uint16) as writer:
        writer.write(lengths, None, list(range(len(lengths) + 1)))


def _crop(stored, start, length):
    """Like its GPTDataset: a crop may continue in the next document."""
    parts = []
    while length:
        document, offset = divmod(start, DOCUMENT)
        taken = min(length, DOCUMENT - offset)
        parts.append(stored.get(document, offset=offset, length=taken))
        start, length = start + taken, length - taken
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def crops(work, starts=None):
    stored = indexed_dataset.IndexedDataset(f"{work.converted}/data", mmap=True)
    for some in starts or work.starts():
        yield _cut.halves(np.stack([_crop(stored, int(i), work.block + 1) for i in some]))


def epoch(work):
    return crops(work, _cut.starts_of(work))


def train(work):
    from . import _training

    return _training.steps(crops(work), work)
