"""Rows with documents: the speed of each mode, compared with a loader without documents.

usage: .venv/bin/python bench/documents.py [--folder DIR] [--tokens N] [--cold] [--order blocks]
       [--modes none mask start]

Lengths are log-normal with a heavy tail, about those of FineWeb. Modes alternate, so that other
load on the machine affects all of them; the median of the rounds is shown. The last lines are other
libraries, on one thread: packers with batches made from a memmap, best fit in plain Python and
OLMo-core's; and megatron-core's GPTDataset, which cuts its shuffled documents into rows and makes
position ids and a loss mask. The last two are measured if they are installed (a virtual environment
with the packages of bench/requirements-olmo.txt, and evenkeel).
"""

import argparse
import bisect
import importlib.util
import os
import statistics
import struct
import tempfile
import time
import warnings
from typing import Any, NamedTuple

import evenkeel
import numpy as np

COLUMNS, ROWS = 1024, 32
EOD = 50256  # the last token of each document


def make(folder: str, tokens: int) -> tuple[str, np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(6.2, 1.1, tokens // 900 + 1), 20, 200_000).astype(np.int64)
    path = os.path.join(folder, "documents.ds")
    with open(path, "wb") as file:
        for left in range(int(lengths.sum()), 0, -(1 << 24)):
            file.write(rng.integers(0, 50_000, min(left, 1 << 24), dtype=np.uint16).tobytes())
    ends = np.cumsum(lengths)
    written = np.memmap(path, np.uint16, "r+")
    written[ends - 1] = EOD
    written.flush()
    del written
    ends.astype("<u8").tofile(f"{path}.index")
    return path, lengths


def drop_cached(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def measure(path: str, mode: str | None, steps: int, cold: bool, order: str) -> tuple[float, float]:
    """Rows a second, and microseconds of a processor for each row."""
    if cold:
        drop_cached(path)
        drop_cached(f"{path}.index")
    budget = "64MiB" if cold else "2GiB"
    tokens = evenkeel.tokens(path, budget=budget)
    with evenkeel.TokenLoader(tokens, ROWS, COLUMNS, order=order, documents=mode) as loader:
        next(loader)
        began, used = time.perf_counter(), time.process_time()
        for _ in range(steps):
            next(loader)
        used, rows = time.process_time() - used, steps * ROWS
        return rows / (time.perf_counter() - began), used / rows * 1e6


def pieces_of(lengths: np.ndarray) -> np.ndarray:
    """Begin and end of each document, cut if it is longer than a row."""
    ends = np.cumsum(lengths)
    begins = [np.arange(end - n, end, COLUMNS) for n, end in zip(lengths, ends, strict=True)]
    starts = np.concatenate(begins)
    return np.stack([starts, np.append(starts[1:], ends[-1])], axis=1)


def best_fit(pieces: np.ndarray) -> list[list[int]]:
    """Rows of numbers of pieces, by best fit with a sorted list, as in training scripts."""
    sizes = (pieces[:, 1] - pieces[:, 0]).tolist()
    rooms: list[tuple[int, int]] = []  # the space left in each row, and its number
    rows: list[list[int]] = []
    for i in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        place = bisect.bisect_left(rooms, (sizes[i], 0))
        if place == len(rooms):
            room, row = COLUMNS, len(rows)
            rows.append([])
        else:
            room, row = rooms.pop(place)
        rows[row].append(i)
        if room > sizes[i]:
            bisect.insort(rooms, (room - sizes[i], row))
    return rows


def olmo(pieces: np.ndarray) -> list[list[int]]:
    """The same by OLMo-core's packer, which takes the longest first."""
    from olmo_core.data.utils import InstancePacker

    rows, ordered, _ = InstancePacker(COLUMNS).pack_documents(pieces)
    pieces[:] = ordered
    return rows


class TokenBatchFields(NamedTuple):
    """What a batch of `packed` has, made in Python."""

    x: np.ndarray
    y: np.ndarray
    position_ids: np.ndarray
    document_ids: np.ndarray
    cu_seqlens: np.ndarray
    loss_mask: np.ndarray


def rate_of_packer(path: str, lengths: np.ndarray, pack: Any) -> tuple[float, float]:
    """Rows per second: packing alone, and with batches made of a memmap, with all fields."""
    pieces = pieces_of(lengths)
    tokens = np.memmap(path, np.uint16, "r")
    began = time.perf_counter()
    rows = pack(pieces)
    packed = time.perf_counter()
    made = rows[: 200 * ROWS]
    counting = np.arange(COLUMNS, dtype=np.int32)
    for first in range(0, len(made), ROWS):
        x, y = np.zeros((2, ROWS, COLUMNS), np.int64)
        position_ids = np.zeros((ROWS, COLUMNS), np.int32)
        document_ids = np.full((ROWS, COLUMNS), -1, np.int32)
        bounds = []  # cu_seqlens: where documents and padding begin, and the end
        for i, row in enumerate(made[first : first + ROWS]):
            column = 0
            for piece in row:
                begin, end = pieces[piece]
                here = slice(column, column + end - begin)
                x[i, here] = tokens[begin:end]
                y[i, here] = tokens[begin + 1 : end + 1]
                position_ids[i, here] = counting[: end - begin]
                document_ids[i, here] = len(bounds)
                bounds.append(i * COLUMNS + column)
                column += end - begin
            if column < COLUMNS:
                bounds.append(i * COLUMNS + column)
                position_ids[i, column:] = counting[: COLUMNS - column]
        cu_seqlens = np.array([*bounds, ROWS * COLUMNS], np.int32)
        TokenBatchFields(x, y, position_ids, document_ids, cu_seqlens, document_ids >= 0)
    each = (packed - began) / len(rows)
    return 1 / each, 1 / (each + (time.perf_counter() - packed) / len(made))


def megatron_rate(path: str, lengths: np.ndarray) -> float:
    """Rows per second of megatron-core's GPTDataset, stacked into batches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from megatron.core.datasets.blended_megatron_dataset_builder import (
            BlendedMegatronDatasetBuilder,
        )
        from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    class Tokenizer:
        vocab_size, eod, pad, unique_identifiers = 100_000, EOD, -1, {}

    prefix = os.path.splitext(path)[0]
    os.link(path, f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as index:
        count = len(lengths)
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        index.write(lengths.astype("<i4").tobytes())
        index.write(((np.cumsum(lengths) - lengths) * 2).astype("<i8").tobytes())
        index.write(np.arange(count + 1, dtype="<i8").tobytes())
    config = GPTDatasetConfig(
        random_seed=0,
        sequence_length=COLUMNS,
        blend=([prefix], None),
        split="1,0,0",
        tokenizer=Tokenizer(),
        reset_position_ids=True,
        reset_attention_mask=False,
        eod_mask_loss=True,
        create_attention_mask=False,
    )
    builder = BlendedMegatronDatasetBuilder(GPTDataset, (None, 0, 0), lambda: True, config)
    dataset = builder.build()[0]
    began = time.perf_counter()
    for first in range(0, 100 * ROWS, ROWS):
        samples = [dataset[i] for i in range(first, first + ROWS)]
        {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    return 100 * ROWS / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where the data is written; default a temporary folder")
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="not cached, under 64 MiB")
    parser.add_argument("--order", default="shuffled", choices=("shuffled", "blocks"))
    parser.add_argument("--modes", nargs="+", help="measure only these, and no other packers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path, lengths = make(folder, args.tokens)
        modes = [None, "mask", "start", "packed", "whole"]
        if args.modes:
            modes = [None if mode == "none" else mode for mode in args.modes]
        rates: dict[str | None, list[float]] = {mode: [] for mode in modes}
        costs: dict[str | None, list[float]] = {mode: [] for mode in modes}
        for _ in range(args.rounds):
            for mode in modes:
                rate, cost = measure(path, mode, args.steps, args.cold, args.order)
                rates[mode].append(rate)
                costs[mode].append(cost)
        plain = statistics.median(rates[modes[0]])
        for mode in modes:
            rate = statistics.median(rates[mode])
            cost = f"processor: {statistics.median(costs[mode]):.2f} us a row"
            print(f"{mode or 'none':9} {rate:12,.0f} rows/s  {rate / plain:5.2f}  {cost}")
        if args.modes:
            return
        some = lengths[:-1][:100_000]  # the last token of the file has no next one
        others = {"python": best_fit, "olmo-core": olmo}
        for name, pack in others.items():
            if pack is olmo and importlib.util.find_spec("olmo_core") is None:
                print(f"{name:9} is not installed")
                continue
            packing, all_of_it = rate_of_packer(path, some, pack)
            share = f"{all_of_it / plain:5.2f}  (packing alone {packing:,.0f})"
            print(f"{name:9} {all_of_it:12,.0f} rows/s  {share}")
        if importlib.util.find_spec("megatron") is None:
            print("megatron  is not installed")
            return
        rate = megatron_rate(path, lengths)
        print(f"{'megatron':9} {rate:12,.0f} rows/s  {rate / plain:5.2f}")


if __name__ == "__main__":
    main()
