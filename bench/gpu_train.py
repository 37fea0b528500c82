#!/usr/bin/env python3
"""Measures what loading costs a training run: GPT-2 124M from 12 GiB of tokens that are not cached.

The same loop runs in three ways, which take turns: with one fixed batch on the device, with a
memmap recreated for every batch (nanoGPT's get_batch), and with Evenkeel's loader. As in nanoGPT,
the next batch is loaded while the device runs the forward pass of the current one.

    python bench/gpu_train.py --json gpu.json        on a GPU
    python bench/gpu_train.py --device cpu --small   on any machine, to see that it works
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import platform
import statistics
import sys
import time

import evenkeel
import numpy as np
import torch
from side_by_side import data

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples/python"))
from gpt2 import GPT2, Sizes  # noqa: E402

SEED = 1337
BUDGET = "64MiB"


# --- the three ways: each is a context that provides get_batch()


@contextlib.contextmanager
def no_loader(path, args):
    made = torch.Generator().manual_seed(SEED)
    x, y = (
        torch.randint(args.sizes.vocabulary, (args.batch, args.block), generator=made)
        for _ in range(2)
    )
    x, y = x.to(args.device), y.to(args.device)
    yield lambda: (x, y)


@contextlib.contextmanager
def memmap_anew(path, args):
    draws = torch.Generator().manual_seed(SEED)
    length = args.block

    def get_batch():
        tokens = np.memmap(path, dtype=np.uint16, mode="r")
        ix = torch.randint(len(tokens) - length, (args.batch,), generator=draws)
        x = torch.stack([torch.from_numpy(tokens[i : i + length].astype(np.int64)) for i in ix])
        y = torch.stack(
            [torch.from_numpy(tokens[i + 1 : i + 1 + length].astype(np.int64)) for i in ix]
        )
        if args.device == "cpu":
            return x, y
        return (
            x.pin_memory().to(args.device, non_blocking=True),
            y.pin_memory().to(args.device, non_blocking=True),
        )

    yield get_batch


@contextlib.contextmanager
def by_evenkeel(path, args):
    tokens = evenkeel.tokens(path, budget=BUDGET)
    with evenkeel.TokenLoader(
        tokens, args.batch, args.block, seed=SEED, device=args.device
    ) as loader:
        yield loader.__next__


WAYS = {"none": no_loader, "memmap": memmap_anew, "evenkeel": by_evenkeel}


# --- the training


class Trainer:
    def __init__(self, args):
        torch.manual_seed(SEED)
        torch.set_float32_matmul_precision("high")
        self.args, self.kind = args, torch.device(args.device).type
        self.on_gpu = self.kind == "cuda"
        self.model = GPT2(args.sizes).to(args.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=self.on_gpu
        )
        self.run = torch.compile(self.model) if args.compile else self.model

    def step(self, x, y, get_batch):
        """One step on (x, y). Returns the loss, the next batch, and the seconds get_batch took."""
        with torch.autocast(self.kind, torch.bfloat16):
            loss = self.run(x, y)
        asked = time.perf_counter()
        following = get_batch()
        waited = time.perf_counter() - asked
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach(), following, waited

    def now(self):
        """A time stamp on the device: when the device gets there, not when the program does."""
        if not self.on_gpu:
            return time.perf_counter()
        moment = torch.cuda.Event(enable_timing=True)
        moment.record()
        return moment

    def between(self, one, other):
        return one.elapsed_time(other) / 1e3 if self.on_gpu else other - one

    def settle(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def train(self, get_batch, steps):
        """Trains for `steps` steps, after loading a first batch."""
        began = time.perf_counter()
        x, y = get_batch()
        first = time.perf_counter() - began
        waits, moments, losses = [], [self.now()], []
        began = time.perf_counter()
        for _ in range(steps):
            loss, (x, y), waited = self.step(x, y, get_batch)
            waits.append(waited)
            losses.append(loss)
            moments.append(self.now())
        self.settle()
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds,
            "tokens_per_s": steps * self.args.batch * self.args.block / seconds,
            "first_batch_s": first,
            "step_s": [self.between(*pair) for pair in zip(moments[:-1], moments[1:], strict=True)],
            "get_batch_s": waits,
            "losses": [losses[0].item(), losses[-1].item()],
        }


def disk_bytes():
    """Bytes read from the disk by this process."""
    with open("/proc/self/io") as io:
        return dict(line.split(": ") for line in io.read().splitlines())["read_bytes"]


def measured(way, trainer, path, args):
    """Runs one round of one way, from a file that is not cached."""
    stayed = data.make_cold(path)
    if stayed:
        data.say(f"gpu_train: {stayed} bytes of the file could not be dropped from the cache")
    with no_loader(path, args) as fixed:
        trainer.train(fixed, args.warmup)
    cached, read = data.cached_bytes(path), int(disk_bytes())
    with WAYS[way](path, args) as get_batch:
        result = trainer.train(get_batch, args.steps)
        grown = None if cached is None else data.cached_bytes(path) - cached
    result["cache_growth_bytes"] = grown
    result["wanted_bytes"] = (args.steps + 1) * args.batch * (args.block + 1) * 2
    result["disk_bytes"] = int(disk_bytes()) - read
    if not all(map(math.isfinite, result["losses"])):
        sys.exit(f"gpu_train: the loss of {way} became {result['losses']}")
    return result


def check(path, args):
    """Checks Evenkeel's first batch against a memmap, at the places that the loader reports."""
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    opened = evenkeel.tokens(path, budget=BUDGET)
    with evenkeel.TokenLoader(
        opened, args.batch, args.block, seed=SEED, device=args.device
    ) as loader:
        starts = [row["start"] for row in loader.explain(0)]
        x, y = (one.cpu().numpy() for one in next(loader))
    for shift, given in enumerate((x, y)):
        cut = [tokens[i + shift : i + shift + args.block] for i in starts]
        if not np.array_equal(given, np.stack(cut)):
            sys.exit("gpu_train: Evenkeel's batch differs from the file")


def make_tokens(path, size, vocabulary):
    """A file of random tokens of the model's vocabulary, no two blocks alike."""
    random = np.random.default_rng(SEED)

    def block(at):
        return random.integers(0, vocabulary, 8 * data.MIB, dtype=np.uint16).tobytes()

    return data.make(path, size, block=block)


# --- the table


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def summary(rounds):
    """The figures of all rounds of one way."""
    steps = [one for r in rounds for one in r["step_s"]]
    waits = [one for r in rounds for one in r["get_batch_s"]]
    growths = [r["cache_growth_bytes"] for r in rounds]
    return {
        "step_median_ms": statistics.median(steps) * 1e3,
        "step_mean_ms": statistics.mean(steps) * 1e3,
        "step_p99_ms": quantile(steps, 0.99) * 1e3,
        "get_batch_median_ms": statistics.median(waits) * 1e3,
        "get_batch_p99_ms": quantile(waits, 0.99) * 1e3,
        "tokens_per_s": statistics.median(r["tokens_per_s"] for r in rounds),
        "tokens_per_s_of_rounds": [r["tokens_per_s"] for r in rounds],
        "first_batch_ms": statistics.median(r["first_batch_s"] for r in rounds) * 1e3,
        "cache_growth_bytes": None if None in growths else max(growths),
        "disk_bytes_per_byte_wanted": statistics.median(
            r["disk_bytes"] / r["wanted_bytes"] for r in rounds
        ),
        "losses": [r["losses"] for r in rounds],
    }


def print_table(ways):
    line = "{:<10}{:>10}{:>10}{:>11}{:>10}{:>12}{:>9}{:>12}{:>7}"
    print(line.format("", "step", "step", "get_batch", "get_batch", "", "of no", "page", "read/"))
    print(
        line.format(
            "loader", "median", "p99", "median", "p99", "tokens/s", "loader", "cache", "wanted"
        )
    )
    for name, figures in ways.items():
        growth = figures["cache_growth_bytes"]
        base = ways["none"]["tokens_per_s"] if "none" in ways else None
        print(
            line.format(
                name,
                f"{figures['step_median_ms']:.2f} ms",
                f"{figures['step_p99_ms']:.2f} ms",
                f"{figures['get_batch_median_ms']:.3f} ms",
                f"{figures['get_batch_p99_ms']:.2f} ms",
                f"{figures['tokens_per_s']:,.0f}",
                f"{figures['tokens_per_s'] / base:.1%}" if base else "",
                "unknown" if growth is None else f"+{growth / data.MIB:,.1f} MiB",
                f"{figures['disk_bytes_per_byte_wanted']:.1f}",
            )
        )


def machine(args, path):
    return {
        "device": torch.cuda.get_device_name() if args.device != "cpu" else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "evenkeel": evenkeel.__version__,
        "engine": evenkeel.tokens(path, budget=BUDGET).engine,
        "read_ahead_kib": data.readahead_kib(path),
    }


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--way", action="append", choices=WAYS, help="repeatable; default: all")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=200, help="steps per round")
    parser.add_argument("--rounds", type=int, default=3, help="each way runs once per round")
    parser.add_argument("--warmup", type=int, default=10, help="uncounted steps before a round")
    parser.add_argument(
        "--size", type=float, default=12, metavar="GIB", help="size of the token file"
    )
    parser.add_argument(
        "--dir", type=pathlib.Path, default=ROOT / ".cache/bench", help="a disk, not tmpfs"
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file")
    parser.add_argument("--keep", action="store_true", help="keep the token file for the next run")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument(
        "--small", action="store_true", help="a small model, little data, few steps"
    )
    args = parser.parse_args()
    args.sizes = Sizes(length=args.block)
    if args.small:
        args.sizes = Sizes(vocabulary=256, length=64, width=32, heads=2, layers=2)
        args.batch, args.block, args.steps, args.rounds, args.warmup = 8, 64, 10, 2, 2
        args.size, args.compile = 0.125, False
    return args


def main():
    args = options()
    if args.small:
        torch.set_num_threads(1)
    args.dir.mkdir(parents=True, exist_ok=True)
    name = f"gpu-train-{args.sizes.vocabulary}-{args.size:g}GiB.bin"
    path = make_tokens(args.dir / name, int(args.size * data.GIB), args.sizes.vocabulary)
    names = args.way or list(WAYS)
    try:
        trainer = Trainer(args)
        weights = sum(weight.numel() for weight in trainer.model.parameters())
        data.say(f"{weights / 1e6:.1f} million weights, batches of {args.batch} x {args.block}")
        began = time.perf_counter()
        with no_loader(path, args) as fixed:
            trainer.train(fixed, args.warmup)
        data.say(f"compiled and warm after {time.perf_counter() - began:.1f} s")
        rounds = {name: [] for name in names}
        for number in range(args.rounds):
            for name in names:
                result = measured(name, trainer, path, args)
                rounds[name].append(result)
                data.say(f"round {number + 1}, {name}: {result['tokens_per_s']:,.0f} tokens/s")
        check(path, args)
        described = machine(args, path)
    finally:
        if not args.keep:
            path.unlink()
    ways = {name: summary(rounds[name]) for name in names}
    print(", ".join(f"{key} {value}" for key, value in described.items()))
    print_table(ways)
    if args.json:
        report = {
            "machine": described,
            "weights": weights,
            "batch": args.batch,
            "block": args.block,
            "steps": args.steps,
            "rounds": args.rounds,
            "file_bytes": int(args.size * data.GIB),
            "ways": ways,
            "all_rounds": rounds,
        }
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
