"""Documents in token batches, against references in plain Python."""

import bisect
import pathlib
from typing import Any

import numpy as np
import pytest
from document_corpora import (
    BUDGET,
    EOT,
    QUICK,
    boundaries,
    corpora,
    datatrove,
    eot_file,
    expect_fields,
    llmc,
    megatron,
    open_corpus,
)
from hypothesis import given
from hypothesis import strategies as st

import evenkeel


@QUICK
@given(data=st.data())
def test_mask_is_the_same_crops_and_where_documents_begin(
    tmp_path: pathlib.Path, data: Any
) -> None:
    corpus = data.draw(corpora(tmp_path))
    width = data.draw(st.integers(1, 16))
    order = data.draw(st.sampled_from(["random", "shuffled", "covering"]))
    first = data.draw(st.booleans())
    tokens, n = open_corpus(corpus), len(corpus.tokens)
    begin = data.draw(st.integers(0, n - 36))
    part = tokens.slice(begin) if begin else tokens
    starts = [s - begin for s in corpus.starts]
    options: dict[str, Any] = {"order": order, "seed": 3, "prefetch": 1}
    plain = evenkeel.TokenLoader(part, 3, width, **options)
    masked = evenkeel.TokenLoader(
        part, 3, width, documents="mask", predict_first=first, **options, **corpus.options
    )
    with plain, masked:
        for step in range(3):
            x, y = next(plain)
            batch = next(masked)
            np.testing.assert_array_equal(batch.x, x)
            np.testing.assert_array_equal(batch.y, y)
            rows = [
                boundaries(starts, row["start"], width, n - begin) for row in plain.explain(step)
            ]
            expect_fields(batch, rows, [None] * 3, first)
        # Loaders with documents continue states of version 0.1, and the other way round.
        masked.load_state_dict(plain.state_dict())


@QUICK
@given(data=st.data())
def test_start_begins_at_documents(tmp_path: pathlib.Path, data: Any) -> None:
    corpus = data.draw(corpora(tmp_path))
    width = data.draw(st.integers(1, 16))
    use = data.draw(st.booleans())
    order = data.draw(st.sampled_from(["random", "shuffled", "covering"]))
    tokens, n = open_corpus(corpus), len(corpus.tokens)
    options: dict[str, Any] = {"order": order, "seed": 5, "prefetch": 1}
    plain = evenkeel.TokenLoader(tokens, 3, width, **options)
    loader = evenkeel.TokenLoader(
        tokens,
        3,
        width,
        documents="start",
        leftovers="use" if use else "drop",
        **options,
        **corpus.options,
    )
    starts, last = sorted(set(corpus.starts)), n - width - 1
    with plain, loader:
        for step in range(3):
            batch = next(loader)
            rows = []
            for i, crop in enumerate(plain.explain(step)):
                at = crop["start"]
                k = bisect.bisect_left(starts, at)
                chosen = starts[k] if k < len(starts) else n
                if chosen > last or (use and chosen >= at + width):
                    chosen = at if use else starts[bisect.bisect_right(starts, last) - 1]
                x = corpus.tokens[chosen : chosen + width]
                np.testing.assert_array_equal(batch.x[i], x)
                np.testing.assert_array_equal(batch.y[i], corpus.tokens[chosen + 1 :][:width])
                assert use or chosen in starts
                rows.append(boundaries(starts, chosen, width, n))
                assert loader.explain(step)[i]["start"] == chosen
            expect_fields(batch, rows, [None] * 3, True)
        state = loader.state_dict()
        with pytest.raises(ValueError, match="documents=start"):
            plain.load_state_dict(state)


def test_every_row_of_start_begins_with_bos(tmp_path: pathlib.Path) -> None:
    """As modded-nanogpt (align_to_bos) and nanochat document their loaders, which take whole
    documents from BOS on, and crop only at the end of a row."""
    rng = np.random.default_rng(4)
    lengths = np.clip(rng.lognormal(3.5, 1.0, 400), 2, 2000).astype(int).tolist()
    corpus = llmc(tmp_path, rng.integers(0, 50_000, sum(lengths)), lengths, 3)
    with evenkeel.TokenLoader(
        open_corpus(corpus), 4, 128, order="shuffled", documents="start", epochs=1
    ) as loader:
        for batch in loader:
            assert (batch.x[:, 0] == EOT).all()
            # A document begins where BOS is, and nowhere else.
            np.testing.assert_array_equal(batch.position_ids == 0, batch.x == EOT)
    with evenkeel.TokenLoader(
        open_corpus(corpus),
        4,
        128,
        order="shuffled",
        documents="packed",
        epochs=1,
        long_documents="crop",
    ) as loader:
        for batch in loader:
            # Not where a document was split because it fitted no row.
            shown = batch.document_ids >= 0
            first = (batch.position_ids == 0) & shown
            assert (batch.x[first] == EOT).mean() > 0.9
            assert (batch.position_ids[(batch.x == EOT) & shown] == 0).all()


def test_mixtures_have_documents_too(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(3)
    corpora = []
    for name, make in (("a", datatrove), ("b", megatron)):
        (tmp_path / name).mkdir()
        lengths = rng.integers(1, 40, 60).tolist()
        corpora.append(make(tmp_path / name, rng.integers(0, 60_000, sum(lengths)), lengths, 1))
    sets = [(open_corpus(corpora[0]), 3), (open_corpus(corpora[1]), 1)]
    for mode in ("mask", "start", "packed"):
        window = 4 if mode == "packed" else None
        with evenkeel.TokenLoader(
            sets, 4, 16, order="shuffled", documents=mode, window=window
        ) as loader:
            for step in range(4):
                batch = next(loader)
                for i, row in enumerate(loader.explain(step)):
                    source = corpora[row["set"]]
                    column = 0
                    for piece in row["documents"]:
                        length = piece["tokens"]
                        expected = source.tokens[piece["start"] : piece["start"] + length]
                        np.testing.assert_array_equal(
                            batch.x[i, column : column + length], expected
                        )
                        assert (
                            batch.position_ids[i, column : column + length] == np.arange(length)
                        ).all()
                        assert source.starts[piece["document"]] + piece["from"] == piece["start"]
                        column += length


def test_cu_seqlens_of_a_fixed_length(tmp_path: pathlib.Path) -> None:
    eot_file(tmp_path / "train.bin")
    tokens = evenkeel.tokens(tmp_path / "train.bin", budget=BUDGET)
    options: dict[str, Any] = {"documents": "mask", "eos": EOT, "seed": 1}
    plain = evenkeel.TokenLoader(tokens, 2, 64, **options)
    fixed = evenkeel.TokenLoader(tokens, 2, 64, most_documents=12, **options)
    with plain, fixed:
        for _ in range(5):
            want, got = next(plain).cu_seqlens, next(fixed).cu_seqlens
            assert len(got) == 13
            np.testing.assert_array_equal(got[: len(want)], want)
            assert (got[len(want) :] == 128).all()
    with evenkeel.TokenLoader(tokens, 2, 256, most_documents=3, **options) as loader:
        with pytest.raises(ValueError, match="more than the 3 documents"):
            next(loader)


def test_batches_are_pairs_that_can_be_sent(tmp_path: pathlib.Path) -> None:
    import pickle

    eot_file(tmp_path / "train.bin")
    tokens = evenkeel.tokens(tmp_path / "train.bin", budget=BUDGET)
    with evenkeel.TokenLoader(tokens, 2, 64, documents="mask", eos=EOT) as loader:
        x, y = batch = next(loader)
        assert len(batch) == 2 and batch[0] is x and batch[-1] is y
        assert len(batch) == 2
        assert batch.x is x
        assert batch.y is y
        again = pickle.loads(pickle.dumps(batch))
        np.testing.assert_array_equal(again.cu_seqlens, batch.cu_seqlens)
        np.testing.assert_array_equal(again.y, y)


def test_memory_of_documents_is_counted(tmp_path: pathlib.Path) -> None:
    eot_file(tmp_path / "train.bin", 200_000)
    budget = evenkeel.Budget("8MiB")
    tokens = evenkeel.tokens(tmp_path / "train.bin", budget=budget)
    with evenkeel.TokenLoader(tokens, 8, 1024, prefetch=2) as loader:
        next(loader)
        plain = budget.in_use
    with evenkeel.TokenLoader(tokens, 8, 1024, prefetch=2, documents="mask", eos=EOT) as loader:
        next(loader)
        # Two int32, a bool, and cu_seqlens, for each of three buffers and one that is lent.
        assert budget.in_use - plain >= 4 * 8 * 1024 * (4 + 4 + 4 + 1)
