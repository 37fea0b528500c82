"""Batches of whole documents, cropped documents and loss masks, against plain Python."""

import bisect
import pathlib
from typing import Any

import numpy as np
import pytest
from document_corpora import (
    BUDGET,
    EOT,
    QUICK,
    Corpus,
    Piece,
    best_fit,
    corpora,
    datatrove,
    dolma,
    eot_file,
    megatron,
    open_corpus,
    own_offsets,
)
from hypothesis import given
from hypothesis import strategies as st

import evenkeel


def bounds(corpus: Corpus) -> list[tuple[int, int]]:
    """Of each document, empty ones included."""
    return list(zip(corpus.starts, [*corpus.starts[1:], len(corpus.tokens)]))


def mask_of(folder: pathlib.Path, corpus: Corpus, dtype: str) -> tuple[np.ndarray, Any]:
    """A loss mask of the corpus, and its tokens."""
    numbers = np.random.default_rng(len(corpus.tokens)).integers(0, 3, len(corpus.tokens))
    path = folder / "mask.npy"
    np.save(path, numbers.astype(dtype))
    return numbers != 0, evenkeel.tokens(path, budget=BUDGET)


@QUICK
@given(data=st.data())
def test_whole_batches_are_documents_sorted_by_length(tmp_path: pathlib.Path, data: Any) -> None:
    corpus = data.draw(corpora(tmp_path))
    width = data.draw(st.integers(1, 70))
    size, world = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2))
    bucket = data.draw(st.sampled_from([None, 1, size * world, 7]))
    window = data.draw(st.integers(1, 60))
    first = data.draw(st.booleans())
    masked = data.draw(st.booleans())
    tokens, n = open_corpus(corpus), len(corpus.tokens)
    counts, mask = np.ones(n, bool), None
    if masked:
        dtype = data.draw(st.sampled_from(["uint8", "int32", ">u2", "int64"]))
        counts, mask = mask_of(tmp_path, corpus, dtype)
    each = bounds(corpus)
    options: dict[str, Any] = {
        "order": "shuffled",
        "seed": 5,
        "documents": "whole",
        "window": window,
        "bucket": bucket,
        "world": world,
        "predict_first": first,
        "loss_mask": mask,
        "prefetch": 1,
        **corpus.options,
    }
    seen: list[list[int]] = []  # documents of each step, of all ranks
    for rank in range(world):
        with evenkeel.TokenLoader(tokens, size, width, rank=rank, epochs=1, **options) as loader:
            assert len(loader) == -(-len(each) // (size * world))
            for step, batch in enumerate(loader):
                rows = loader.explain(step)
                documents = [row["documents"][0]["document"] for row in rows]
                if rank == 0:
                    seen.append([])
                seen[step] += documents
                expect_whole(batch, corpus, [each[d] for d in documents], width, first, counts)
            cut = sum(max(0, e - s - width) for s, e in (each[d] for d in sum(seen, [])))
            if world == 1:
                assert loader.packing["cut"] == pytest.approx(cut / n)
    flat = sum(seen, [])
    assert sorted(flat) == list(range(len(each))), "every document once"
    # Each window is sorted by length and cut into buckets.
    bucket = bucket or size * world
    window = min(-(-window // bucket) * bucket, len(each))
    lengths = [min(width, each[d][1] - each[d][0]) for d in flat]
    for begin in range(0, len(flat), window):
        mine = lengths[begin : begin + window]
        found = [tuple(sorted(mine[i : i + bucket])) for i in range(0, len(mine), bucket)]
        ordered, rest = sorted(mine), len(mine) % bucket
        possible = []
        for cut_at in range(0, len(mine), bucket):  # where the short bucket may be
            parts, at = [], 0
            while at < len(mine):
                part = rest if rest and at == cut_at else bucket
                parts.append(tuple(ordered[at : at + part]))
                at += part
            possible.append(sorted(parts))
        assert sorted(found) in possible


def expect_whole(
    batch: evenkeel.TokenBatch,
    corpus: Corpus,
    documents: list[tuple[int, int]],
    width: int,
    first: bool,
    counts: np.ndarray,
) -> None:
    n = len(corpus.tokens)
    shown = [(s, min(e, s + width), e) for s, e in documents if e > s]
    lengths = [stop - start for start, stop, _ in shown]
    assert batch.x.shape == batch.y.shape == (sum(lengths),)
    np.testing.assert_array_equal(batch.cu_seqlens, [0, *np.cumsum(lengths)])
    assert batch.max_seqlen == max(lengths, default=0)
    assert batch.documents == len(lengths)
    at = 0
    for number, (start, stop, end) in enumerate(shown):
        here = slice(at, at + stop - start)
        np.testing.assert_array_equal(batch.x[here], corpus.tokens[start:stop])
        targets = np.arange(start + 1, stop + 1)
        inside = targets < n
        np.testing.assert_array_equal(batch.y[here][inside], corpus.tokens[targets[inside]])
        np.testing.assert_array_equal(batch.position_ids[here], np.arange(stop - start))
        assert (batch.document_ids[here] == number).all()
        expected = inside & counts[np.minimum(targets, n - 1)]
        if not first and stop == end:
            expected[-1] = False
        np.testing.assert_array_equal(batch.loss_mask[here], expected)
        at = here.stop


def chats(folder: pathlib.Path, count: int = 500, seed: int = 0) -> Corpus:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 90, count)
    return datatrove(folder, rng.integers(0, 60_000, lengths.sum()), lengths.tolist(), 0)


def test_whole_batches_can_be_sought_and_resumed(tmp_path: pathlib.Path) -> None:
    corpus = chats(tmp_path)
    options: dict[str, Any] = {"documents": "whole", "window": 64, "order": "shuffled", "seed": 4}

    def load(size: int, **more: Any) -> evenkeel.TokenLoader:
        return evenkeel.TokenLoader(open_corpus(corpus), size, 64, **options, **more)

    with load(8) as loader:
        run = [(np.array(b.x), b.cu_seqlens.tolist()) for b, _ in zip(loader, range(150))]
        for step in (149, 0, 62, 63, 90):  # 63 is the first of the second epoch
            loader.seek(step)
            batch = next(loader)
            np.testing.assert_array_equal(batch.x, run[step][0])
            assert batch.cu_seqlens.tolist() == run[step][1]
        loader.seek(70)
        state = loader.state_dict()
        assert [row["epoch"] for row in loader.explain(62)] == [0] * 4, "500 = 62 x 8 + 4"
    # On two ranks: the same documents at each step.
    both: list[list[np.ndarray]] = []
    for rank in range(2):
        with load(4, rank=rank, world=2) as loader:
            loader.load_state_dict(state)
            both.append([np.array(next(loader).x) for _ in range(60)])
    for step, parts in enumerate(zip(*both)):
        np.testing.assert_array_equal(np.concatenate(parts), run[70 + step][0])
    # Another bucket is another order, unless the old one is given.
    with load(16) as loader, pytest.raises(ValueError, match="window=64x8"):
        loader.load_state_dict(state)
    with load(2, bucket=8) as loader:
        loader.load_state_dict(state)
        parts = [np.array(next(loader).x) for _ in range(4)]
        np.testing.assert_array_equal(np.concatenate(parts), run[70][0])


@pytest.mark.parametrize("make", [datatrove, megatron, own_offsets, dolma])
def test_documents_of_a_window_that_lie_far_apart(tmp_path: pathlib.Path, make: Any) -> None:
    """Of an index of many blocks, only the numbers of the window's documents are read."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(0 if make is not dolma else 1, 6, 40_000)
    corpus: Corpus = make(tmp_path, rng.integers(8, 60_000, lengths.sum()), lengths.tolist(), 1)
    each = bounds(corpus)
    everything = np.ones(len(corpus.tokens), bool)
    with evenkeel.TokenLoader(
        open_corpus(corpus),
        8,
        4,
        order="shuffled",
        documents="whole",
        window=256,
        **corpus.options,
    ) as loader:
        for step in (0, 40, 4990):
            loader.seek(step)
            batch = next(loader)
            rows = loader.explain(step)
            documents = [row["documents"][0]["document"] for row in rows]
            expect_whole(batch, corpus, [each[d] for d in documents], 4, True, everything)


def test_length_buckets_save_padding(tmp_path: pathlib.Path) -> None:
    corpus = chats(tmp_path, 2000)

    def padded(**options: Any) -> float:
        """The share of padding, if every batch were padded to its longest document."""
        with evenkeel.TokenLoader(
            open_corpus(corpus), 16, 128, order="shuffled", documents="whole", epochs=1, **options
        ) as loader:
            places = tokens = 0
            for batch in loader:
                places += batch.documents * batch.max_seqlen
                tokens += len(batch.x)
        return 1 - tokens / places

    assert padded() < 0.02
    assert padded(bucket=1) > 0.3, "without buckets"


def test_whole_takes_any_order_and_mixture(tmp_path: pathlib.Path) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(chats(tmp_path / name, 60, len(made)))
    (tmp_path / "m").mkdir()
    counts, mask = mask_of(tmp_path / "m", made[1], "uint8")
    sets = [(open_corpus(made[0]), 3), (open_corpus(made[1]), 1)]
    for order in ("random", "shuffled", "covering"):
        with evenkeel.TokenLoader(
            sets, 4, 64, order=order, documents="whole", window=16, loss_mask=[None, mask]
        ) as loader:
            for step in range(40):
                batch = next(loader)
                at = 0
                for row in loader.explain(step):
                    corpus = made[row["set"]]
                    start, length = (row["documents"][0][key] for key in ("start", "tokens"))
                    here = slice(at, at + length)
                    np.testing.assert_array_equal(
                        batch.x[here], corpus.tokens[start : start + length]
                    )
                    if row["set"] == 1 and start + length < len(corpus.tokens):
                        expected = counts[start + 1 : start + length + 1]
                        np.testing.assert_array_equal(batch.loss_mask[here], expected)
                    elif row["set"] == 0:
                        assert batch.loss_mask[here][:-1].all()
                    at = here.stop


def cropped_rows(corpus: Corpus, width: int, window: int) -> list[list[Piece]]:
    """All rows of a corpus whose documents are cropped."""
    begins, total = [], 0
    pieces = []
    for start, end in bounds(corpus):
        begins.append(total)
        pieces.append((start, min(width, end - start)))
        total += pieces[-1][1]
    windows = max(1, total // (width * window))
    height = -(-(total // windows + 1 + width - 1) // width)
    rows: list[list[Piece]] = []
    for w in range(windows):
        low = bisect.bisect_left(begins, total * w // windows)
        high = bisect.bisect_left(begins, total * (w + 1) // windows)
        rows += best_fit([piece for piece in pieces[low:high] if piece[1]], width, height)
    return rows


@QUICK
@given(data=st.data())
def test_packed_rows_of_cropped_documents(tmp_path: pathlib.Path, data: Any) -> None:
    corpus = data.draw(corpora(tmp_path))
    width, window = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 6))
    first = data.draw(st.booleans())
    expected = cropped_rows(corpus, width, window)
    each = bounds(corpus)
    n, ends = len(corpus.tokens), {end for start, end in each if end > start}
    with evenkeel.TokenLoader(
        open_corpus(corpus),
        1,
        width,
        order="shuffled",
        documents="packed",
        long_documents="crop",
        predict_first=first,
        window=window,
        epochs=1,
        prefetch=1,
        **corpus.options,
    ) as loader:
        seen = []
        for step, batch in enumerate(loader):
            (row,) = loader.explain(step)
            seen.append([(piece["start"], piece["tokens"]) for piece in row["documents"]])
            column = 0
            for start, length in seen[-1]:
                np.testing.assert_array_equal(
                    batch.x[0, column : column + length], corpus.tokens[start : start + length]
                )
                column += length
                counts = start + length < n and (first or start + length not in ends)
                assert bool(batch.loss_mask[0, column - 1]) == counts
            assert not batch.loss_mask[0, column:].any()
        cut = sum(max(0, end - start - width) for start, end in each)
        assert loader.packing["cut"] == pytest.approx(cut / n)
    assert sorted(seen) == sorted(expected)


def test_loss_masks_belong_to_every_mode(tmp_path: pathlib.Path) -> None:
    corpus = chats(tmp_path, 200)
    (tmp_path / "m").mkdir()
    counts, mask = mask_of(tmp_path / "m", corpus, "uint16")
    n = len(corpus.tokens)
    for mode in ("mask", "start", "packed"):
        options: dict[str, Any] = {"order": "shuffled", "documents": mode, "prefetch": 2}
        with (
            evenkeel.TokenLoader(open_corpus(corpus), 3, 32, loss_mask=mask, **options) as loader,
            evenkeel.TokenLoader(open_corpus(corpus), 3, 32, **options) as plain,
        ):
            for step in range(20):
                batch, without = next(loader), next(plain)
                np.testing.assert_array_equal(batch.x, without.x)
                for i, row in enumerate(loader.explain(step)):
                    column = 0
                    for piece in row["documents"]:
                        here = slice(column, column + piece["tokens"])
                        targets = np.arange(piece["tokens"]) + piece["start"] + 1
                        expected = counts[np.minimum(targets, n - 1)] & without.loss_mask[i, here]
                        np.testing.assert_array_equal(batch.loss_mask[i, here], expected)
                        column = here.stop
                    assert not batch.loss_mask[i, column:].any()
            state = loader.state_dict()
            with pytest.raises(ValueError, match="loss_mask"):
                plain.load_state_dict(state)
            loader.load_state_dict(state)


def test_what_whole_cannot_do_is_said(tmp_path: pathlib.Path) -> None:
    eot_file(tmp_path / "train.bin")
    tokens = evenkeel.tokens(tmp_path / "train.bin", budget=BUDGET)
    np.zeros(3999, np.uint8).tofile(tmp_path / "short.bin")
    short = evenkeel.tokens(tmp_path / "short.bin", budget=BUDGET, dtype="uint8")

    def load(**options: Any) -> None:
        evenkeel.TokenLoader(tokens, 2, 16, **{"documents": "whole", "eos": EOT, **options})

    with pytest.raises(ValueError, match="3,999 numbers for the 4,000 tokens"):
        load(loss_mask=short)
    with pytest.raises(ValueError, match="2 masks for 1 sets"):
        load(loss_mask=[short, short])
    with pytest.raises(TypeError, match="loss_mask: tokens come from"):
        load(loss_mask="mask.bin")
    with pytest.raises(ValueError, match="batches with documents"):
        load(loss_mask=tokens, documents=None, eos=None)
    with pytest.raises(ValueError, match="crops long documents"):
        load(long_documents="split")
    with pytest.raises(ValueError, match='must be "split" or "crop"'):
        load(long_documents="drop")
    with pytest.raises(ValueError, match='belongs to documents="packed"'):
        load(long_documents="crop", documents="mask")
    with pytest.raises(ValueError, match="bucket belongs to"):
        load(bucket=4, documents="packed")
    with pytest.raises(ValueError, match="was given without documents"):
        load(bucket=4, documents=None, eos=None)
    with pytest.raises(TypeError, match="a number of documents"):
        load(window="1MiB")
    corpus = datatrove(tmp_path, np.zeros(60_000, int), [1] * 60_000, 0)
    small = evenkeel.tokens(corpus.paths, budget="2MiB")
    with pytest.raises(MemoryError, match="a window of documents"):
        evenkeel.TokenLoader(small, 2, 16, documents="whole", window=10**9)


def test_documents_of_many_index_blocks_are_found(tmp_path: pathlib.Path) -> None:
    """More documents than a block of the index has, in two files, with a small cache of blocks."""
    rng = np.random.default_rng(1)
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        lengths = rng.integers(0, 4, 30_000)
        tokens = rng.integers(0, 9, lengths.sum())
        made.append(megatron(tmp_path / name, tokens, lengths.tolist(), 1))
    both = evenkeel.tokens([made[0].paths[0], made[1].paths[0]], budget="3MiB")
    each = bounds(made[0])
    each += [(s + len(made[0].tokens), e + len(made[0].tokens)) for s, e in bounds(made[1])]
    everything = np.concatenate([made[0].tokens, made[1].tokens])
    with evenkeel.TokenLoader(both, 64, 8, order="shuffled", documents="whole") as loader:
        for step in (0, 1, 64, 500, 936):
            loader.seek(step)
            batch = next(loader)
            documents = [row["documents"][0]["document"] for row in loader.explain(step)]
            shown = [everything[s:e] for s, e in (each[d] for d in documents)]
            np.testing.assert_array_equal(batch.x, np.concatenate(shown))
