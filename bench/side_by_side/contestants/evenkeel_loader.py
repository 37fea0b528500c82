"""Evenkeel's loaders, which choose the order and read ahead: TokenLoader and chunks."""

import evenkeel as ek

from . import _cells

TITLE = "Evenkeel, loader"
PACKAGES = ("evenkeel", "numpy")
COLUMNS = 162
CANNOT = {"scan": "the same as Evenkeel, own indices"}


def crops(work, order="random"):
    tokens = ek.tokens(work.path, budget=work.budget)
    with ek.TokenLoader(tokens, work.batch, work.block, order=order, seed=work.seed) as loader:
        loader.seek(work.first_batch)
        work.claims = [row["start"] for row in loader.explain(work.first_batch)]
        yield from loader


def rows(work):
    array = ek.open(work.path, dtype="float32", shape=(work.rows, COLUMNS), budget=work.budget)
    epoch = 0
    while True:
        shuffled = array.batches(
            work.batch, shuffle=True, seed=work.seed, epoch=epoch, with_index=True
        )
        for index, some in shuffled:
            if work.claims is None:
                work.claims = index.tolist()
            yield some
        epoch += 1


def epoch(work):
    return crops(work, "shuffled")


def train(work):
    from . import _training

    return _training.steps(crops(work), work)


def workers(work):
    from torch.utils.data import DataLoader

    tokens = ek.tokens(work.path, budget="16MiB")  # for each worker
    batches = ek.TokenIterableDataset(
        tokens, work.batch, work.block, order="shuffled", seed=work.seed
    )
    yield from DataLoader(batches, batch_size=None, num_workers=work.workers)


def cells(work, order="blocks"):
    budget = ek.Budget(work.budget)
    arrays = [ek.open(f"{work.path}/{name}.npy", budget=budget) for name in _cells.ARRAYS]
    rows = ek.csr(*arrays, columns=_cells.COLUMNS)
    with ek.Loader(rows, work.batch, order=order, seed=work.seed) as loader:
        while True:
            yield from loader


def labelled(work, order="blocks"):
    budget = ek.Budget(work.budget)
    arrays = tuple(ek.open(f"{work.path}/{name}.npy", budget=budget) for name in ("x", "y"))
    with ek.Loader(arrays, work.batch, order=order, seed=work.seed, device="cpu") as loader:
        while True:
            yield from loader
