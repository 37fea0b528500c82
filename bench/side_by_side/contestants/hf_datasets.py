"""Hugging Face datasets: a mapped Arrow file."""

import datasets
import numpy as np
import pyarrow as pa

from . import _cut, _labelled

TITLE = "Hugging Face datasets"
PACKAGES = ("datasets", "pyarrow", "numpy")
CONVERTS = ("rows", "blocks", "labelled")
COLUMNS = 162
CANNOT = {
    "crops": "no crops across table rows; see epoch-shuffled",
    "scan": "stores table rows; see epoch-shuffled",
    "train": "no crops; see epoch-shuffled",
}


def _write(path, batches, width, kind):
    """Record batches of 1,024 rows, each row a list of fixed length."""
    schema = pa.schema([("row", pa.list_(kind, width))])
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, schema) as out:
        for batch in batches:
            flat = pa.array(np.ascontiguousarray(batch).reshape(-1), kind)
            lists = pa.FixedSizeListArray.from_arrays(flat, width)
            out.write_batch(pa.record_batch([lists], schema=schema))


def _write_labelled(path, work):
    x, y = _labelled.arrays(work)
    schema = pa.schema([("x", pa.list_(pa.float32(), COLUMNS)), ("y", pa.int64())])
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, schema) as out:
        for at in range(0, len(x), 1024):
            flat = pa.array(x[at : at + 1024].reshape(-1), pa.float32())
            lists = pa.FixedSizeListArray.from_arrays(flat, COLUMNS)
            labels = pa.array(y[at : at + 1024])
            out.write_batch(pa.record_batch([lists, labels], schema=schema))


def convert(work):
    path = f"{work.converted}/data.arrow"
    if work.kind == "labelled":
        _write_labelled(path, work)
    elif work.kind == "rows":
        rows = np.memmap(work.path, np.float32, "r", shape=(work.rows, COLUMNS))
        some = (rows[at : at + 1024] for at in range(0, len(rows), 1024))
        _write(path, some, COLUMNS, pa.float32())
    else:
        from ._samples import samples

        _write(path, samples(work, 1024), work.block + 1, pa.uint16())


def _opened(work):
    return datasets.Dataset.from_file(f"{work.converted}/data.arrow")


def rows(work):
    stored = _opened(work).with_format("numpy")
    for some in work.indices():
        yield np.asarray(stored[some]["row"])


def epoch(work):
    shuffled = _opened(work).shuffle(seed=work.seed).with_format("numpy")
    at = work.first_batch * work.batch
    while at + work.batch <= len(shuffled):
        yield _cut.halves(np.asarray(shuffled[at : at + work.batch]["row"]))
        at += work.batch


def _together(some):
    import torch

    return _cut.halves(torch.stack([one["row"] for one in some]))


def workers(work):
    from torch.utils.data import DataLoader

    stored = _opened(work).with_format("torch")
    yield from DataLoader(
        stored, batch_size=work.batch, shuffle=True, num_workers=work.workers, collate_fn=_together
    )


def labelled(work):
    """Map-style: exactly shuffled by an index, a batch at a time."""
    stored = _opened(work)
    while True:
        shuffled = stored.shuffle(seed=work.seed).with_format("torch")
        yield from _labelled.collated(shuffled.iter(batch_size=work.batch))
