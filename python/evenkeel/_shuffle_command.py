"""`evenkeel shuffle` with --manifest: the command line of evenkeel.plan_shuffle.

cli/shuffle.cc has the same options and runs all other shuffles itself; a test compares the options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from evenkeel import _command

_PLANNED = ("unit", "dtype", "shape", "block", "bos", "eos", "format", "seed", "checksums")


def parser() -> argparse.ArgumentParser:
    out = _command.Parser("evenkeel shuffle")
    add = out.add_argument
    add("files", nargs="*", metavar="FILE")
    add("-o", "--output")
    add("--unit")
    add("--dtype")
    add("--shape", type=lambda text: [int(axis) for axis in text.split(",")])
    add("--block", type=int, default=0)
    add("--bos", type=int)
    add("--eos", type=int)
    add("--format")
    add("--seed", type=int, default=0)
    add("--budget")
    add("--checkpoint", default="1GiB")
    add("--checksums", action="store_true")
    add("--resume", action="store_true")
    _command.add_manifest_options(out)
    return out


def main(words: Sequence[str]) -> int:
    return _command.main(words, parser(), _run, _say)


def _run(given: argparse.Namespace) -> dict[str, Any]:
    import evenkeel

    show = (lambda now: _command.show_line(now, now["step"])) if sys.stderr.isatty() else None
    done = _command.part_or_finish(given, parser(), show)
    if done is not None:
        return done
    if given.manifest is None:
        raise ValueError("shuffle: --parts, --part and --finish need --manifest")
    if not given.files or given.output is None:
        raise ValueError(
            "shuffle: needs files and --output\nhint: evenkeel shuffle train.npy -o mixed.npy"
            " --manifest m.json --parts 64"
        )
    _command.require_parts(given, parser(), [*_PLANNED, "budget"])
    manifest = evenkeel.plan_shuffle(
        given.files,
        given.output,
        parts=given.parts,
        scratch=given.scratch,
        budget=given.budget,
        **{name: getattr(given, name) for name in _PLANNED},
    )
    return _command.saved(manifest, given.manifest)


def _say(report: dict[str, Any]) -> None:
    for output in report.get("outputs", []):
        print(f"{output['path']}: {output['items']:,} {report['unit']} by seed {report['seed']}")
    if "step" in report:
        print(f"{report['step']}: {report['items']:,} items")
    if report.get("seconds"):
        print(f"{report['seconds']:.1f} s")
    elif report.get("resumed"):
        print("everything was already done")
