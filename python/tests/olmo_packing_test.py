"""Packing compared with that of OLMo-core: rows are as full."""

import pathlib

import numpy as np
import pytest
from document_corpora import BUDGET, datatrove

import evenkeel


class Packer:
    """OLMo-core's InstancePacker, as its comments describe it: best fit, longest first. Used where
    the package is not installed, so that the comparison is always made."""

    def __init__(self, width: int) -> None:
        self.width = width

    def pack_documents(self, documents: np.ndarray) -> tuple[list[list[int]], np.ndarray, int]:
        lengths = documents[:, 1] - documents[:, 0]
        order = np.argsort(-lengths, kind="stable")
        room: list[int] = []
        rows: list[list[int]] = []
        for number, at in enumerate(order):
            length = int(lengths[at])
            fitting = [(space, row) for row, space in enumerate(room) if space >= length]
            if not fitting:
                rows.append([])
                room.append(self.width)
            row = min(fitting)[1] if fitting else len(rows) - 1
            rows[row].append(number)
            room[row] -= length
        return rows, documents[order], int(lengths.sum())


def packers() -> list[type]:
    found: list[type] = [Packer]
    try:
        from olmo_core.data.utils import InstancePacker
    except ImportError:
        return found
    return [*found, InstancePacker]


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_as_full_as_those_of_olmo_core(tmp_path: pathlib.Path, seed: int) -> None:
    """In one window. Which of several rows with the same room a document goes to differs, so the
    rows are compared by how full they are. Evenkeel has a row or two to spare, and they stay empty.
    """
    rng = np.random.default_rng(seed)
    width = 64
    # Few long documents: then everything fits, and nothing has to be split.
    lengths = np.clip(rng.lognormal(2.0, 0.8, 600), 1, width).astype(int)
    corpus = datatrove(tmp_path, rng.integers(0, 9, lengths.sum()), lengths.tolist(), 0)
    ends = np.cumsum(lengths)
    documents = np.stack([ends - lengths, ends], axis=1)
    with evenkeel.TokenLoader(
        evenkeel.tokens(corpus.paths, budget=BUDGET),
        1,
        width,
        order="shuffled",
        documents="packed",
        window=10**6,
        epochs=1,
    ) as loader:
        full = sorted(int((batch.document_ids >= 0).sum()) for batch in loader)
        assert loader.packing["split"] == 0
    for packer in packers():
        rows, ordered, _ = packer(width).pack_documents(documents)
        sizes = (ordered[:, 1] - ordered[:, 0]).tolist()
        expected = sorted(sum(sizes[i] for i in row) for row in rows)
        assert [n for n in full if n > 0] == expected
        assert full.count(0) <= 2
