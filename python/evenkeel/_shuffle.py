"""evenkeel.shuffle, and evenkeel.plan_shuffle: the same in parts, for a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from evenkeel import _core
from evenkeel._core import Budget
from evenkeel._files import (
    AnyBudget,
    PathLike,
    Paths,
    dtype_of,
    expand,
    is_url,
    name_for_reader,
    printable,
)
from evenkeel._manifest import (
    Manifest,
    Progress,
    callback,
    digest,
    fingerprint_of,
    read_json,
    require_file,
    require_unchanged,
    scratch_of,
    write_json,
)
from evenkeel._stepping import number, text, whole

# What a file holds, and what its items are. The options of the command have the same names.
ITEM_OPTIONS = ("unit", "dtype", "shape", "block", "bos", "eos")
_BUDGET = 512 << 20


def work_budget(budget: AnyBudget) -> Budget:
    """The default budget of the commands."""
    return Budget(min(Budget().limit, _BUDGET) if budget is None else budget)


def known_items(given: dict[str, Any]) -> dict[str, Any]:
    """The user's options about items, as JSON types."""
    known = {name: given[name] for name in ITEM_OPTIONS}
    if known["unit"] is not None:
        known["unit"] = text("unit", known["unit"])
    known["block"] = number("block", known["block"], 0, what="items")
    for name in ("bos", "eos"):
        if known[name] is not None:
            known[name] = whole(f"items: {name}", known[name])
    if known["dtype"] is not None:
        known["dtype"] = name_for_reader(dtype_of(known["dtype"]))
    shape = () if known["shape"] is None else known["shape"]
    if not isinstance(shape, Iterable):
        shape = [shape]
    axes = [-1 if axis is None else whole("an axis of shape", axis) for axis in shape]
    if any(not -(1 << 63) <= axis < 1 << 63 for axis in axes):
        raise ValueError(f"items: an axis of shape is too long: {max(axes, key=abs):,}")
    known["shape"] = axes
    return known


def items_of(paths: Iterable[PathLike], known: dict[str, Any]) -> _core.Items:
    return _core.Items(
        [os.fsencode(path) for path in paths], **{name: known[name] for name in ITEM_OPTIONS}
    )


def _files(inputs: Paths) -> list[bytes]:
    paths = expand(inputs, _core.expand_token_paths)
    for path in paths:
        if is_url(path):
            raise ValueError(
                f"shuffle {printable(path)}: inputs must be files, not URLs\nhint: copy it to a"
                " local disk, or mount the bucket"
            )
    return [os.path.abspath(path) for path in paths]


def _seed(seed: int) -> int:
    value = whole("shuffle: seed", seed)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"shuffle: a seed must be from 0 to 2^64 - 1; got {value}")
    return value


def shuffle(
    inputs: Paths,
    output: PathLike,
    *,
    seed: int = 0,
    unit: str | None = None,
    dtype: Any = None,
    shape: Sequence[int | None] | None = None,
    block: int = 0,
    bos: int | None = None,
    eos: int | None = None,
    format: str | None = None,
    budget: AnyBudget = None,
    scratch: PathLike | None = None,
    checkpoint: int | str = "1GiB",
    checksums: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Shuffles rows, lines, documents or blocks of files of any size, in bounded memory.

    Every order is equally likely. The same seed gives the same file on any machine and with any
    budget. The file appears under its name when it is complete. Returns the figures of the run.

    - `unit`: "rows", "lines", "documents" or "blocks". Default: lines of text, documents of llm.c,
      Megatron and datatrove files, otherwise rows.
    - `dtype`, `shape`: of a file without a header.
    - `block`: tokens per block. `bos`, `eos`: the token that documents begin or end with, in files
      without an index.
    - `format`: of tokens; default: as in the input.
    - `budget`: all memory; default 512 MiB, or an eighth of the memory available if that is less.
    - `scratch`: a folder for the scratch file, which is as large as the input. Default: beside the
      output; an output at s3:// needs one.
    - `checkpoint`: bytes between two checkpoints. `resume` continues at the last one of a killed
      run.
    - `checksums`: also writes OUTPUT.xxh3, which `evenkeel verify` checks.

    >>> import evenkeel
    >>> open("lines.txt", "w").write("one\\ntwo\\nthree\\n")
    14
    >>> evenkeel.shuffle("lines.txt", "mixed.txt", seed=1)["items"]
    3
    """
    known = known_items(locals())
    began = time.monotonic()
    report = _core.shuffle(
        items_of(_files(inputs), known),
        output=os.fsencode(output),
        format=text("shuffle: format", format or ""),
        seed=_seed(seed),
        budget=work_budget(budget),
        scratch=b"" if scratch is None else os.fsencode(scratch),
        checksums=bool(checksums),
        resume=bool(resume),
        checkpoint=Budget(checkpoint).limit,
        progress=callback(progress),
    )
    return {**report, "seconds": time.monotonic() - began}


def plan_shuffle(
    inputs: Paths,
    output: PathLike,
    *,
    parts: int,
    seed: int = 0,
    unit: str | None = None,
    dtype: Any = None,
    shape: Sequence[int | None] | None = None,
    block: int = 0,
    bos: int | None = None,
    eos: int | None = None,
    format: str | None = None,
    budget: AnyBudget = None,
    scratch: PathLike | None = None,
    checksums: bool = False,
) -> Manifest:
    """Divides the work of `evenkeel.shuffle` into parts for the machines of a cluster.

    - `parts`: the number of parts of each step. Lines are counted first; then items are distributed
      to scratch files; then each part sorts and writes its share of the output.
    - `scratch`: a folder for the parts, visible to all machines. Default: beside the output. It
      needs twice the space of the input.
    - `budget`: the budget that the parts will have. With less, parts read their scratch files
      several times.

    The rest is as for `evenkeel.shuffle`. See `evenkeel.Manifest`.
    """
    known = known_items(locals())
    parts = whole("shuffle: parts", parts)
    if parts < 1:
        raise ValueError(f"shuffle: parts must be 1 or more; got {parts}")
    require_file(os.fsdecode(output), "shuffle")
    paths = _files(inputs)
    made = os.path.abspath(os.fsdecode(output))
    items = items_of(paths, known)
    found: dict[str, Any] = _core.plan_shuffle(
        items,
        output=os.fsencode(made),
        format=text("shuffle: format", format or ""),
        budget=work_budget(budget),
        parts=parts,
    )
    read = [os.fsdecode(path) for path in found.pop("files")]
    job = {
        "inputs": [
            {"path": path, "size": os.stat(path).st_size, "fingerprint": fingerprint_of(path)}
            for path in read
        ],
        "paths": [os.fsdecode(path) for path in paths],
        "outputs": [made],
        **known,
        "unit": items.unit,
        "format": format or "",
        "seed": _seed(seed),
        "checksums": bool(checksums),
        **found,
    }
    each = parts if items.unit == "lines" else min(parts, found["items"])
    return ShuffleManifest(job, each, scratch_of(made, scratch, digest(job), "shuffle"))


class ShuffleManifest(Manifest):
    """The parts of `evenkeel.shuffle`, in two steps, or three for lines."""

    work = "shuffle"

    def __init__(self, job: dict[str, Any], parts: int, scratch: str) -> None:
        Manifest.__init__(self, scratch)
        self._job, self._each = job, parts
        self._steps = ["count"] if job["unit"] == "lines" else []
        self._steps += ["distribute", "write"]

    @staticmethod
    def _of_json(stored: dict[str, Any]) -> Manifest:
        each = sum(part["step"] == "write" for part in stored["parts"])
        return ShuffleManifest(stored["job"], each, stored["scratch"])

    @property
    def steps(self) -> list[range]:
        each = self._each
        return [range(i * each, (i + 1) * each) for i in range(len(self._steps))]

    @property
    def outputs(self) -> list[str]:
        return list(self._job["outputs"])

    def _job_json(self) -> dict[str, Any]:
        return self._job

    def _parts_json(self) -> list[dict[str, Any]]:
        return [
            {"step": self._step(i), "range": list(self._range(i)), "outputs": self._part_paths(i)}
            for i in range(len(self))
        ]

    def _step(self, part: int) -> str:
        return self._steps[part // self._each]

    def _range(self, part: int) -> tuple[int, int]:
        """The bytes to count, the items to distribute, or the buckets to write. Which lines to
        distribute is known only after lines have been counted: until then, this is a range of
        parts."""
        step, i = self._step(part), part % self._each
        if step == "distribute" and self._job["unit"] == "lines":
            return i, i + 1
        total = self._job[{"count": "bytes", "distribute": "items", "write": "buckets"}[step]]
        return total * i // self._each, total * (i + 1) // self._each

    def _part_paths(self, part: int) -> list[str]:
        step = self._step(part)
        if step == "write":
            endings = [self._job["ending"]]
            if self._job["token_format"] == "megatron":
                endings.append(".idx")
            if self._job["token_format"] == "datatrove":
                endings.append(".ds.index")
        else:
            endings = [{"count": ".lines", "distribute": ".buckets"}[step]]
        return [os.path.join(self._scratch, f"{part:05d}.{step}{ending}") for ending in endings]

    def _kind(self, part: int) -> str:
        """Identifies the part and the work that a file belongs to."""
        return digest([self._job, self._step(part), list(self._range(part)), self._each])

    def _report_path(self, part: int) -> str:
        return self._part_paths(part)[0] + ".json"

    def _part_report(self, part: int) -> dict[str, Any] | None:
        report: dict[str, Any] | None = read_json(self._report_path(part))
        made = {"count": [], "distribute": [".partial", ".partial.state"], "write": [""]}
        there = all(
            os.path.exists(self._part_paths(part)[0] + ending) for ending in made[self._step(part)]
        )
        done = report is not None and report.get("part") == self._kind(part) and there
        return report if done else None

    def _finished_report(self) -> dict[str, Any] | None:
        output = self._written_path()
        report: dict[str, Any] | None = read_json(self._finish_path())
        if report is None or report.get("job") != digest(self._job):
            return None
        if not os.path.exists(output) or os.path.exists(output + ".partial"):
            return None
        # Another run may have replaced it.
        return report if report.get("fingerprint") == fingerprint_of(output) else None

    def _written_path(self) -> str:
        path: str = self._job["outputs"][0]
        if self._job["token_format"] != "megatron":
            return path
        return (path[:-4] if path.endswith((".bin", ".idx")) else path) + ".bin"

    def _finish_path(self) -> str:
        return self._written_path() + ".shuffle.json"

    def _items(self) -> _core.Items:
        for given in self._job["inputs"]:
            require_unchanged(given["path"], given["size"], given["fingerprint"], "shuffle")
        return items_of(self._job["paths"], self._job)

    def _run_part(
        self,
        part: int,
        workers: int | None,
        budget: AnyBudget,
        checkpoint: int,
        progress: Progress | None,
    ) -> dict[str, Any]:
        done = self._part_report(part)
        if done is not None:
            return {**done, "resumed": True, "seconds": 0.0}
        began = time.monotonic()
        share = work_budget(budget)
        given = {"budget": share, "progress": progress}
        if self._step(part) == "count":
            made = self._count(part, given)
        elif self._step(part) == "distribute":
            made = self._distribute(part, checkpoint, given)
        else:
            made = self._write(part, checkpoint, given)
        report: dict[str, Any] = {
            "part": self._kind(part),
            "step": self._step(part),
            **{name: made[name] for name in ("items", "offset", "bytes") if name in made},
        }
        write_json(self._report_path(part), report)
        return {
            **report,
            "resumed": made.get("resumed", False),
            "budget_bytes": share.limit,
            "budget_peak_bytes": share.peak,
            "seconds": time.monotonic() - began,
        }

    def _count(self, part: int, given: dict[str, Any]) -> dict[str, Any]:
        begin, end = self._range(part)
        offset, items = _core.count_lines(self._items(), begin=begin, end=end, **given)
        return {"items": items, "offset": offset}

    def _distribute(self, part: int, checkpoint: int, given: dict[str, Any]) -> dict[str, Any]:
        first, end = self._range(part)
        offset = 0
        if self._job["unit"] == "lines":
            counts = [self._part_report(i) or {} for i in range(first + 1)]
            offset = counts[first]["offset"]
            first, end = (sum(one["items"] for one in some) for some in (counts[:-1], counts))
        report: dict[str, Any] = _core.distribute_part(
            self._items(),
            output=os.fsencode(self._part_paths(part)[0]),
            seed=self._job["seed"],
            checkpoint=checkpoint,
            kind=self._kind(part),
            first=first,
            offset=offset,
            count=end - first,
            buckets=self._job["buckets"],
            **given,
        )
        return report

    def _write(self, part: int, checkpoint: int, given: dict[str, Any]) -> dict[str, Any]:
        first, end = self._range(part)
        report: dict[str, Any] = _core.write_part(
            self._items(),
            output=os.fsencode(self._part_paths(part)[0]),
            format=self._job["format"],
            seed=self._job["seed"],
            checkpoint=checkpoint,
            kind=self._kind(part),
            scratch=[os.fsencode(self._part_paths(i)[0]) for i in self.steps[-2]],
            first=first,
            end=end,
            **given,
        )
        return report

    def _join(self, budget: AnyBudget) -> dict[str, Any]:
        wrote = [self._part_report(i) or {} for i in self.steps[-1]]
        items = sum(one["items"] for one in wrote)
        planned = sum((self._part_report(i) or {})["items"] for i in self.steps[-2])
        if items != planned:
            raise ValueError(
                f"shuffle: {planned:,} items were distributed, and {items:,} were written\nhint:"
                " files in the scratch folder were changed: create a new manifest"
            )
        paths = [self._part_paths(i)[0] for i, one in zip(self.steps[-1], wrote) if one["items"]]
        report = _core.copy_items(
            items_of(paths, {"bos": None, "eos": None, **self._job["joined"]}),
            output=os.fsencode(self._job["outputs"][0]),
            format=self._job["token_format"],
            budget=Budget(budget),
            checksums=self._job["checksums"],
            resume=False,
            progress=None,
        )
        made = {
            "job": digest(self._job),
            "fingerprint": fingerprint_of(self._written_path()),
            "outputs": [{"path": self._written_path(), "items": items}],
            "items": items,
            "bytes": report["bytes"],
            "unit": self._job["unit"],
            "seed": self._job["seed"],
        }
        write_json(self._finish_path(), made)
        return made
