"""Documents in token batches, against references in plain Python."""

import bisect
import pathlib
import struct
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import evenkeel

BUDGET = "16MiB"
EOT = 50256


class Corpus(NamedTuple):
    paths: list[str]
    tokens: np.ndarray
    starts: list[int]  # of documents, ascending; those of empty documents too
    options: dict[str, Any]  # of the loader


def megatron(folder: pathlib.Path, tokens: np.ndarray, lengths: list[int], per: int) -> Corpus:
    """`per` sequences to a document."""
    name = folder / "corpus"
    tokens.astype("<u2").tofile(f"{name}.bin")
    pointers = np.concatenate(([0], np.cumsum(lengths)[:-1])) * 2
    bounds = [*range(0, len(lengths), per), len(lengths)]
    with open(f"{name}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(bounds)))
        file.write(np.array(lengths, "<i4").tobytes() + pointers.astype("<i8").tobytes())
        file.write(np.array(bounds, "<i8").tobytes())
    starts = [int(pointers[b]) // 2 for b in bounds[:-1]]
    return Corpus([f"{name}.idx"], tokens, starts, {})


def datatrove(folder: pathlib.Path, tokens: np.ndarray, lengths: list[int], _: int) -> Corpus:
    tokens.astype("<u2").tofile(folder / "a.ds")
    np.cumsum(lengths).astype("<u8").tofile(folder / "a.ds.index")
    return Corpus([str(folder / "a.ds")], tokens, starts_of(lengths), {})


def own_offsets(folder: pathlib.Path, tokens: np.ndarray, lengths: list[int], kind: int) -> Corpus:
    tokens.astype("<u2").tofile(folder / "own.bin")
    starts = starts_of(lengths)
    dtype = ["<i8", "<u8", "<i4", ">u4", ">i8"][kind % 5]
    numbers = [*starts, len(tokens)] if kind % 2 else starts  # with the end, as some write it
    np.save(folder / "own.doc.npy", np.array(numbers, dtype))
    return Corpus([str(folder / "own.bin")], tokens, starts, {})


def llmc(folder: pathlib.Path, tokens: np.ndarray, lengths: list[int], shards: int) -> Corpus:
    """BOS at each start; documents are cut by the ends of shards."""
    starts = sorted({s for s, n in zip(starts_of(lengths), lengths) if n})
    tokens = np.where(tokens == EOT, 1, tokens)
    tokens[starts] = EOT
    paths = []
    for i, part in enumerate(np.array_split(tokens, min(shards, len(tokens)))):
        if not (part == EOT).any():  # a shard without a start is refused
            continue
        paths.append(str(folder / f"shard_{i:03}.bin"))
        with open(paths[-1], "wb") as file:
            file.write(struct.pack("<3i", 20240520, 1, len(part)).ljust(1024, b"\0"))
            file.write(part.astype("<u2").tobytes())
    kept = np.concatenate([np.fromfile(p, "<u2", offset=1024) for p in paths]).astype(np.int64)
    return Corpus(paths, kept, sorted({0, *np.flatnonzero(kept == EOT).tolist()}), {})


def dolma(folder: pathlib.Path, tokens: np.ndarray, lengths: list[int], shards: int) -> Corpus:
    """EOS at each end, uint32 without a header; a file begins a document."""
    tokens = np.where(tokens == 7, 8, tokens)
    ends = np.cumsum(lengths)
    tokens[[int(e) - 1 for e, n in zip(ends, lengths) if n]] = 7
    parts = np.array_split(tokens, min(shards, len(tokens)))
    paths, starts, first = [], [], 0
    for i, part in enumerate(parts):
        paths.append(str(folder / f"part{i:03}.npy"))
        part.astype("<u4").tofile(paths[-1])
        own = {0, *(int(e) + 1 for e in np.flatnonzero(part == 7))}
        starts += [first + s for s in sorted(own) if s < len(part)]
        first += len(part)
    return Corpus(paths, tokens, starts, {"eos": 7})


def starts_of(lengths: list[int]) -> list[int]:
    return [0, *np.cumsum(lengths)[:-1].tolist()]


FORMATS = [megatron, datatrove, own_offsets, llmc, dolma]


@st.composite
def corpora(draw: Any, folder: pathlib.Path) -> Corpus:
    make = draw(st.sampled_from(FORMATS))
    lengths = draw(st.lists(st.integers(0, 60), min_size=1, max_size=80))
    lengths += [20] * 8  # at least a few rows
    seed = draw(st.integers(0, 2**31))
    tokens = np.random.default_rng(seed).integers(0, 60_000, sum(lengths))
    for path in folder.iterdir():
        path.unlink()
    corpus: Corpus = make(folder, tokens, lengths, draw(st.integers(1, 5)))
    assume(len(corpus.tokens) >= 40)
    return corpus


def open_corpus(corpus: Corpus) -> evenkeel.Tokens:
    dtype = "uint32" if corpus.options.get("eos") == 7 else None
    return evenkeel.tokens(corpus.paths, budget=BUDGET, dtype=dtype)


def expect_fields(
    batch: evenkeel.TokenBatch, rows: list[list[int]], padding: list[int | None], first: bool
) -> None:
    """`rows` has the columns at which documents begin in each row; one that equals the number of
    columns is just behind the row. `padding` has the column from which on there is none."""
    height, width = batch.x.shape
    positions = np.zeros((height, width), np.int32)
    documents = np.zeros((height, width), np.int32)
    mask = np.ones((height, width), bool)
    cu, longest, number = [], 0, -1
    for i, (columns, pad) in enumerate(zip(rows, padding)):
        begins = sorted({0, *columns, *([] if pad is None else [pad])} - {width})
        for begin, end in zip(begins, [*begins[1:], width]):
            number += 1
            cu.append(i * width + begin)
            longest = max(longest, end - begin)
            positions[i, begin:end] = np.arange(end - begin)
            documents[i, begin:end] = -1 if begin == pad else number
        if not first:
            mask[i, [c - 1 for c in columns if c > 0]] = False
        if pad is not None:
            mask[i, pad:] = False
    np.testing.assert_array_equal(batch.position_ids, positions)
    np.testing.assert_array_equal(batch.document_ids, documents)
    np.testing.assert_array_equal(batch.cu_seqlens, [*cu, height * width])
    assert batch.max_seqlen == longest
    np.testing.assert_array_equal(batch.loss_mask, mask)
    assert batch.cu_seqlens.dtype == batch.position_ids.dtype == np.int32
    assert batch.loss_mask.dtype == np.bool_


def boundaries(starts: list[int], first: int, width: int, end: int) -> list[int]:
    return sorted({s - first for s in starts if first < s <= first + width and s < end})


QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


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
        # States of version 0.1 go on with documents, and the other way round.
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


Piece = tuple[int, int]  # first token, tokens


def best_fit(pieces: list[Piece], width: int, height: int) -> list[list[Piece]]:
    """Rows of a packed window: docs/documents.md in plain Python."""
    room = [width] * height
    rows: list[list[Piece]] = [[] for _ in range(height)]
    bins: dict[int, list[int]] = {width: list(range(height))[::-1]}  # a stack for each room

    def put(row: int, piece: Piece) -> None:
        rows[row].append(piece)
        room[row] -= piece[1]
        bins.setdefault(room[row], []).append(row)

    left = []
    for piece in sorted(pieces, key=lambda piece: -piece[1]):
        fitting = [r for r in sorted(bins) if r >= piece[1] and bins[r]]
        if fitting:
            put(bins[fitting[0]].pop(), piece)
        else:
            left.append(piece)
    for at, length in left:
        while length:
            most = max(r for r in bins if bins[r])
            row = bins[most].pop()
            part = min(length, most)
            put(row, (at, part))
            at, length = at + part, length - part
    return [sorted(row) for row in rows]


def packed_rows(starts: list[int], n: int, width: int, window: int) -> list[list[list[Piece]]]:
    """The rows of each window."""
    starts = sorted(set(starts) - {n})
    pieces = []
    for begin, end in zip(starts, [*starts[1:], n]):
        pieces += [(at, min(width, end - at)) for at in range(begin, end, width)]
    windows = max(1, n // (width * window))
    height = -(-(n // windows + 1 + width - 1) // width)
    packed = []
    for w in range(windows):
        low, high = n * w // windows, n * (w + 1) // windows
        mine = [piece for piece in pieces if low <= piece[0] < high]
        packed.append(best_fit(mine, width, height))
    return packed


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


def eot_file(path: pathlib.Path, count: int = 4000, every: int = 37) -> np.ndarray:
    tokens = np.arange(count, dtype=np.uint16)
    tokens[every - 1 :: every] = EOT
    tokens.tofile(path)
    return tokens


def starts_by(loader: evenkeel.TokenLoader) -> set[int]:
    with loader:
        return {row["start"] for step in range(40) for row in loader.explain(step)}


def test_an_index_is_made_once_and_again_when_the_file_changes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "train.bin"
    eot_file(path)

    def load(**options: Any) -> set[int]:
        tokens = evenkeel.tokens(path, budget=BUDGET)
        return starts_by(evenkeel.TokenLoader(tokens, 2, 16, documents="start", **options))

    assert all(start % 37 == 0 for start in load(eos=EOT))
    index = tmp_path / f"train.bin.eos{EOT}.documents"
    made = index.stat()
    assert made.st_size == 4096 + 8 * (4000 // 37 + 1)
    load(eos=EOT)
    assert index.stat().st_mtime_ns == made.st_mtime_ns, "it was used again"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["train.bin", index.name]
    # With another token, whose index has another name; and after a change.
    assert all(start % 37 == 36 or start == 0 for start in load(bos=EOT))
    assert index.stat().st_mtime_ns == made.st_mtime_ns, "it was kept"
    assert (tmp_path / f"train.bin.bos{EOT}.documents").exists()
    eot_file(path, every=41)
    assert all(start % 41 == 0 for start in load(eos=EOT))
    # A damaged one is not believed.
    damaged = bytearray(index.read_bytes())
    damaged[30] ^= 1
    index.write_bytes(damaged)
    assert all(start % 41 == 0 for start in load(eos=EOT))
    assert index.read_bytes()[30] == damaged[30] ^ 1
    # Elsewhere.
    index.unlink()
    elsewhere = tmp_path / "indexes" / "here"
    assert all(start % 41 == 0 for start in load(eos=EOT, documents_index=elsewhere))
    assert len(list(elsewhere.iterdir())) == 1
    assert not index.exists()


def test_indexes_of_documents_are_not_tokens(tmp_path: pathlib.Path) -> None:
    for name in ("train_0.bin", "train_1.bin"):
        eot_file(tmp_path / name)
    pattern = str(tmp_path / "train_*")
    with evenkeel.TokenLoader(
        evenkeel.tokens(pattern, budget=BUDGET), 2, 16, documents="packed", eos=EOT
    ) as loader:
        next(loader)
    np.save(tmp_path / "train_1.doc.npy", [0, 7])
    assert len(list(tmp_path.iterdir())) == 5
    tokens = evenkeel.tokens(pattern, budget=BUDGET)
    assert len(tokens) == 8000
    # Documents of the second file are those of its own array now.
    with evenkeel.TokenLoader(tokens, 1, 2000, documents="packed", eos=EOT, window=4) as loader:
        shown = {
            d["document"]
            for s in range(len(tokens) // 2000)
            for d in loader.explain(s)[0]["documents"]
        }
        assert max(shown) <= 4000 // 37 + 1 + 2


def test_mask_by_tokens_makes_no_index(tmp_path: pathlib.Path) -> None:
    eot_file(tmp_path / "train.bin")
    tokens = evenkeel.tokens(tmp_path / "train.bin", budget=BUDGET)
    with evenkeel.TokenLoader(tokens, 2, 16, documents="mask", bos=EOT) as loader:
        next(loader)
    assert [p.name for p in tmp_path.iterdir()] == ["train.bin"]


def test_the_end_in_an_own_array_is_no_document(tmp_path: pathlib.Path) -> None:
    for name, numbers in (("a", [0, 30, 100]), ("b", [0, 50])):
        np.arange(100, dtype=np.uint16).tofile(tmp_path / f"{name}.bin")
        np.save(tmp_path / f"{name}.doc.npy", np.array(numbers, ">i4" if name == "a" else "<i8"))
    paths = [tmp_path / "a.bin", tmp_path / "b.bin"]
    with evenkeel.TokenLoader(
        evenkeel.tokens(paths, budget=BUDGET), 1, 199, documents="mask"
    ) as loader:
        (row,) = loader.explain(0)
    starts = {one["document"]: one["start"] for one in row["documents"]}
    assert starts == {0: 0, 1: 30, 2: 100, 3: 150}
    np.save(tmp_path / "a.doc.npy", np.array([100]))
    with pytest.raises(ValueError, match="no document in it"):
        evenkeel.TokenLoader(evenkeel.tokens(paths, budget=BUDGET), 1, 99, documents="mask")


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


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0, 50, 40], "document 2 begins at token 40, before the previous one"),
        ([0, 50, 4001], "document 2 begins at token 4001, beyond the 4,000"),
        ([-1, 50], "beyond"),
        ([], "no document"),
    ],
)
def test_wrong_offsets_are_errors(tmp_path: pathlib.Path, numbers: list[int], message: str) -> None:
    np.arange(4000, dtype=np.uint16).tofile(tmp_path / "a.bin")
    np.save(tmp_path / "a.doc.npy", np.array(numbers, np.int64))
    tokens = evenkeel.tokens(tmp_path / "a.bin", budget=BUDGET)
    for mode in ("mask", "start", "packed"):
        with pytest.raises(ValueError, match=message):
            with evenkeel.TokenLoader(tokens, 2, 16, documents=mode) as loader:
                next(loader)


def test_decreasing_offsets_far_apart_are_errors(tmp_path: pathlib.Path) -> None:
    """Each block of the index is in order, but the blocks are not."""
    np.zeros(200_000, np.uint16).tofile(tmp_path / "a.bin")
    starts = np.arange(0, 100_000, 10)
    starts[5120:5632] = np.arange(512)
    np.save(tmp_path / "a.doc.npy", starts)
    tokens = evenkeel.tokens(tmp_path / "a.bin", budget=BUDGET)
    with pytest.raises(ValueError, match=r"decrease|before the previous one"):
        with evenkeel.TokenLoader(tokens, 8, 16, documents="mask", order="shuffled") as loader:
            for _ in range(1000):
                next(loader)


def test_what_is_wrong_is_said(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.bin"
    np.arange(4000, dtype=np.uint16).tofile(path)
    tokens = evenkeel.tokens(path, budget=BUDGET)

    def refused(match: str, **options: Any) -> None:
        with pytest.raises((ValueError, TypeError), match=match):
            evenkeel.TokenLoader(tokens, 2, 16, **options)

    refused("nothing says where documents begin", documents="mask")
    refused("token 50256, at which documents begin, is not among", documents="start", bos=EOT)
    refused("bos and eos exclude each other", documents="start", bos=1, eos=2)
    refused("not a mode of documents", documents="cut")
    refused("given without documents", bos=1)
    refused("leftovers must be", documents="start", bos=1, leftovers="keep")
    for mode in ("mask", "start", "packed"):
        refused("token 70,000 cannot be stored as uint16", documents=mode, bos=70_000)
        refused("token -1 cannot be stored as uint16", documents=mode, eos=-1)
    refused("pad is -100, which does not fit", documents="packed", bos=1, pad=-100, dtype="stored")
    for extra in ({"predict_first": False}, {"leftovers": "use"}, {"mixed_windows": 4}, {"pad": 1}):
        refused("given without documents", **extra)
    refused("rows of a batch begins one", documents="mask", bos=1, most_documents=1)
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"], "nothing is left behind"


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
