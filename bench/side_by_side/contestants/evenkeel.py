"""Evenkeel with indices that the caller chooses: Tokens.xy and Array.take; chunks for a scan."""

import evenkeel as ek

from . import _cut

TITLE = "Evenkeel, own indices"
PACKAGES = ("evenkeel", "numpy")
COLUMNS = 162
CANNOT = {"workers": "see Evenkeel, loader, which defines the order"}


def crops(work, starts=None):
    tokens = ek.tokens(work.path, budget=work.budget)
    for some in starts or work.starts():
        yield tokens.xy(some, work.block)


def rows(work):
    array = ek.open(work.path, dtype="float32", shape=(work.rows, COLUMNS), budget=work.budget)
    for some in work.indices():
        yield array.take(some)


def scan(work):
    array = ek.open(work.path, dtype="uint8", budget=work.budget)
    while True:
        yield from array.batches(work.chunk)


def epoch(work):
    return crops(work, _cut.starts_of(work))


def train(work):
    from . import _training

    return _training.steps(crops(work), work)
