"""Divides work into parts by a manifest, for any system that can run a command many times."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from evenkeel._files import AnyBudget, PathLike, is_url, printable

VERSION = 1
PARTS = ".parts"  # ends the name of the scratch folder, unless another folder is given
_SAMPLE = 64 << 10

Progress = Callable[[dict[str, Any]], None]


def callback(progress: Progress | None) -> Progress | None:
    """Work of hours should not end when it first reports progress."""
    if progress is None or callable(progress):
        return progress
    raise TypeError(f"progress must be a function; got {progress!r}")


class Manifest:
    """Work in parts; created by `evenkeel.plan` and `evenkeel.plan_shuffle`, or loaded from a file.

    Part i is a pure function of the manifest and i: any machine that sees the inputs and the
    scratch folder can run it, and can run it again after a failure. Parts of one of the `steps` can
    be run in any order; they can begin when all parts of the previous steps are done. `finish`
    joins the parts, at the speed of a copy. The result is byte for byte what one process would
    write.

    >>> import evenkeel
    >>> open("notes.txt", "w").write("one\\ntwo\\nthree\\n")
    14
    >>> m = evenkeel.plan("notes.txt", "notes.bin", tokenizer="bytes", separator="\\n", parts=2)
    >>> for part in range(len(m)):
    ...     made = m.run(part, workers=0)
    >>> m.finish()["tokens"]
    14
    """

    work = ""  # what is done: the name of the command

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch

    @staticmethod
    def load(path: PathLike) -> Manifest:
        """From a file that `save` wrote."""
        name = os.fsdecode(path)
        with open(path) as file:
            try:
                stored = json.load(file)
            except ValueError as error:
                raise ValueError(
                    f"manifest {printable(name)}: not a manifest, because it is not JSON: {error}"
                ) from None
        return Manifest.of_json(stored, name)

    @staticmethod
    def of_json(stored: Any, name: str = "manifest") -> Manifest:
        """Creates it from the result of `as_json`; `name` is for errors."""
        from evenkeel._shuffle import ShuffleManifest
        from evenkeel._tokenize.manifest import TokenizeManifest

        kinds: list[type[Manifest]] = [TokenizeManifest, ShuffleManifest]
        if not isinstance(stored, dict):
            stored = {}
        kind = next((kind for kind in kinds if kind.work == stored.get("work")), None)
        if stored.get("evenkeel_manifest") != VERSION or kind is None:
            raise ValueError(f"manifest {printable(name)}: not a manifest of version {VERSION}")
        if stored.get("fingerprint") != _fingerprint(stored):
            raise ValueError(
                f"manifest {printable(name)}: the manifest was changed since it was created\nhint:"
                " create a new one"
            )
        return kind._of_json(stored)

    def as_json(self) -> dict[str, Any]:
        """What `save` writes; docs/tokenize.md describes it."""
        made = {
            "evenkeel_manifest": VERSION,
            "work": self.work,
            "fingerprint": "",
            "scratch": self._scratch,
            "parts": self._parts_json(),
            "job": self._job_json(),
        }
        return {**made, "fingerprint": _fingerprint(made)}

    def save(self, path: PathLike) -> None:
        name, made = os.fsdecode(path), self.as_json()
        read = {os.path.realpath(one["path"]) for one in made["job"]["inputs"]}
        if os.path.realpath(name) in read:
            raise ValueError(
                f"{self.work} {printable(name)}: the manifest is also an input, and would replace"
                " it\nhint: give the manifest another name"
            )
        write_json(name, made)

    def __len__(self) -> int:
        return self.steps[-1].stop

    @property
    def steps(self) -> list[range]:
        """Parts that can be run at the same time; each step needs the results of the previous
        one."""
        raise NotImplementedError

    @property
    def outputs(self) -> list[str]:
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        """Whether the outputs are complete."""
        return self._finished_report() is not None

    @property
    def missing(self) -> list[int]:
        """Parts that are not done yet."""
        return self.missing_of(range(len(self)))

    def missing_of(self, parts: Iterable[int]) -> list[int]:
        """Those of `parts` that are not done yet."""
        return [] if self.finished else [i for i in parts if self._part_report(i) is None]

    def run(
        self,
        part: int,
        *,
        workers: int | None = None,
        budget: AnyBudget = None,
        checkpoint: int = 256 << 20,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Runs a part, or continues it after a failure. A part that is done stays as it is."""
        progress = callback(progress)
        if not 0 <= part < len(self):
            raise IndexError(f"{self.work}: part {part} of a manifest of {len(self)} parts")
        report = self._finished_report()
        if report is not None:  # and the parts are gone
            return {**report, "resumed": True, "seconds": 0.0}
        before = next(step for step in self.steps if part in step).start
        self._require_done(range(before), f"part {part}")
        os.makedirs(self._scratch, exist_ok=True)
        return self._run_part(part, workers, budget, checkpoint, progress)

    def finish(self, *, budget: AnyBudget = "64MiB", keep: bool = False) -> dict[str, Any]:
        """Joins the parts into the outputs, and removes them unless `keep` is set.

        Call it once, when all parts are done. A call that was killed can be repeated.
        """
        report = self._finished_report()
        if report is None:
            self._require_done(range(len(self)), "finish")
            report = self._join(budget)
        if not keep:
            files = [path for i in range(len(self)) for path in self._part_paths(i)]
            self._remove_scratch({os.path.basename(path) for path in files})
        return report

    def _require_done(self, parts: range, what: str) -> None:
        missing = self.missing_of(parts)
        if not missing:
            return
        some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        raise ValueError(
            f"{self.work}: {len(missing)} of {len(parts)} parts are not done: {some}\nhint: run"
            f" them, then {what}"
        )

    def _remove_scratch(self, parts: set[str]) -> None:
        remove_scratch(self.outputs[0], self._scratch, parts)

    # Defined by each kind of work.

    @staticmethod
    def _of_json(stored: dict[str, Any]) -> Manifest:
        raise NotImplementedError

    def _parts_json(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _job_json(self) -> dict[str, Any]:
        raise NotImplementedError

    def _part_paths(self, part: int) -> list[str]:
        raise NotImplementedError

    def _part_report(self, part: int) -> dict[str, Any] | None:
        """The report of a part that is done; None if it is not."""
        raise NotImplementedError

    def _finished_report(self) -> dict[str, Any] | None:
        raise NotImplementedError

    def _run_part(
        self,
        part: int,
        workers: int | None,
        budget: AnyBudget,
        checkpoint: int,
        progress: Progress | None,
    ) -> dict[str, Any]:
        raise NotImplementedError

    def _join(self, budget: AnyBudget) -> dict[str, Any]:
        raise NotImplementedError


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _fingerprint(stored: dict[str, Any]) -> str:
    """A fingerprint of everything that determines what is written, and what is removed at the
    end."""
    return digest([stored.get(name) for name in ("job", "scratch", "parts")])


def require_file(path: str, work: str) -> None:
    if is_url(os.fsencode(path)):
        raise ValueError(
            f"{work} {printable(path)}: outputs must be files, not URLs\nhint: write a local file"
            " and copy it, or mount the bucket"
        )


def scratch_of(output: str, scratch: PathLike | None, fingerprint: str, work: str) -> str:
    """A folder only for the parts of this job."""
    folder = os.fsdecode(scratch) if scratch is not None else output + PARTS
    require_file(folder, work)
    return os.path.join(os.path.abspath(folder), fingerprint[:12])


# The name of a part, or of a file beside it: its index, its report, an unfinished file.
_PART = re.compile(r"(\d+\.[a-z]+\.[a-z]+)(?:\..+)?")


def remove_scratch(output: str, folder: str, parts: set[str] | None = None) -> None:
    """Removes the files of these parts, or of all parts, and the folder if it is empty then."""
    with suppress(OSError):
        for name in os.listdir(folder):
            found = _PART.fullmatch(name)
            if found and (parts is None or found[1] in parts):
                os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    if os.path.dirname(folder) == output + PARTS:
        with suppress(OSError):  # parts of another plan
            os.rmdir(os.path.dirname(folder))


def write_json(path: str, value: Any) -> None:
    """Replaces the file atomically: a reader finds the old file or the new one."""
    unfinished = f"{path}.new"  # a fixed name, so that a leftover of a killed run is replaced
    with open(unfinished, "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def read_json(path: str) -> Any:
    """None if the file does not exist or is incomplete."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def fingerprint_of(path: str) -> str:
    """A fingerprint of the size and of three samples: the beginning, the middle and the end. A copy
    has the same fingerprint. An edit elsewhere that keeps the size is not detected."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        made = hashlib.blake2b(str(size).encode(), digest_size=16)
        for at in sorted({0, max(0, size // 2 - _SAMPLE // 2), max(0, size - _SAMPLE)}):
            file.seek(at)
            made.update(file.read(_SAMPLE))
        return made.hexdigest()


def require_unchanged(path: str, size: int, fingerprint: str, work: str) -> None:
    now = os.stat(path).st_size
    if now == size and fingerprint_of(path) == fingerprint:
        return
    raise ValueError(
        f"{work} {printable(path)}: the file has changed since the work was planned: it had"
        f" {size:,} bytes and the fingerprint {fingerprint}, and now has {now:,} bytes"
        "\nhint: start again without --resume, or with a new manifest"
    )
