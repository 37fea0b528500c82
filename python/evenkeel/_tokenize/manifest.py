"""Work cut into parts by a manifest, for any engine that can run a command many times."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from evenkeel._array import AnyBudget
from evenkeel._files import PathLike, printable
from evenkeel._tokenize import encoders
from evenkeel._tokenize.inputs import Span, cut
from evenkeel._tokenize.job import Job
from evenkeel._tokenize.run import (
    COUNTS,
    Progress,
    finished_report,
    report_of,
    report_path,
    run,
    write_json,
)
from evenkeel._write import TokenWriter

VERSION = 1
_PARTS = ".parts"  # of the name of the scratch folder, unless another is told
_MERGED = 8 << 20  # bytes of tokens that are copied at a time


class Manifest:
    """A tokenize job in parts; made by `evenkeel.plan`, or loaded from a file.

    Part i is a pure function of the manifest and i: any machine that sees the inputs and the
    scratch folder can run it, in any order, and again after a failure. `finish` joins the parts,
    at the speed of a copy, to the bytes that `evenkeel.tokenize` writes.

    >>> import evenkeel
    >>> open("notes.txt", "w").write("one\\ntwo\\nthree\\n")
    14
    >>> m = evenkeel.plan("notes.txt", "notes.bin", tokenizer="bytes", separator="\\n", parts=2)
    >>> for part in range(len(m)):
    ...     made = m.run(part, workers=0)
    >>> m.finish()["tokens"]
    14
    """

    def __init__(self, job: Job, parts: list[list[Span]], scratch: str) -> None:
        self._job, self._parts = job, parts
        self._scratch = scratch

    @staticmethod
    def load(path: PathLike) -> Manifest:
        """From a file that `save` wrote."""
        with open(path) as file:
            return Manifest.of_json(json.load(file), os.fsdecode(path))

    @staticmethod
    def of_json(stored: Any, name: str = "manifest") -> Manifest:
        """What `as_json` gave; `name` is for errors."""
        if not isinstance(stored, dict) or stored.get("evenkeel_manifest") != VERSION:
            raise ValueError(
                f"tokenize {printable(name)}: this is no manifest of version {VERSION}"
            )
        job = Job.of_json(stored["job"])
        if stored["fingerprint"] != job.fingerprint():
            raise ValueError(
                f"tokenize {printable(name)}: the manifest was changed since it was made\nhint:"
                " make a new one"
            )
        parts = [[Span(*span) for span in part["spans"]] for part in stored["parts"]]
        return Manifest(job, parts, stored["scratch"])

    def as_json(self) -> dict[str, Any]:
        """What `save` writes; docs/tokenize.md describes it."""
        return {
            "evenkeel_manifest": VERSION,
            "work": "tokenize",
            "fingerprint": self._job.fingerprint(),
            "scratch": self._scratch,
            "parts": [
                {
                    "spans": [[span.input, span.begin, span.end] for span in part],
                    "outputs": self._part_paths(i),
                }
                for i, part in enumerate(self._parts)
            ],
            "job": self._job.as_json(),
        }

    def save(self, path: PathLike) -> None:
        write_json(os.fsdecode(path), self.as_json())

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def outputs(self) -> list[str]:
        return list(self._job.outputs)

    @property
    def finished(self) -> bool:
        """Whether the outputs are complete."""
        return finished_report(self._job) is not None

    @property
    def missing(self) -> list[int]:
        """Parts that are not done yet."""
        if self.finished:
            return []
        return [i for i in range(len(self)) if finished_report(self._part_job(i)) is None]

    def run(
        self,
        part: int,
        *,
        workers: int | None = None,
        budget: AnyBudget = None,
        checkpoint: int = 256 << 20,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Does a part, or what is left of it after a failure. One that is done stays as it is."""
        if not 0 <= part < len(self):
            raise IndexError(f"tokenize: part {part} of a manifest of {len(self)} parts")
        report = finished_report(self._job)
        if report is not None:  # and the parts are gone
            return {**report, "resumed": True, "seconds": 0.0}
        os.makedirs(self._scratch, exist_ok=True)
        job = self._part_job(part)
        encoder = encoders.load(job.tokenizer, job.special)
        return run(
            job,
            encoder,
            self._parts[part],
            workers=workers,
            budget=budget,
            resume=True,
            checkpoint=checkpoint,
            progress=progress,
        )

    def finish(self, *, budget: AnyBudget = "64MiB", keep: bool = False) -> dict[str, Any]:
        """Joins the parts to the outputs, and removes them unless told to `keep` them.

        To be called once, when all parts are done. A call that was killed can be repeated.
        """
        report = finished_report(self._job)
        if report is None:
            missing = self.missing
            if missing:
                some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
                raise ValueError(
                    f"tokenize: {len(missing)} of {len(self)} parts are not done: {some}\nhint: run"
                    " them, then finish"
                )
            jobs = [self._part_job(i) for i in range(len(self))]
            report = merge(self._job, jobs, [finished_report(one) or {} for one in jobs], budget)
        if not keep:
            remove_scratch(self._job, self._scratch)
        return report

    def _part_paths(self, part: int) -> list[str]:
        names = ("train", "val")[: len(self._job.outputs)]
        return [os.path.join(self._scratch, f"{part:05d}.{name}.ds") for name in names]

    def _part_job(self, part: int) -> Job:
        spans = json.dumps([[span.input, span.begin, span.end] for span in self._parts[part]])
        return part_job(self._job, self._part_paths(part), spans)


def part_job(job: Job, outputs: list[str], part: str) -> Job:
    """Writes tokens and where documents end, without `eot`: `merge` adds it."""
    narrow = np.iinfo(np.dtype(job.dtype)).max < 65536
    return replace(
        job,
        outputs=tuple(outputs),
        format="datatrove",
        dtype="uint16" if narrow else "uint32",
        eot=None,
        checksums=False,
        part=part,
    )


def merge(
    job: Job, parts: Sequence[Job], reports: Sequence[dict[str, Any]], budget: AnyBudget
) -> dict[str, Any]:
    """Makes the outputs of a job of what jobs of `part_job` wrote and reported."""
    totals = []
    for n, output in enumerate(job.outputs):
        with TokenWriter(
            output, job.format, job.dtype, eot=job.eot, budget=budget, checksums=job.checksums
        ) as writer:
            for made in parts:
                for tokens, lengths in documents_of(made.outputs[n], made.dtype):
                    writer.append_documents(tokens.astype(job.dtype), lengths)
            totals.append(
                {"path": writer.path, "documents": writer.documents, "tokens": writer.tokens}
            )
    counts = {name: sum(one[name] for one in reports) for name in COUNTS.values()}
    report = report_of(job, totals, counts)
    write_json(report_path(job), report)
    return report


def documents_of(path: str, dtype: str) -> Iterator[tuple[Any, Any]]:
    """Tokens of a .ds file and lengths of documents, a few at a time."""
    stored = np.dtype(dtype)
    with open(path, "rb") as tokens, open(path + ".index", "rb") as index:
        begin = 0
        while True:
            ends = np.frombuffer(index.read(8 * 65536), "<u8").astype(np.int64)
            if len(ends) == 0:
                return
            while len(ends):
                most = begin + _MERGED // stored.itemsize
                count = max(1, int(np.searchsorted(ends, most, "right")))
                end = int(ends[count - 1])
                data = tokens.read((end - begin) * stored.itemsize)
                if len(data) != (end - begin) * stored.itemsize:
                    raise ValueError(
                        f"tokenize {printable(path)}: the file is shorter than its index"
                    )
                yield np.frombuffer(data, stored), np.diff(ends[:count], prepend=begin)
                begin, ends = end, ends[count:]


def make_manifest(job: Job, parts: int, scratch: PathLike | None) -> Manifest:
    if parts < 1:
        raise ValueError(f"tokenize: work is cut into 1 part or more; got parts={parts}")
    return Manifest(job, cut(list(job.inputs), parts), scratch_of(job, scratch))


def scratch_of(job: Job, scratch: PathLike | None) -> str:
    """A folder for the parts of this job alone."""
    folder = os.fsdecode(scratch) if scratch is not None else job.outputs[0] + _PARTS
    return os.path.join(os.path.abspath(folder), job.fingerprint()[:12])


def remove_scratch(job: Job, folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.dirname(folder) == job.outputs[0] + _PARTS:
        with suppress(OSError):  # parts of another plan
            os.rmdir(os.path.dirname(folder))
