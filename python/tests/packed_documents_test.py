"""Packed documents, against a packer in plain Python."""

import pathlib
from typing import Any

import numpy as np
import pytest
from document_corpora import QUICK, corpora, datatrove, expect_fields, open_corpus, packed_rows
from hypothesis import given
from hypothesis import strategies as st

import evenkeel


@QUICK
@given(data=st.data())
def test_packed_rows_are_the_references(tmp_path: pathlib.Path, data: Any) -> None:
    corpus = data.draw(corpora(tmp_path))
    width, window = data.draw(st.integers(1, 24)), data.draw(st.integers(1, 6))
    first = data.draw(st.booleans())
    tokens, n = open_corpus(corpus), len(corpus.tokens)
    expected = packed_rows(corpus.starts, n, width, window)
    height = len(expected[0])
    loader = evenkeel.TokenLoader(
        tokens,
        1,
        width,
        order="shuffled",
        documents="packed",
        window=window,
        mixed_windows=2,
        pad=9,
        predict_first=first,
        epochs=1,
        prefetch=1,
        **corpus.options,
    )
    ends = {*corpus.starts, n}
    seen = []
    with loader:
        assert len(loader) == height * len(expected)
        for step, batch in enumerate(loader):
            (explained,) = loader.explain(step)
            pieces = [(p["start"], p["tokens"]) for p in explained["documents"]]
            seen.append(pieces)
            column = 0
            begins, counts = [], np.ones(width, bool)
            for at, length in pieces:
                begins.append(column)
                here = slice(column, column + length)
                row = corpus.tokens[at : at + length + 1]
                np.testing.assert_array_equal(batch.x[0, here], row[:length])
                column += length
                if at + length < n:
                    np.testing.assert_array_equal(batch.y[0, here], row[1:])
                if at + length == n or (not first and at + length in ends):
                    counts[column - 1] = False
            counts[column:] = False
            assert (batch.x[0, column:] == 9).all()
            assert (batch.y[0, column:] == 9).all()
            np.testing.assert_array_equal(batch.loss_mask[0], counts)
            batch.loss_mask[0] = True  # the rest is as of a crop
            if column < width:
                batch.loss_mask[0, column:] = False
            expect_fields(batch, [begins], [None if column == width else column], True)
    assert sorted(seen) == sorted(row for rows in expected for row in rows)
    assert sum(length for row in seen for _, length in row) == n, "every token once"


def test_packing_wastes_little_and_loses_nothing(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(6.0, 1.2, 4000), 2, 100_000).astype(int)
    tokens = rng.integers(0, 60_000, lengths.sum())
    corpus = datatrove(tmp_path, tokens, lengths.tolist(), 0)
    with evenkeel.TokenLoader(
        open_corpus(corpus), 8, 1024, order="shuffled", documents="packed", epochs=1
    ) as loader:
        shown = sum(int((batch.document_ids >= 0).sum()) for batch in loader)
        # The last rows, if fewer than a batch, come with the next epoch.
        assert len(tokens) - shown < 8 * 1024
        assert loader.packing["padding"] < 0.01
        assert loader.packing["cut"] == 0
        assert loader.packing["split"] < 0.01


def test_a_packed_run_resumes_on_other_ranks(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 90, 300)
    corpus = datatrove(tmp_path, rng.integers(0, 60_000, lengths.sum()), lengths.tolist(), 0)
    options: dict[str, Any] = {"documents": "packed", "window": 8, "order": "shuffled", "seed": 4}

    def batches(rank: int, world: int, size: int, skip: int) -> list[np.ndarray]:
        with evenkeel.TokenLoader(
            open_corpus(corpus), size, 32, rank=rank, world=world, **options
        ) as loader:
            loader.seek(skip)
            return [np.array(next(loader).x) for _ in range(6)]

    whole = batches(0, 1, 4, 3)
    halves = [batches(rank, 2, 2, 3) for rank in range(2)]
    for step, rows in enumerate(whole):
        np.testing.assert_array_equal(rows, np.concatenate([halves[0][step], halves[1][step]]))
    with evenkeel.TokenLoader(open_corpus(corpus), 4, 32, **options) as loader:
        for _ in range(3):
            next(loader)
        state = loader.state_dict()
    with evenkeel.TokenLoader(open_corpus(corpus), 4, 32, **options) as loader:
        loader.load_state_dict(state)
        np.testing.assert_array_equal(next(loader).x, whole[0])
    with evenkeel.TokenLoader(open_corpus(corpus), 4, 32, **{**options, "window": 9}) as loader:
        with pytest.raises(ValueError, match="window=8x8"):
            loader.load_state_dict(state)
