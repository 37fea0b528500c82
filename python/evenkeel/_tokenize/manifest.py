"""A tokenize job in parts: evenkeel.plan."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evenkeel._files import AnyBudget, PathLike, printable
from evenkeel._manifest import Manifest, Progress, scratch_of, write_json
from evenkeel._stepping import whole
from evenkeel._tokenize import encoders
from evenkeel._tokenize.inputs import Span, cut
from evenkeel._tokenize.job import Job
from evenkeel._tokenize.run import COUNTS, finished_report, report_of, report_path, run
from evenkeel._write_tokens import TokenWriter

_MERGED = 8 << 20  # bytes of tokens that are copied at a time


class TokenizeManifest(Manifest):
    """The parts of `evenkeel.tokenize`: spans of the inputs."""

    work = "tokenize"

    def __init__(self, job: Job, parts: list[list[Span]], scratch: str) -> None:
        Manifest.__init__(self, scratch)
        self._job, self._parts = job, parts

    @staticmethod
    def _of_json(stored: dict[str, Any]) -> Manifest:
        parts = [[Span(*span) for span in part["spans"]] for part in stored["parts"]]
        return TokenizeManifest(Job.of_json(stored["job"]), parts, stored["scratch"])

    def _parts_json(self) -> list[dict[str, Any]]:
        return [
            {"spans": _numbers(part), "outputs": self._part_paths(i)}
            for i, part in enumerate(self._parts)
        ]

    def _job_json(self) -> dict[str, Any]:
        return self._job.as_json()

    @property
    def steps(self) -> list[range]:
        return [range(len(self._parts))]

    @property
    def outputs(self) -> list[str]:
        return list(self._job.outputs)

    def _part_report(self, part: int) -> dict[str, Any] | None:
        return finished_report(self._part_job(part))

    def _finished_report(self) -> dict[str, Any] | None:
        return finished_report(self._job)

    def _run_part(
        self,
        part: int,
        workers: int | None,
        budget: AnyBudget,
        checkpoint: int,
        progress: Progress | None,
    ) -> dict[str, Any]:
        job = self._part_job(part)
        return run(
            job,
            encoders.load(job.tokenizer, job.special),
            self._parts[part],
            workers=workers,
            budget=budget,
            resume=True,
            checkpoint=checkpoint,
            progress=progress,
        )

    def _join(self, budget: AnyBudget) -> dict[str, Any]:
        jobs = [self._part_job(i) for i in range(len(self))]
        return merge(self._job, jobs, [finished_report(one) or {} for one in jobs], budget)

    def _part_paths(self, part: int) -> list[str]:
        names = ("train", "val")[: len(self._job.outputs)]
        return [os.path.join(self._scratch, f"{part:05d}.{name}.ds") for name in names]

    def _part_job(self, part: int) -> Job:
        return part_job(self._job, self._part_paths(part), json.dumps(_numbers(self._parts[part])))


def _numbers(spans: list[Span]) -> list[list[int]]:
    return [[span.input, span.begin, span.end] for span in spans]


def part_job(job: Job, outputs: list[str], part: str) -> Job:
    """A job that writes tokens and where documents end, without `eot`: `merge` adds it."""
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
    """Creates the outputs of a job from the files and reports of its `part_job` jobs."""
    totals = []
    for n, output in enumerate(job.outputs):
        with TokenWriter(
            output, job.format, job.dtype, eot=job.eot, budget=budget, checksums=job.checksums
        ) as writer:
            for made in parts:
                for tokens, lengths in documents_of(made.outputs[n], made.dtype):
                    require_fit(tokens, job.dtype)
                    writer.append_documents(tokens.astype(job.dtype), lengths)
            totals.append(
                {"path": writer.path, "documents": writer.documents, "tokens": writer.tokens}
            )
    counts = {name: sum(one[name] for one in reports) for name in COUNTS.values()}
    report = report_of(job, totals, counts)
    write_json(report_path(job), report)
    return report


def require_fit(tokens: Any, dtype: str) -> None:
    """Raises if a token does not fit `dtype`."""
    held = np.iinfo(np.dtype(dtype))
    for token in (int(tokens.min()), int(tokens.max())) if len(tokens) else ():
        if not max(0, held.min) <= token <= held.max:
            raise ValueError(
                f"tokenize: token {token} does not fit {dtype}, which holds 0 to {held.max:,}"
                "\nhint: use a wider dtype"
            )


def documents_of(path: str, dtype: str) -> Iterator[tuple[Any, Any]]:
    """The tokens of a .ds file and the lengths of its documents, a few at a time."""
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
    parts = whole("tokenize: parts", parts)
    if parts < 1:
        raise ValueError(f"tokenize: parts must be 1 or more; got {parts}")
    return TokenizeManifest(job, cut(list(job.inputs), parts), scratch_folder(job, scratch))


def scratch_folder(job: Job, scratch: PathLike | None) -> str:
    return scratch_of(job.outputs[0], scratch, job.fingerprint(), "tokenize")
