"""An index of a billion documents: it is not read to be opened, nor to be sought in."""

import pathlib
import struct
from typing import Any

import numpy as np
import pytest

import evenkeel

# Only the last documents are not empty, and all tokens are 0: the files have holes.
MANY, FULL, LENGTH = 10**9, 200_000, 1_000_000


def written(path: pathlib.Path, holes: int, numbers: np.ndarray) -> None:
    """`holes` numbers 0 that take no room on the disk, and then these."""
    with open(path, "ab") as file:
        file.truncate(file.tell() + 8 * holes)
        file.seek(0, 2)
        file.write(numbers.astype("<u8").tobytes())


def datatrove(folder: pathlib.Path) -> str:
    written(folder / "a.ds.index", MANY - FULL, np.arange(1, FULL + 1) * LENGTH)
    return str(folder / "a.ds")


def megatron(folder: pathlib.Path) -> str:
    lengths, pointers = np.full(FULL, LENGTH, "<i4"), np.arange(FULL) * LENGTH * 2
    with open(folder / "a.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, FULL, MANY + 1))
        file.write(lengths.tobytes() + pointers.astype("<i8").tobytes())
    written(folder / "a.idx", MANY - FULL, np.arange(FULL + 1))
    return str(folder / "a.idx")


def read_bytes() -> int:
    return int(pathlib.Path("/proc/self/io").read_text().split()[1])  # rchar


@pytest.mark.parametrize("make", [datatrove, megatron])
def test_a_billion_documents_open_in_little_memory(tmp_path: pathlib.Path, make: Any) -> None:
    path = make(tmp_path)
    data = tmp_path / ("a.ds" if path.endswith(".ds") else "a.bin")
    with open(data, "wb") as file:
        file.truncate(2 * FULL * LENGTH)
    before = read_bytes()
    tokens = evenkeel.tokens(path, budget="64MiB", cache=False)
    for mode in ("start", "packed", "whole"):
        with evenkeel.TokenLoader(
            tokens, 4, 64, order="shuffled", documents=mode, prefetch=1
        ) as loader:
            for step in (0, 10**6, 7):
                loader.seek(step)
                batch = next(loader)
            rows = loader.explain(7)
        if mode == "whole":
            assert batch.x.shape[0] == sum(row["documents"][0]["tokens"] for row in rows)
            continue
        for row in rows:
            first = row["documents"][0]
            assert first["document"] == MANY - FULL + first["start"] // LENGTH
    assert tokens.budget.peak <= 64 << 20
    assert read_bytes() - before < 200 << 20, "of 8 GB"
