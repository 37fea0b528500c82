"""`evenkeel tokenize`: the command line of evenkeel.tokenize and evenkeel.plan.

cli/tokenize.cc has the same options, for the tool's help, completions and manual; a test compares
them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

# What users are told, and not shown a traceback of.
_ERRORS = (OSError, ValueError, TypeError, LookupError, ImportError, RuntimeError, MemoryError)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(
            f"evenkeel: {message}\nusage: evenkeel tokenize --help lists what can be given\n"
        )
        sys.exit(2)


def parser() -> argparse.ArgumentParser:
    out = _Parser(prog="evenkeel tokenize", allow_abbrev=False)
    add = out.add_argument
    add("files", nargs="*", metavar="FILE")
    add("-o", "--output")
    add("--tokenizer")
    add("--format")
    add("--dtype")
    add("--eot", default="auto")
    add("--text-key", default="text")
    add("--separator", type=_unescaped)
    add("--input-format")
    add("--invalid", default="error")
    add("--special", default="text")
    add("--val-share", type=float, default=0.0)
    add("--val-output")
    add("--seed", type=int, default=0)
    add("--workers", type=int)
    add("--budget")
    add("--checkpoint", default="256MiB")
    add("--checksums", action="store_true")
    add("--resume", action="store_true")
    add("--manifest")
    add("--parts", type=int)
    add("--scratch")
    add("--part", type=int)
    add("--finish", action="store_true")
    add("--json", action="store_true")
    return out


def _unescaped(text: str) -> str:
    """`\\n` and `\\t` as people type them in a shell."""
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")


def main(words: Sequence[str]) -> int:
    # As the tool ends on these signals: quickly, with what has a checkpoint kept.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    arguments = parser().parse_args(words)
    try:
        report = _run(arguments)
    except KeyboardInterrupt:
        _clear()
        return 128 + signal.SIGINT
    except _ERRORS as error:
        _clear()
        sys.stderr.write(f"evenkeel: {error}\n")
        return 1
    _clear()
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        _say(report)
    return 0


def _run(given: argparse.Namespace) -> dict[str, Any]:
    import evenkeel
    from evenkeel._core import Budget
    from evenkeel._tokenize.job import OPTIONS

    progress = _Line().show if sys.stderr.isatty() else None
    if given.part is not None or given.finish:
        if given.manifest is None or given.files:
            raise ValueError("tokenize: --part and --finish need --manifest and no files")
        manifest = evenkeel.Manifest.load(given.manifest)
        if given.finish:
            return manifest.finish(budget=given.budget or "64MiB")
        return manifest.run(
            given.part,
            workers=given.workers,
            budget=given.budget,
            checkpoint=Budget(given.checkpoint).limit,
            progress=progress,
        )
    if not given.files or given.output is None or given.tokenizer is None:
        raise ValueError(
            "tokenize: files, --output and --tokenizer are needed\nhint: evenkeel tokenize"
            " corpus.jsonl -o train.bin --tokenizer gpt2"
        )
    same = {name: getattr(given, name) for name in OPTIONS}
    if given.manifest is not None:
        if given.parts is None:
            raise ValueError("tokenize: --manifest needs --parts: how many there shall be")
        manifest = evenkeel.plan(
            given.files,
            given.output,
            parts=given.parts,
            scratch=given.scratch,
            **same,
        )
        manifest.save(given.manifest)
        return {"manifest": os.path.abspath(given.manifest), "parts": len(manifest)}
    if given.parts is not None or given.scratch is not None:
        raise ValueError("tokenize: --parts and --scratch need --manifest, the file to write")
    return evenkeel.tokenize(
        given.files,
        given.output,
        workers=given.workers,
        budget=given.budget,
        checkpoint=given.checkpoint,
        resume=given.resume,
        progress=progress,
        **same,
    )


class _Line:
    """One line of a terminal, written again and again."""

    def show(self, now: dict[str, Any]) -> None:
        share = now["done"] / max(1, now["total"])
        filled = int(20 * share)
        text = f"{'━' * filled}{'╌' * (20 - filled)} {100 * share:3.0f} %  {now['tokens']:,} tokens"
        text += f", {now['bytes_per_second'] / (1 << 20):.1f} MiB/s"
        if now["seconds_left"] is not None:
            text += f", {now['seconds_left']:.0f} s left"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _say(report: dict[str, Any]) -> None:
    if "manifest" in report:
        print(f"{report['manifest']}: {report['parts']} parts")
        print("next: evenkeel tokenize --manifest FILE --part I for each of them, then --finish")
        return
    for output in report["outputs"]:
        print(
            f"{output['path']}: {output['documents']:,} documents, {output['tokens']:,} tokens of"
            f" {report['dtype']}"
        )
    if report["empty_documents"]:
        print(f"{report['empty_documents']:,} empty documents were left out")
    if report.get("seconds"):
        speed = report["text_bytes"] / (1 << 20) / max(report["seconds"], 1e-3)
        print(
            f"{report['seconds']:.1f} s, {speed:.1f} MiB/s of text by {report['workers']} workers;"
            f" documents of up to {report['longest_document_bytes']:,} bytes fit the budget of"
            f" {report['budget_bytes'] >> 20:,} MiB"
        )
    elif report.get("resumed"):
        print("all of it was done before")
