"""Corpora of documents in every format, and what batches must say about them, in plain Python."""

import pathlib
import struct
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, assume, settings
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
    bounds = [*range(0, len(lengths), per), len(lengths)]
    return megatron_pair(folder, tokens, lengths, bounds)


def megatron_uneven(folder: pathlib.Path, tokens: np.ndarray, lengths: list[int], _: int) -> Corpus:
    """Documents of several sequences, of one and of none."""
    inner = np.random.default_rng(len(tokens)).integers(0, len(lengths) + 1, len(lengths) - 1)
    return megatron_pair(folder, tokens, lengths, [0, *sorted(inner.tolist()), len(lengths)])


def megatron_pair(
    folder: pathlib.Path, tokens: np.ndarray, lengths: list[int], bounds: list[int]
) -> Corpus:
    """`bounds` has the first sequence of each document, and the number of sequences."""
    name = folder / "corpus"
    tokens.astype("<u2").tofile(f"{name}.bin")
    pointers = np.concatenate(([0], np.cumsum(lengths))) * 2
    with open(f"{name}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(bounds)))
        file.write(np.array(lengths, "<i4").tobytes() + pointers[:-1].astype("<i8").tobytes())
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


FORMATS = [megatron, megatron_uneven, datatrove, own_offsets, llmc, dolma]


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


def eot_file(path: pathlib.Path, count: int = 4000, every: int = 37) -> np.ndarray:
    tokens = np.arange(count, dtype=np.uint16)
    tokens[every - 1 :: every] = EOT
    tokens.tofile(path)
    return tokens
