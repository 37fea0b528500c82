"""mmap_ninja: a folder with the data, and the arguments that np.memmap needs for it."""

import os
import pathlib

import numpy as np
from mmap_ninja import numpy as np_ninja

from . import _cut

TITLE = "mmap_ninja"
PACKAGES = ("mmap-ninja", "numpy")
CONVERTS = ("tokens", "rows", "blocks", "huge")
COLUMNS = 162
CANNOT = {"workers": "like np.memmap, kept: it opens one"}


def convert(work):
    """Its data file holds only the numbers, so a hard link to the file is enough."""
    folder = pathlib.Path(work.converted)
    shape, dtype = ((work.rows, COLUMNS), np.float32)
    if work.kind != "rows":
        shape, dtype = (work.tokens,), np.uint16
    np_ninja._save_mmap_kwargs(folder, dtype, shape, "C")
    os.link(work.path, folder / "data.ninja")


def crops(work, starts=None):
    tokens = np_ninja.open_existing(work.converted)
    for some in starts or work.starts():
        yield _cut.xy(tokens, some, work.block)


def rows(work):
    array = np_ninja.open_existing(work.converted)
    for some in work.indices():
        yield array[some]


def scan(work):
    array = np_ninja.open_existing(work.converted).view(np.uint8)
    for begin, end in _cut.chunks(len(array), work.chunk):
        yield np.array(array[begin:end])


def epoch(work):
    return crops(work, _cut.starts_of(work))
