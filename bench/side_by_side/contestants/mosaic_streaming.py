"""MosaicML streaming: MDS shards, in its own shuffled order."""

import contextlib

import numpy as np
import torch

# streaming imports torchvision for its image datasets. With a CPU build of torch, torchvision from
# PyPI fails at import because these operators do not exist. Nothing here calls them.
with contextlib.suppress(RuntimeError):
    _library = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402

from . import _cut, _labelled  # noqa: E402

TITLE = "MosaicML streaming"
PACKAGES = ("mosaicml-streaming", "torch")
CONVERTS = ("blocks", "labelled")
CANNOT = {
    "crops": "samples come only in the library's own order; see epoch-shuffled",
    "rows": "samples come only in the library's own order; see epoch-shuffled",
    "scan": "samples come only in the library's own order; see epoch-shuffled",
    "train": "samples come only in the library's own order; see epoch-shuffled",
}


def convert(work):
    if work.kind == "labelled":
        columns = {"x": "ndarray:float32:162", "y": "int64"}
        with MDSWriter(out=work.converted, columns=columns, size_limit=1 << 26) as out:
            for row, label in _labelled.samples(work):
                out.write({"x": row, "y": np.int64(label)})
        return
    from ._samples import samples

    columns = {"tokens": f"ndarray:uint16:{work.block + 1}"}
    with MDSWriter(out=work.converted, columns=columns, size_limit=1 << 26) as out:
        for some in samples(work, 8192):
            for one in some:
                out.write({"tokens": np.ascontiguousarray(one)})


def _loader(work, workers):
    import streaming.base.util

    streaming.base.util.clean_stale_shared_memory()
    dataset = StreamingDataset(
        local=work.converted, shuffle=True, shuffle_seed=work.seed, batch_size=work.batch
    )
    return dataset, StreamingDataLoader(dataset, batch_size=work.batch, num_workers=workers)


def _batches(work, workers):
    dataset, loader = _loader(work, workers)
    if work.first_batch:
        state = dataset.state_dict(work.first_batch * work.batch, from_beginning=True)
        loader.load_state_dict(state)
    for batch in loader:
        yield _cut.halves(batch["tokens"])


def epoch(work):
    return _batches(work, 0)


def workers(work):
    return _batches(work, work.workers)


def labelled(work):
    _, loader = _loader(work, work.workers)
    while True:
        yield from _labelled.collated(loader)
