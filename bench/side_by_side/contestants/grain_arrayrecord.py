"""Google Grain over ArrayRecord."""

import grain
import numpy as np
from array_record.python import array_record_module

from . import _cut, _labelled

TITLE = "Grain, ArrayRecord"
PACKAGES = ("grain", "array-record")
CONVERTS = ("rows", "blocks", "labelled")
COLUMNS = 162
CANNOT = {
    "crops": "no crops across records; see epoch-shuffled",
    "scan": "stores records; see epoch-shuffled",
    "train": "no crops; see epoch-shuffled",
}


def convert(work):
    # One record per group, as its documentation recommends for random access.
    writer = array_record_module.ArrayRecordWriter(
        f"{work.converted}/data.array_record", "group_size:1,uncompressed"
    )
    if work.kind == "labelled":
        for row, label in _labelled.samples(work):
            writer.write(row.tobytes() + label.to_bytes(8, "little"))
    elif work.kind == "rows":
        rows = np.memmap(work.path, np.float32, "r", shape=(work.rows, COLUMNS))
        for row in rows:
            writer.write(row.tobytes())
    else:
        from ._samples import samples

        for some in samples(work, 8192):
            for one in some:
                writer.write(one.tobytes())
    writer.close()


def _source(work):
    return grain.sources.ArrayRecordDataSource([f"{work.converted}/data.array_record"])


def rows(work):
    source = _source(work)
    for some in work.indices():
        records = source.__getitems__(some.tolist())
        yield np.stack([np.frombuffer(record, np.float32) for record in records])


def _tokens(record):
    return np.frombuffer(record, np.uint16)


def _batches(work, workers):
    dataset = (
        grain.MapDataset.source(_source(work))
        .shuffle(seed=work.seed)
        .map(_tokens)
        .batch(work.batch, drop_remainder=True)
    )
    if work.first_batch:
        dataset = dataset[work.first_batch :]
    dataset = dataset.to_iter_dataset()
    if workers:
        dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    for tokens in dataset:
        yield _cut.halves(tokens)


def epoch(work):
    return _batches(work, 0)


def workers(work):
    return _batches(work, work.workers)


def _row(record):
    return {
        "x": np.frombuffer(record, np.float32, COLUMNS),
        "y": np.frombuffer(record, np.int64, 1, 4 * COLUMNS)[0],
    }


def labelled(work):
    """Read by threads, which its documentation recommends before processes; then tensors."""
    import torch

    dataset = (
        grain.MapDataset.source(_source(work))
        .shuffle(seed=work.seed)
        .map(_row)
        .batch(work.batch, drop_remainder=True)
        .repeat()
        .to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=16))
    )
    for batch in dataset:
        yield torch.from_numpy(batch["x"]), torch.from_numpy(batch["y"])
