#!/usr/bin/env python3
"""Kills a command repeatedly at random moments, resumes it, and compares its output.

    .venv/bin/python bench/kill_resume.py dedup merge --kills 200
    .venv/bin/python bench/kill_resume.py                               all commands

A command runs with --resume and frequent checkpoints. All its processes are killed (SIGKILL) at a
random moment of the time that a whole run takes. A run that ends before that must have written the
same bytes as an undisturbed run, and left nothing else; then the next begins from nothing. After
the last kill, the command is resumed once more and must complete.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = os.environ.get("EVENKEEL_TOOL") or str(ROOT / "build" / "evenkeel")
SMALL = ["--budget", "16MiB", "--checkpoint", "256KiB"]
MIB = 1 << 20


def lines(size):
    """JSON lines; a quarter of them occur twice."""
    draw = random.Random(5)
    texts = ["".join(draw.choices("abcdefgh ", k=draw.randint(1, 400))) for _ in range(6_000)]
    made = [json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(texts)]
    made = (made + draw.choices(made, k=2_000)) * (1 + size // (1_600_000))
    return "".join(made[: len(made) * size // sum(map(len, made))]).encode()


def rows(size):
    """Rows of 64 int64, as NPY."""
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({size // 512}, 64), }}"
    head = head.ljust(117) + "\n"
    draw = random.Random(6)
    data = b"".join((draw.getrandbits(30)).to_bytes(8, "little") for _ in range(size // 512 * 64))
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


# What is run, on how many MiB of lines or rows, and which files it makes. The figures of `stats`
# are its output. `verify` begins again, because it only reads.
PARTS = [f"out_{n:05}" for n in range(5)]
COMMANDS = {
    "convert": (rows, 8, ["in", "-o", "out", "--to", "float32", *SMALL], ["out"]),
    "merge": (
        lines,
        8,
        ["in", "more", "-o", "out_{}", "--unit", "lines", "--weights", "2,1", "--repeat"]
        + ["--parts", "5", *SMALL],
        PARTS,
    ),
    "split": (lines, 8, ["in", "-o", "out_{}", "--unit", "lines", "--parts", "5", *SMALL], PARTS),
    "sample": (rows, 8, ["in", "-o", "out", "--count", "12000", "--seed", "3", *SMALL], ["out"]),
    "dedup": (lines, 8, ["in", "-o", "out", "--unit", "lines", *SMALL], ["out"]),
    "shuffle": (lines, 8, ["in", "-o", "out", "--unit", "lines", *SMALL], ["out"]),
    "tokenize": (
        lines,
        32,
        ["in", "--input-format", "jsonl", "-o", "train.bin", "--format", "megatron"]
        + ["--tokenizer", "bytes", "--workers", "2", "--val-share", "0.1", "--checkpoint", "1MiB"],
        ["train.bin", "train.idx", "val.bin", "val.idx"],
    ),
    "stats": (rows, 8, ["in", "--state", "in.state", *SMALL], []),
    "verify": (rows, 64, ["in", "--write"], ["in.xxh3"]),
}
RUN_ALONE = ("seconds", "resumed", "budget_peak_bytes")  # of a report: not of the data


class Runs:
    """Runs of one command in a folder of its own."""

    def __init__(self, name, folder):
        make, size, words, self.outputs = COMMANDS[name]
        self.folder = folder
        self.command = [TOOL, name, *words]
        self.resume = [] if name == "verify" else ["--resume"]
        self.env = {"EVENKEEL_PYTHON": sys.executable, **os.environ}
        self.inputs = {"in"} | {word for word in words if word == "more"}
        for path in self.inputs:
            (folder / path).write_bytes(make(size * MIB if path == "in" else size * MIB // 8))

    def made(self, report):
        data = [(self.folder / path).read_bytes() for path in self.outputs]
        if not data:
            figures = {name: value for name, value in report.items() if name not in RUN_ALONE}
            data = [json.dumps(figures).encode()]
        return [hashlib.sha256(one).hexdigest() for one in data]

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def clean(self):
        for path in self.folder.iterdir():
            if path.name not in self.inputs:
                path.unlink()

    def run(self, limit=None):
        """The report, or None if it was killed."""
        child = subprocess.Popen(
            [*self.command, "--json", *self.resume],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            said, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return None
        assert child.returncode == 0, child.returncode
        report = json.loads(said)
        return report if isinstance(report, dict) else {"resumed": False}


def kill(name, folder, kills, draw):
    runs = Runs(name, folder)
    times = []
    for _ in range(3):
        runs.clean()
        began = time.monotonic()
        report = runs.run()
        times.append(time.monotonic() - began)
    whole = statistics.median(times)
    wanted, left = runs.made(report), runs.names()
    runs.clean()
    killed = checkpointed = complete = resumed = 0
    unfinished = False
    while killed < kills or unfinished:
        report = runs.run(draw.uniform(0, 1.2 * whole) if killed < kills else None)
        unfinished = report is None
        if report is None:
            killed += 1
            checkpointed += any(path.endswith(("state", ".split")) for path in runs.names())
            continue
        assert runs.made(report) == wanted, "other bytes"
        assert runs.names() == left, f"something is left: {runs.names()}"
        complete += 1
        resumed += report["resumed"]
        runs.clean()
    print(
        f"{name}: {killed} kills, {checkpointed} of them after a checkpoint; {complete} complete"
        f" runs, {resumed} of them resumed; all made the same bytes ({whole:.2f} s a run)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", nargs="*", help=f"of {', '.join(COMMANDS)}; default: all")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.command or COMMANDS:
        if name not in COMMANDS:
            parser.error(f"there is no {name}")
        with tempfile.TemporaryDirectory(prefix="evenkeel-kill-", dir=".") as folder:
            kill(name, pathlib.Path(folder).resolve(), options.kills, random.Random(options.seed))


if __name__ == "__main__":
    main()
