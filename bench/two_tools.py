#!/usr/bin/env python3
"""Compares two builds of the tool: alternates the same reads, and prints the ratio of their speeds.

usage: bench/two_tools.py TOOL OTHER [--dir FOLDER] [--rounds N] [--seconds S] [--size BYTES]

A ratio above 1 means that OTHER is faster. Each is the median of the rounds, with the smallest and
the largest beside it: other load on the machine affects both tools of a round alike.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from side_by_side import data
from side_by_side.data import MIB, say

WORKS = {
    "scan, direct": ["compare", "--pattern", "scan", "--engines", "direct"],
    "crops, direct": ["compare", "--pattern", "crops", "--engines", "direct"],
    "crops, auto, cached": ["compare", "--pattern", "crops", "--engines", "auto", "--warm"],
    "token batches": ["batches", "--batch-size", "64", "--block-size", "1024", "--steps", "1500"],
}


def speed(tool: str, work: str, file: pathlib.Path, seconds: float) -> float:
    command, *options = WORKS[work]
    if command == "compare":
        options += ["--seconds", str(seconds)]
    words = [tool, command, str(file), "--dtype", "uint16", "--json", "--budget", "64MiB", *options]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"two_tools: exit status {done.returncode}: {' '.join(words)}\n{done.stdout}")
    report = json.loads(done.stdout)
    return report["results"][0]["items_per_s"] if command == "compare" else report["tokens_per_s"]


def main() -> None:
    parser = argparse.ArgumentParser(usage=(__doc__ or "").split("usage: ")[1].split("\n")[0])
    parser.add_argument("tools", nargs=2)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--rounds", type=int, default=5, help="at least 2")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--size", type=int, default=1024 * MIB)
    options = parser.parse_args()
    file = data.make(options.dir / "two-tools.bin", options.size)
    try:
        for work in WORKS:
            ratios = []
            for turn in range(options.rounds):
                # The first finds another cache state than the second, so they alternate.
                order = (0, 1) if turn % 2 == 0 else (1, 0)
                speeds = {i: speed(options.tools[i], work, file, options.seconds) for i in order}
                ratios.append(speeds[1] / speeds[0])
                say(f"  {work}: {ratios[-1]:.3f}")
            least, *_, most = sorted(ratios)
            print(f"{work:<24} {statistics.median(ratios):.2f} ({least:.2f} to {most:.2f})")
    finally:
        file.unlink()


if __name__ == "__main__":
    main()
