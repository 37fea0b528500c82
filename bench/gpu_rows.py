#!/usr/bin/env python3
"""Measures what loading rows costs a training run: a two-layer network on rows that are not cached.

The same loop runs with one fixed batch on the device and with evenkeel.Loader (order "blocks", an
array of rows and one of labels); the two take turns. The loss of the last steps of an epoch shows
that rows and labels belong together: labels are the sign of a fixed projection of their row.

    python bench/gpu_rows.py --json rows.json            on a GPU: 10 GiB of rows
    python bench/gpu_rows.py --device cpu --gib 0.25     on any machine, to see that it works
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import evenkeel
import numpy as np
import torch

COLUMNS = 162
BUDGET = "512MiB"


def make(folder, rows):
    """Rows and labels, written in pieces and dropped from the page cache."""
    weights = np.random.default_rng(0).standard_normal(COLUMNS, dtype=np.float32)
    x_path, y_path = folder / "x.bin", folder / "y.bin"
    made = np.random.default_rng(1)
    piece = made.standard_normal((1 << 18, COLUMNS), dtype=np.float32)
    with open(x_path, "wb") as x_file, open(y_path, "wb") as y_file:
        for at in range(0, rows, len(piece)):
            part = np.roll(piece, at // len(piece), axis=1)[: rows - at]
            part.tofile(x_file)
            (part @ weights > 0).astype(np.int64).tofile(y_file)
    for path in (x_path, y_path):
        with open(path) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return x_path, y_path


class Training:
    def __init__(self, device, hidden):
        torch.manual_seed(1)
        torch.set_float32_matmul_precision("high")
        self.device = device
        self.model = torch.nn.Sequential(
            torch.nn.Linear(COLUMNS, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 2)
        ).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def run(self, batches):
        """Seconds, steps and the mean loss of the last 50 steps."""
        self.settle()
        began, losses, steps = time.perf_counter(), [], 0
        for x, y in batches:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            steps += 1
        self.settle()
        return time.perf_counter() - began, steps, float(torch.stack(losses[-50:]).mean())

    def settle(self):
        if self.device != "cpu":
            torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--batch", type=int, default=65536)
    parser.add_argument("--hidden", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=60, help="of each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--dir", type=pathlib.Path, default=None)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if args.device == "cpu":
        args.batch, args.hidden = min(args.batch, 4096), min(args.hidden, 256)
    rows = int(args.gib * (1 << 30)) // (COLUMNS * 4)
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        x_path, y_path = make(pathlib.Path(name), rows)
        budget = evenkeel.Budget(BUDGET)
        x = evenkeel.open(x_path, dtype="float32", shape=(-1, COLUMNS), budget=budget)
        y = evenkeel.open(y_path, dtype="int64", budget=budget)
        loader = evenkeel.Loader(
            (x, y), args.batch, order="blocks", seed=1, drop_last=True, device=args.device
        )
        training = Training(args.device, args.hidden)
        endless = iter_forever(loader)
        fixed = next(endless)
        training.run([fixed] * 5)
        times = {"none": [], "evenkeel": []}
        for _ in range(args.turns):
            for way in times:
                batches = (fixed,) * args.steps if way == "none" else take(endless, args.steps)
                seconds, steps, loss = training.run(batches)
                times[way].append(seconds / steps)
                print(
                    f"{way:9} {seconds / steps * 1e3:8.2f} ms per step, loss {loss:.4f}", flush=True
                )
        ratios = [e / n for e, n in zip(times["evenkeel"], times["none"], strict=True)]
        stats = loader.stats()
        loader.close()
    result = {
        "device": torch.cuda.get_device_name() if args.device != "cpu" else "cpu",
        "rows": rows,
        "batch": args.batch,
        "ms": {way: statistics.median(ms) * 1e3 for way, ms in times.items()},
        "ratio": statistics.median(ratios),
        "bytes_from_disk": stats["bytes_from_disk"],
        "budget_peak": budget.peak,
    }
    print(f"with loading / without: {result['ratio']:.3f} (median of {args.turns})")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))
    return 0


def iter_forever(loader):
    while True:
        yield from loader


def take(batches, count):
    for _ in range(count):
        yield next(batches)


if __name__ == "__main__":
    sys.exit(main())
