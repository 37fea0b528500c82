"""Rows with documents: speed of each mode beside a loader without.

usage: .venv/bin/python bench/documents.py [--folder DIR] [--tokens N] [--cold]

Lengths are log-normal with a heavy tail, about those of FineWeb. Modes take turns, so that what
else the machine does hits all of them; the median of the rounds is shown. The last lines are
packers of others, which read nothing: best fit in plain Python, and OLMo-core's where it is
installed (a virtual environment with the packages of bench/requirements-olmo.txt, and evenkeel).
"""

import argparse
import bisect
import importlib.util
import os
import statistics
import tempfile
import time

import evenkeel
import numpy as np

COLUMNS, ROWS = 1024, 32


def make(folder: str, tokens: int) -> tuple[str, np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(6.2, 1.1, tokens // 900 + 1), 20, 200_000).astype(np.int64)
    path = os.path.join(folder, "documents.ds")
    with open(path, "wb") as file:
        for left in range(int(lengths.sum()), 0, -(1 << 24)):
            file.write(rng.integers(0, 50_000, min(left, 1 << 24), dtype=np.uint16).tobytes())
        os.fsync(file.fileno())
    np.cumsum(lengths).astype("<u8").tofile(f"{path}.index")
    return path, lengths


def drop_cached(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def rows_per_second(path: str, mode: str | None, steps: int, cold: bool) -> float:
    if cold:
        drop_cached(path)
        drop_cached(f"{path}.index")
    budget = "64MiB" if cold else "2GiB"
    tokens = evenkeel.tokens(path, budget=budget)
    with evenkeel.TokenLoader(tokens, ROWS, COLUMNS, order="shuffled", documents=mode) as loader:
        next(loader)
        began = time.perf_counter()
        for _ in range(steps):
            next(loader)
        return steps * ROWS / (time.perf_counter() - began)


def python_best_fit(lengths: np.ndarray) -> float:
    """Rows a second of a packer as training scripts have them: best fit with a sorted list."""
    began = time.perf_counter()
    pieces = [COLUMNS] * int((lengths // COLUMNS).sum()) + [int(n) % COLUMNS for n in lengths]
    rooms: list[int] = []
    rows = 0
    for length in sorted(pieces, reverse=True):
        if length == 0:
            continue
        place = bisect.bisect_left(rooms, length)
        if place == len(rooms):
            rows += 1
            left = COLUMNS - length
        else:
            left = rooms.pop(place) - length
        if left:
            bisect.insort(rooms, left)
    return rows / (time.perf_counter() - began)


def pieces_of(lengths: np.ndarray) -> np.ndarray:
    """Begin and end of each document, cut where it is longer than a row."""
    ends = np.cumsum(lengths)
    begins = [np.arange(end - n, end, COLUMNS) for n, end in zip(lengths, ends, strict=True)]
    starts = np.concatenate(begins)
    stops = np.append(starts[1:], ends[-1])
    return np.stack([starts, stops], axis=1)


def olmo(lengths: np.ndarray) -> float | None:
    """Rows a second of OLMo-core's packer; None: it is not installed."""
    if importlib.util.find_spec("olmo_core") is None:
        return None
    from olmo_core.data.utils import InstancePacker

    pieces = pieces_of(lengths)
    began = time.perf_counter()
    rows, _, _ = InstancePacker(COLUMNS).pack_documents(pieces)
    return len(rows) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where the data is written; default a temporary folder")
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="not cached, under 64 MiB")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path, lengths = make(folder, args.tokens)
        modes = [None, "mask", "start", "packed", "whole"]
        rates: dict[str | None, list[float]] = {mode: [] for mode in modes}
        for _ in range(args.rounds):
            for mode in modes:
                rates[mode].append(rows_per_second(path, mode, args.steps, args.cold))
        plain = statistics.median(rates[None])
        for mode in modes:
            rate = statistics.median(rates[mode])
            print(f"{mode or 'none':9} {rate:12,.0f} rows/s  {rate / plain:5.2f}")
        some = lengths[:100_000]
        others = {"python": python_best_fit(some), "olmo-core": olmo(some)}
        for name, rows in others.items():
            print(
                f"{name:9} {rows:12,.0f} rows/s  packing alone" if rows else f"{name:9} is missing"
            )


if __name__ == "__main__":
    main()
