"""`evenkeel tokenize`: the command line of evenkeel.tokenize and evenkeel.plan.

cli/tokenize.cc has the same options, for the tool's help, completions and manual; a test compares
them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from evenkeel import _command


def parser() -> argparse.ArgumentParser:
    out = _command.Parser("evenkeel tokenize")
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
    _command.add_manifest_options(out)
    return out


def _unescaped(text: str) -> str:
    """Replaces `\\n`, `\\t` and `\\\\`, as they are typed in a shell."""
    meant = {"n": "\n", "t": "\t", "\\": "\\"}
    return re.sub(r"\\([nt\\])", lambda found: meant[found[1]], text)


def main(words: Sequence[str]) -> int:
    return _command.main(words, parser(), _run, _say)


def _run(given: argparse.Namespace) -> dict[str, Any]:
    import evenkeel
    from evenkeel._tokenize.job import OPTIONS

    progress = _show if sys.stderr.isatty() else None
    done = _command.part_or_finish(given, parser(), progress)
    if done is not None:
        return done
    if not given.files or given.output is None or given.tokenizer is None:
        raise ValueError(
            "tokenize: needs files, --output and --tokenizer\nhint: evenkeel tokenize"
            " corpus.jsonl -o train.bin --tokenizer gpt2"
        )
    same = {name: getattr(given, name) for name in OPTIONS}
    if given.manifest is not None:
        _command.require_parts(given, parser(), OPTIONS)
        manifest = evenkeel.plan(
            given.files,
            given.output,
            parts=given.parts,
            scratch=given.scratch,
            **same,
        )
        return _command.saved(manifest, given.manifest)
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


def _show(now: dict[str, Any]) -> None:
    text = f"{now['tokens']:,} tokens, {now['bytes_per_second'] / (1 << 20):.1f} MiB/s"
    if now["seconds_left"] is not None:
        text += f", {now['seconds_left']:.0f} s left"
    _command.show_line(now, text)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _say(report: dict[str, Any]) -> None:
    for output in report["outputs"]:
        print(
            f"{output['path']}: {_counted(output['documents'], 'document')},"
            f" {_counted(output['tokens'], 'token')} of {report['dtype']}"
        )
    if report["empty_documents"]:
        print(f"left out: {_counted(report['empty_documents'], 'empty document')}")
    if report.get("seconds"):
        speed = report["text_bytes"] / (1 << 20) / max(report["seconds"], 1e-3)
        print(
            f"{report['seconds']:.1f} s, {speed:.1f} MiB/s of text by"
            f" {_counted(report['workers'], 'worker')};"
            f" documents of up to {report['longest_document_bytes']:,} bytes fit the budget of"
            f" {report['budget_bytes'] >> 20:,} MiB"
        )
    elif report.get("resumed"):
        print("everything was already done")
