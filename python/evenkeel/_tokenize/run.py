"""Runs a job on this machine: items in order, through the workers, to the outputs."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from evenkeel._core import Budget
from evenkeel._files import AnyBudget, printable
from evenkeel._manifest import Progress, callback, read_json, write_json
from evenkeel._stepping import whole
from evenkeel._tokenize import encoders
from evenkeel._tokenize.documents import Position, TooLong, items, span_bytes
from evenkeel._tokenize.inputs import PIECE, Span
from evenkeel._tokenize.job import Job, tokens_at
from evenkeel._tokenize.pool import WINDOW, Alone, Pool
from evenkeel._write_tokens import TokenWriter

MIB = 1 << 20
_WRITER = 16 * MIB
_END = (1 << 62, 0)  # after all items


class Memory:
    """How the budget is divided: the number of workers, and the longest document of each."""

    def __init__(
        self, job: Job, encoder: encoders.Encoder, workers: int | None, budget: AnyBudget
    ) -> None:
        if workers is not None:
            workers = whole("tokenize: workers", workers)
        if workers is not None and workers < 0:
            raise ValueError(f"tokenize: workers must not be negative; got {workers}")
        wanted = len(os.sched_getaffinity(0)) if workers is None else max(1, workers)
        if budget is None:
            budget = min(Budget().limit, max(512 * MIB, 256 * MIB * wanted))
        self.budget = Budget(budget).limit
        self.writer = min(_WRITER, self.budget // 8)
        for_workers = self.budget - self.writer * len(job.outputs)
        token = np.dtype(job.dtype).itemsize
        # For a document: its bytes as they are read, sent and decoded, the memory of the library,
        # and its tokens. For pieces: the one that is read, and answers that wait for their turn.
        each = encoder.memory + 6 + token
        pieces = PIECE * (3 + WINDOW * token)
        least = pieces + each * PIECE
        self.workers = min(wanted, for_workers // least)
        if self.workers < 1:
            raise MemoryError(
                f"tokenize: a budget of {self.budget / MIB:.0f} MiB does not hold one worker, which"
                f" takes {least / MIB:.0f} MiB for documents of 1 MiB beside"
                f" {self.writer * len(job.outputs) / MIB:.0f} MiB to write\nhint: use a larger"
                " budget"
            )
        self.longest = max(PIECE, (for_workers // self.workers - pieces) // each)
        if workers == 0:
            self.workers = 0

    def hint(self) -> str:
        return (
            f"\nhint: the budget is {self.budget / MIB:.0f} MiB for {self.workers} workers; a"
            " larger one, or fewer workers, allow longer documents. Each text file is one"
            " document, unless --separator is given"
        )


class _Output:
    """A token file, and its position."""

    def __init__(self, job: Job, path: str, fingerprint: str, memory: int, resume: bool) -> None:
        self.at: Position = (0, 0)
        self.final = False
        self.counts: dict[str, Any] = {}
        self.fingerprint = fingerprint
        self.writer = TokenWriter(
            path,
            job.format,
            job.dtype,
            eot=job.eot,
            budget=memory,
            checksums=job.checksums,
            resume=resume,
        )
        if self.writer.state:
            state = json.loads(self.writer.state)
            if state["job"] != fingerprint:
                self.writer._drop()
                raise ValueError(
                    f"tokenize {printable(path)}: the unfinished work there has other inputs or"
                    " options\nhint: start again without --resume"
                )
            self.at = tuple(state["at"])
            self.counts = state["counts"]
            self.final = self.at == _END

    def checkpoint(self, at: Position, counts: dict[str, Any]) -> None:
        self.at, self.counts = at, dict(counts)
        self.writer.checkpoint(
            json.dumps({"job": self.fingerprint, "at": list(at), "counts": counts})
        )


def token_path(job: Job, path: str) -> str:
    return tokens_at(job.format, path)


def report_path(job: Job) -> str:
    return token_path(job, job.outputs[0]) + ".tokenize.json"


def finished_report(job: Job) -> dict[str, Any] | None:
    """The report of an earlier run that completed this job; None if there is none."""
    report: dict[str, Any] | None = read_json(report_path(job))
    if report is None:
        return None
    files = [token_path(job, path) for path in job.outputs]
    if job.checksums:
        files += [path + ".xxh3" for path in files]
    done = all(os.path.exists(path) for path in files)
    under_way = any(os.path.exists(token_path(job, path) + ".partial") for path in job.outputs)
    return report if report.get("job") == job.fingerprint() and done and not under_way else None


def _remove_leftovers(job: Job) -> None:
    """What a run leaves that is killed when a file had just got its name. All are complete now."""
    for tokens in (token_path(job, path) for path in job.outputs):
        beside = {"megatron": tokens[:-4] + ".idx.lengths", "datatrove": tokens + ".index"}
        for path in filter(None, (tokens, beside.get(job.format))):
            for ending in (".partial", ".partial.state", ".partial.state.new"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + ending)


def run(
    job: Job,
    encoder: encoders.Encoder,
    spans: Sequence[Span],
    *,
    workers: int | None,
    budget: AnyBudget,
    resume: bool,
    checkpoint: int,
    progress: Progress | None,
) -> dict[str, Any]:
    began = time.monotonic()
    progress = callback(progress)
    memory = Memory(job, encoder, workers, budget)
    if resume:
        report = finished_report(job)
        if report is not None:
            _remove_leftovers(job)
            return {**report, "resumed": True, "seconds": 0.0}
    elif os.path.exists(report_path(job)):
        os.unlink(report_path(job))
    outputs = _open(job, memory.writer, resume)
    try:
        unfinished = [output for output in outputs if output is not None]
        slowest = min(unfinished, key=lambda output: output.at)
        resumed = slowest.at > (0, 0)
        counts: dict[str, Any] = {"documents": 0, "empty": 0, "text_bytes": 0, **slowest.counts}
        peaks: list[int] = []
        if slowest.at != _END:
            view = _View(job, spans, progress, began)
            peaks = _work(job, spans, memory, outputs, slowest.at, counts, checkpoint, view)
        return {
            **_finish(job, outputs, counts),
            "resumed": resumed,
            "workers": memory.workers,
            "budget_bytes": memory.budget,
            "longest_document_bytes": memory.longest,
            "workers_peak_bytes": max(peaks, default=0),
            "seconds": time.monotonic() - began,
        }
    except TooLong as error:
        raise ValueError(str(error) + memory.hint()) from None
    finally:
        for output in outputs:
            if output is not None:
                output.writer._drop()


class _View:
    """Reports progress, at most a few times per second."""

    _INTERVAL = 0.2  # seconds

    def __init__(
        self, job: Job, spans: Sequence[Span], progress: Progress | None, began: float
    ) -> None:
        self._progress = progress
        self._total = sum(span_bytes(job.inputs, span) for span in spans)
        self._began, self._last = began, began
        self._first: int | None = None

    def show(self, done: int, tokens: int, documents: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = done  # not 0 in a run that was resumed
        if self._progress is None or now - self._last < self._INTERVAL:
            return
        self._last = now
        speed = (done - self._first) / max(now - self._began, 1e-3)
        self._progress(
            {
                "done": done,
                "total": self._total,
                "tokens": tokens,
                "documents": documents,
                "bytes_per_second": speed,
                "seconds_left": (self._total - done) / speed if speed > 0 else None,
            }
        )


def _open(job: Job, memory: int, resume: bool) -> list[_Output | None]:
    """The writers. None for an output that an earlier run completed: then all outputs had a
    checkpoint at the end, and the remaining ones confirm that."""
    fingerprint = job.fingerprint()
    opened: dict[str, _Output] = {}
    try:
        if resume:
            for path in job.outputs:
                if os.path.exists(token_path(job, path) + ".partial.state"):
                    opened[path] = _Output(job, path, fingerprint, memory, True)
        complete = bool(opened) and all(output.final for output in opened.values())
        for path in job.outputs:
            if path not in opened and not (complete and os.path.exists(token_path(job, path))):
                opened[path] = _Output(job, path, fingerprint, memory, False)
    except BaseException:
        for output in opened.values():
            output.writer._drop()
        raise
    return [opened.get(path) for path in job.outputs]


def _work(
    job: Job,
    spans: Sequence[Span],
    memory: Memory,
    outputs: Sequence[_Output | None],
    start: Position,
    counts: dict[str, Any],
    checkpoint: int,
    view: _View,
) -> list[int]:
    """Processes all items from `start` on. An output that is ahead of others skips items until its
    position."""
    dtype = np.dtype(job.dtype)
    source = items(job.inputs, spans, start, job.splitter(), job.text_key, memory.longest)
    saved = counts["text_bytes"]
    pool: Pool | Alone = (
        Alone(job, memory.longest, source)
        if memory.workers == 0
        else Pool(job, memory.workers, memory.longest, source)
    )
    with pool:
        for at, done, tokens, more in pool:
            for output, (data, lengths) in zip(outputs, tokens):
                if output is not None and output.at < at and lengths:
                    output.writer.append_documents(
                        np.frombuffer(data, dtype), np.frombuffer(lengths, np.int64)
                    )
            for name, count in more.items():
                counts[name] += count
            if counts["text_bytes"] - saved >= checkpoint:
                saved = counts["text_bytes"]
                _checkpoint(outputs, at, counts)
            view.show(
                done, sum(o.writer.tokens for o in outputs if o is not None), counts["documents"]
            )
        return list(pool.peaks)


def _checkpoint(outputs: Sequence[_Output | None], at: Position, counts: dict[str, Any]) -> None:
    for output in outputs:
        if output is not None and output.at < at:
            output.checkpoint(at, counts)


def _finish(job: Job, outputs: Sequence[_Output | None], counts: dict[str, Any]) -> dict[str, Any]:
    """Completes the files. A run that is killed here resumes at the end: the report, which says
    that everything is done, is written before the last file gets its name."""
    totals = counts.get("outputs")
    if totals is None:
        totals = [  # of all outputs, for the report of a run that finds some of them complete
            [output.writer.documents, output.writer.tokens] for output in outputs if output
        ]
    counts["outputs"] = totals
    _checkpoint(outputs, _END, counts)
    made = [
        {"path": token_path(job, path), "documents": documents, "tokens": tokens}
        for path, (documents, tokens) in zip(job.outputs, totals)
    ]
    report = report_of(job, made, {name: counts[key] for key, name in COUNTS.items()})
    for output in outputs[:-1]:
        if output is not None:
            output.writer.close()
    write_json(report_path(job), report)
    if outputs[-1] is not None:
        outputs[-1].writer.close()
    _remove_leftovers(job)
    return report


# The counters, and their names in reports.
COUNTS = {"documents": "documents", "empty": "empty_documents", "text_bytes": "text_bytes"}


def report_of(job: Job, outputs: list[dict[str, Any]], counts: dict[str, int]) -> dict[str, Any]:
    """The report beside the outputs: the same for any number of workers."""
    return {
        "job": job.fingerprint(),
        "outputs": outputs,
        **counts,
        "tokens": sum(output["tokens"] for output in outputs),
        "format": job.format,
        "dtype": job.dtype,
        "eot": job.eot,
        "tokenizer": {k: v for k, v in job.tokenizer.items() if k in ("library", "name", "file")},
    }
