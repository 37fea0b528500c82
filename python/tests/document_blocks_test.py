"""order="blocks" with documents, against docs/documents.md in plain Python."""

import bisect
import importlib.util
import pathlib
from typing import Any

import numpy as np
import pytest
from document_corpora import (
    QUICK,
    Corpus,
    boundaries,
    corpora,
    datatrove,
    expect_fields,
    packed_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel

pytestmark = pytest.mark.filterwarnings("ignore::evenkeel.ShuffleWarning")

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location(
    "orders_reference", ROOT / "tests" / "orders_reference_test.py"
)
assert SPEC is not None and SPEC.loader is not None
orders = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(orders)

FEW = settings(QUICK, max_examples=20)
# Tokens that are mapped are taken where they are; others come out of windows.
ENGINES = st.sampled_from(["auto", "direct"])
ROWS_SEED = 0x7061636B5F726F77
BUCKETS_SEED, INSIDE_SEED = 0x6275636B6574735F, 0x696E5F6275636B65
PHASE_SEED = 0x626C6F636B735F66


def open_with(corpus: Corpus, engine: str) -> evenkeel.Tokens:
    dtype = "uint32" if corpus.options.get("eos") == 7 else None
    return evenkeel.tokens(corpus.paths, budget="16MiB", dtype=dtype, engine=engine)


def mask_of(
    folder: pathlib.Path, corpus: Corpus, engine: str
) -> tuple[np.ndarray, evenkeel.Tokens]:
    numbers = np.random.default_rng(len(corpus.tokens)).integers(0, 2, len(corpus.tokens))
    folder.mkdir(exist_ok=True)
    np.save(folder / "mask.npy", numbers.astype("uint8"))
    return numbers != 0, evenkeel.tokens(folder / "mask.npy", budget="16MiB", engine=engine)


def packed_at(
    rows: list[list[list[Any]]], seed: int, position: int, mixed: int
) -> list[tuple[int, int]]:
    """The pieces of a row: docs/documents.md."""
    windows, height = len(rows), len(rows[0])
    epoch, position = divmod(position, windows * height)
    first = position // (mixed * height) * mixed
    group = min(mixed, windows - first)
    turn, slot = divmod(position - first * height, group)
    window = orders.shuffled(windows, seed, epoch, first + slot)
    row = orders.shuffled(height, seed ^ ROWS_SEED, epoch * windows + first + slot, turn)
    return rows[window][row]


def whole_epoch(
    lengths: list[int], seed: int, epoch: int, block: int, window: int, bucket: int
) -> list[int]:
    """The documents of an epoch in their order: docs/documents.md."""
    n = len(lengths)
    block = min(block, n)
    full = n // block
    phase = orders.random(n, seed ^ PHASE_SEED, 0, epoch)
    listed = [
        orders.shuffled(full, seed, epoch, i // block) * block + i % block
        if i < full * block
        else i
        for i in range(n)
    ]
    listed = [(phase + i) % n for i in listed]
    window = min(-(-window // bucket) * bucket, n)
    windows, most = -(-n // window), -(-window // bucket)
    arranged: list[int] = []
    for w in range(windows):
        mine = listed[w * window : (w + 1) * window]
        mine.sort(key=lambda d: lengths[d])  # stable
        number = epoch * windows + w
        count, rest = divmod(len(mine), bucket)
        cut = orders.random(count + 1, seed ^ BUCKETS_SEED, 1, number) if rest else count
        places: list[int] = [-1] * len(mine)

        buckets = []  # the documents of each, and where it begins
        for i in range(count):
            begin = i * bucket + (rest if i >= cut else 0)
            at = orders.shuffled(count, seed ^ BUCKETS_SEED, number, i) * bucket
            buckets.append((mine[begin : begin + bucket], at))
        if rest:
            buckets.append((mine[cut * bucket : cut * bucket + rest], count * bucket))
        for which, (documents, at) in enumerate(buckets):
            key = number * most + which
            for i, document in enumerate(documents):
                inside = orders.shuffled(len(documents), seed ^ INSIDE_SEED, key, i)
                places[at + inside] = document
        arranged += places
    return arranged


@FEW
@given(data=st.data())
def test_start_moves_the_crops_of_blocks(tmp_path: pathlib.Path, data: Any) -> None:
    corpus = data.draw(corpora(tmp_path))
    width, use = data.draw(st.integers(1, 9)), data.draw(st.booleans())
    engine, masked = data.draw(ENGINES), data.draw(st.booleans())
    tokens, n = open_with(corpus, engine), len(corpus.tokens)
    world = data.draw(st.sampled_from([1, 2]))
    options: dict[str, Any] = {"order": "blocks", "seed": 5, "block": 2, "window": 12}
    options |= {"streams": 4, "world": world, "prefetch": 1}
    counts, mask = mask_of(tmp_path, corpus, engine) if masked else (None, None)
    starts, last = sorted(set(corpus.starts)), n - width - 1
    steps = data.draw(st.permutations(range(6)))[:4]
    for rank in range(world):
        plain = evenkeel.TokenLoader(tokens, 1, width, rank=rank, **options)
        loader = evenkeel.TokenLoader(
            tokens,
            1,
            width,
            rank=rank,
            documents="start",
            leftovers="use" if use else "drop",
            loss_mask=mask,
            **options,
            **corpus.options,
        )
        with plain, loader:
            for step in steps:
                loader.seek(step)
                batch = next(loader)
                at = plain.explain(step)[0]["start"]
                k = bisect.bisect_left(starts, at)
                chosen = starts[k] if k < len(starts) else n
                if chosen > last or (use and chosen >= at + width):
                    chosen = at if use else starts[bisect.bisect_right(starts, last) - 1]
                assert loader.explain(step)[0]["start"] == chosen
                np.testing.assert_array_equal(batch.x[0], corpus.tokens[chosen:][:width])
                np.testing.assert_array_equal(batch.y[0], corpus.tokens[chosen + 1 :][:width])
                if counts is not None:
                    expected = counts[chosen + 1 : chosen + 1 + width]
                    np.testing.assert_array_equal(batch.loss_mask[0], expected)
                    batch.loss_mask[0] = True
                expect_fields(batch, [boundaries(starts, chosen, width, n)], [None], True)


@FEW
@given(data=st.data())
def test_packed_windows_take_turns(tmp_path: pathlib.Path, data: Any) -> None:
    corpus = data.draw(corpora(tmp_path))
    width, window = data.draw(st.integers(1, 24)), data.draw(st.integers(1, 6))
    mixed, world = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([1, 2, 3]))
    engine, masked = data.draw(ENGINES), data.draw(st.booleans())
    tokens, n = open_with(corpus, engine), len(corpus.tokens)
    counts, mask = mask_of(tmp_path, corpus, engine) if masked else (np.ones(n, bool), None)
    rows = packed_rows(corpus.starts, n, width, window)
    epoch = len(rows) * len(rows[0])
    for rank in range(world):
        with evenkeel.TokenLoader(
            tokens,
            2,
            width,
            order="blocks",
            seed=9,
            documents="packed",
            window=window,
            mixed_windows=mixed,
            world=world,
            rank=rank,
            loss_mask=mask,
            prefetch=1,
            **corpus.options,
        ) as loader:
            for step in [*range(-(-epoch // (2 * world)) + 2), 1]:  # into the second epoch
                if step == 1:
                    loader.seek(step)
                batch = next(loader)
                for i in range(2):
                    position = (step * 2 + i) * world + rank
                    pieces = packed_at(rows, 9, position, mixed)
                    found = loader.explain(step)[i]["documents"]
                    assert [(p["start"], p["tokens"]) for p in found] == pieces
                    column = 0
                    for at, length in pieces:
                        here = slice(column, column + length)
                        inside = min(length, n - 1 - at)
                        np.testing.assert_array_equal(
                            batch.x[i, here], corpus.tokens[at : at + length]
                        )
                        np.testing.assert_array_equal(
                            batch.y[i, here][:inside], corpus.tokens[at + 1 : at + 1 + inside]
                        )
                        np.testing.assert_array_equal(
                            batch.loss_mask[i, here][:inside], counts[at + 1 : at + 1 + inside]
                        )
                        column += length


@FEW
@given(data=st.data())
def test_whole_sorts_windows_of_blocks(tmp_path: pathlib.Path, data: Any) -> None:
    corpus = data.draw(corpora(tmp_path))
    width, size = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 5))
    world, block = data.draw(st.sampled_from([1, 2])), data.draw(st.integers(1, 12))
    bucket, window = data.draw(st.sampled_from([1, size * world, 7])), data.draw(st.integers(1, 60))
    engine, masked = data.draw(ENGINES), data.draw(st.booleans())
    tokens, n = open_with(corpus, engine), len(corpus.tokens)
    counts, mask = mask_of(tmp_path, corpus, engine) if masked else (np.ones(n, bool), None)
    bounds = list(zip(corpus.starts, [*corpus.starts[1:], n]))
    lengths = [min(width, e - s) for s, e in bounds]
    for rank in range(world):
        with evenkeel.TokenLoader(
            tokens,
            size,
            width,
            order="blocks",
            seed=3,
            documents="whole",
            block=block,
            window=window,
            bucket=bucket,
            world=world,
            rank=rank,
            loss_mask=mask,
            epochs=2,
            prefetch=1,
            **corpus.options,
        ) as loader:
            steps = len(loader) // 2
            assert steps == -(-len(bounds) // (size * world))
            epochs = [whole_epoch(lengths, 3, e, block, window, bucket) for e in range(2)]
            for step in [*range(2 * steps), steps // 2]:
                if step == steps // 2:
                    loader.seek(step)
                batch = next(loader)
                at = step % steps * size * world
                mine = epochs[step // steps][at : at + size * world][rank::world]
                found = [row["documents"][0]["document"] for row in loader.explain(step)]
                assert found == mine
                shown = [(bounds[d][0], lengths[d]) for d in mine if lengths[d]]
                assert np.diff(batch.cu_seqlens).tolist() == [length for _, length in shown]
                place = 0
                for start, length in shown:
                    here = slice(place, place + length)
                    inside = min(length, n - 1 - start)
                    np.testing.assert_array_equal(
                        batch.x[here], corpus.tokens[start : start + length]
                    )
                    np.testing.assert_array_equal(
                        batch.loss_mask[here][:inside], counts[start + 1 : start + 1 + inside]
                    )
                    place += length


def many(folder: pathlib.Path, count: int = 3000, seed: int = 0) -> Corpus:
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(3.5, 1.0, count), 1, 900).astype(int)
    folder.mkdir(exist_ok=True)
    return datatrove(folder, rng.integers(0, 60_000, lengths.sum()), lengths.tolist(), 0)


MODES: dict[str, dict[str, Any]] = {
    "mask": {"block": 4, "window": 64},
    "start": {"block": 4, "window": 64},
    "packed": {"window": 16, "mixed_windows": 4},
    "whole": {"block": 16, "window": 128},
}


@pytest.mark.parametrize("mode", MODES)
def test_states_and_workers(tmp_path: pathlib.Path, mode: str) -> None:
    """Rows are those of the mapped tokens, resume on other ranks, and workers share the steps."""
    corpus = many(tmp_path / "a")
    _, mask = mask_of(tmp_path / "m", corpus, "direct")

    def load(engine: str, size: int, **options: Any) -> evenkeel.TokenLoader:
        return evenkeel.TokenLoader(
            open_with(corpus, engine),
            size,
            64,
            order="blocks",
            documents=mode,
            loss_mask=mask,
            streams=4,
            **{**MODES[mode], **({"bucket": 8} if mode == "whole" else {}), **options},
        )

    def row(batch: evenkeel.TokenBatch) -> tuple[list[int], list[int], list[int]]:
        return batch.x.ravel().tolist(), batch.cu_seqlens.tolist(), batch.loss_mask.ravel().tolist()

    with load("auto", 8) as loader:
        expected = [row(next(loader)) for _ in range(60)]
    with load("direct", 8) as loader:
        assert [row(next(loader)) for _ in range(60)] == expected
        loader.seek(33)
        state = loader.state_dict()
    with load("direct", 8) as loader:
        loader.load_state_dict(state)
        assert row(next(loader)) == expected[33]
    for phase in range(2):
        with load("direct", 8, stride=2, phase=phase) as loader:
            assert [row(next(loader)) for _ in range(20)] == expected[phase:40:2]
    halves = []
    for rank in range(2):
        with load("direct", 4, rank=rank, world=2) as loader:
            loader.load_state_dict(state)
            halves.append([np.array(next(loader).x) for _ in range(10)])
    if mode == "whole":
        return  # documents of different lengths
    for step, (first, second) in enumerate(zip(*halves)):
        both = np.stack([first, second], axis=1).reshape(8, 64)
        assert both.ravel().tolist() == expected[33 + step][0]


def test_a_state_brings_its_blocks(tmp_path: pathlib.Path) -> None:
    corpus = many(tmp_path / "a")
    tokens = open_with(corpus, "direct")
    options: dict[str, Any] = {"order": "blocks", "documents": "start", "streams": 4}
    with evenkeel.TokenLoader(tokens, 8, 64, block=4, window=64, **options) as loader:
        loader.seek(9)
        state, expected = loader.state_dict(), np.array(next(loader).x)
    with evenkeel.TokenLoader(tokens, 8, 64, **options) as loader:
        next(loader)
        loader.load_state_dict(state)
        np.testing.assert_array_equal(next(loader).x, expected)
        assert loader.blocks_in_use == (4, 16, 4)


@pytest.mark.parametrize("mode", MODES)
def test_mixtures(tmp_path: pathlib.Path, mode: str) -> None:
    made = [many(tmp_path / "a", 900), many(tmp_path / "b", 1200, 1)]
    sets = [(open_with(made[0], "direct"), 3), (open_with(made[1], "direct"), 1)]
    counts, mask = mask_of(tmp_path / "m", made[1], "direct")
    for rank in range(2):
        with evenkeel.TokenLoader(
            sets,
            8,
            32,
            order="blocks",
            documents=mode,
            streams=4,
            loss_mask=[None, mask],
            rank=rank,
            world=2,
            **MODES[mode],
        ) as loader:
            seen = [0, 0]
            for step in range(40):
                batch, place = next(loader), 0
                x, loss = batch.x.ravel(), batch.loss_mask.ravel()
                for i, row in enumerate(loader.explain(step)):
                    which = row["set"]
                    if mode != "whole":
                        place = i * 32
                    seen[which] += 1
                    for piece in row["documents"]:
                        start, length = piece["start"], piece["tokens"]
                        expected = made[which].tokens[start : start + length]
                        np.testing.assert_array_equal(x[place : place + length], expected)
                        inside = min(length, len(made[which].tokens) - 1 - start)
                        wanted = np.ones(inside, bool)
                        if which == 1:
                            wanted = counts[start + 1 : start + 1 + inside]
                        np.testing.assert_array_equal(loss[place : place + inside], wanted)
                        place += length
            assert seen == [240, 80]


def test_windows_are_read_once(tmp_path: pathlib.Path) -> None:
    """Of a file that is not cached, a rank reads its own windows, and each about once."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(6, 1, 4000), 1, 9000).astype(int)
    corpus = datatrove(
        tmp_path, rng.integers(0, 60_000, lengths.sum()).astype("uint16"), lengths.tolist(), 0
    )
    for mode, world in (("packed", 1), ("packed", 4), ("whole", 1), ("start", 1)):
        tokens = evenkeel.tokens(corpus.paths, budget="16MiB", engine="direct", cache=False)
        more = {"packed": {"window": 64}, "whole": {}, "start": {"block": 16, "window": 1024}}[mode]
        with evenkeel.TokenLoader(
            tokens, 8, 512, order="blocks", documents=mode, epochs=1, rank=0, world=world, **more
        ) as loader:
            shown = sum(batch.x.size for batch in loader)
            stats = tokens.stats()
            rows = len(loader) * 8
        assert stats["bytes_from_disk"] < 2 * shown * 2, (mode, world, stats)
        assert stats["requests"] < rows // 8, (mode, world, stats)
    tokens = evenkeel.tokens(corpus.paths, budget="6MiB", engine="direct", cache=False)
    with pytest.raises(MemoryError, match="two windows of .* do not fit"):
        evenkeel.TokenLoader(tokens, 8, 512, order="blocks", documents="packed", window=1 << 20)


def test_what_blocks_of_documents_refuse(tmp_path: pathlib.Path) -> None:
    tokens = open_with(many(tmp_path / "a", 200), "direct")

    def refused(match: str, kind: Any = ValueError, **options: Any) -> None:
        with pytest.raises(kind, match=match):
            evenkeel.TokenLoader(tokens, 2, 16, order="blocks", **options)

    refused("has windows of rows, not of blocks", documents="packed", block=4)
    refused("block must be 1 or more", documents="whole", block=0)
    refused("streams must be 1 or more", documents="packed", streams=0)
    refused("window is a number of rows", TypeError, documents="packed", window="1MiB")
