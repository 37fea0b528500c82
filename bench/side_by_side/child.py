"""The process of one contestant. It imports, waits for the start, and works until time is up.

usage: python -m side_by_side.child convert|run CONTESTANT WORK      (WORK: JSON of work.Work)

It prints JSON lines: "ready" after the imports and then, after a line on stdin, "done" with the
results. After another line on stdin it prints "checked". The parent measures from outside, between
the first line on stdin and "done".
"""

import hashlib
import importlib
import json
import sys
import time

from .work import Work

CHECKED = 2  # batches whose bytes are hashed
# The modules of batches are imported before the measurement.
LIBRARIES = {"cells": ("scipy.sparse",), "labelled": ("torch",)}


def said(word, **more):
    sys.__stdout__.write(json.dumps({"word": word, **more}) + "\n")
    sys.__stdout__.flush()


def as_arrays(batch):
    import numpy as np

    parts = batch if isinstance(batch, (tuple, list)) else (batch,)
    return [np.ascontiguousarray(part) for part in parts]


def count_of(batch, work):
    first = batch[0] if isinstance(batch, (tuple, list)) else batch
    return first.nbytes / (1 << 20) if work.kind == "scan" else first.shape[0]


class RowChecks:
    """Checks rows that identify themselves: cells by column 0, labelled rows by their label. None
    may come twice in an epoch, and those of the first batches must match the file, which is read
    after the measurement: cells are compared by their sums."""

    def __init__(self, work):
        self.work, self.numbers, self.first = work, [], []
        self.seconds = self.cpu = 0.0

    def look(self, number, batch):
        import numpy as np

        began, cpu = time.perf_counter(), time.process_time()
        if self.work.kind == "labelled":
            values, rows = batch[0], np.array(batch[1])
        elif hasattr(batch, "indptr"):
            values, rows = batch, batch.data[batch.indptr[:-1]].astype(int)
        else:
            values, rows = batch, np.array(batch[:, 0]).astype(int)
        self.numbers.append(rows)
        if number < CHECKED:
            sums = self.work.kind == "cells"
            self.first.append(np.array(values.sum(1) if sums else values, float))
        self.seconds += time.perf_counter() - began
        self.cpu += time.process_time() - cpu

    def problem(self):
        import numpy as np

        whole = self.work.count // self.work.batch * self.work.batch  # some drop the last batch
        epoch = np.concatenate(self.numbers)[:whole]
        if len(np.unique(epoch)) != len(epoch):
            return "a row twice within an epoch"
        for rows, found in zip(self.numbers, self.first, strict=False):
            if not np.array_equal(found.reshape(len(rows), -1), self._stored(rows)):
                return "rows that differ from the file"
        return None

    def _stored(self, rows):
        import numpy as np

        def load(name):
            return np.load(f"{self.work.path}/{name}.npy", mmap_mode="r")

        if self.work.kind == "labelled":
            return load("x")[rows].astype(float)
        data, indptr = load("data"), load("indptr")
        sums = [data[indptr[row] : indptr[row + 1]].sum(dtype=float) for row in rows]
        return np.array(sums).reshape(-1, 1)


class Checks:
    """Checks that are not timed: hashes of the first batches, numbers of the blocks received."""

    def __init__(self, work):
        self.work, self.digest, self.first, self.numbers = work, hashlib.sha256(), None, []
        self.seconds = self.cpu = 0.0

    def look(self, number, batch):
        own_order = self.work.numbered and self.work.kind in ("epoch", "workers")
        if number >= CHECKED and not own_order:
            return
        began, cpu = time.perf_counter(), time.process_time()
        arrays = as_arrays(batch)
        if number == 0 and self.work.kind != "scan":  # the digest is enough for a scan
            self.first = [array.copy() for array in arrays]
        if number < CHECKED:
            for array in arrays:
                self.digest.update(array.view("uint8").reshape(-1))
        if own_order:
            self.numbers.append(arrays[0][:, :4].astype("uint16").copy())
        self.seconds += time.perf_counter() - began
        self.cpu += time.process_time() - cpu

    def problem(self):
        """What is wrong with the data of a contestant with its own order; None if nothing is."""
        import numpy as np

        work = self.work
        if self.numbers:
            numbers = np.concatenate(self.numbers).view("uint64").reshape(-1)
            if not work.claims:
                work.claims = [int(number) * work.block for number in numbers[: work.batch]]
            epoch = numbers[: work.blocks - work.first_batch * work.batch]
            if np.any(numbers >= work.blocks):
                return "a block that does not exist"
            if len(np.unique(epoch)) != len(epoch):
                return "a block twice within an epoch"
        if work.claims is None or self.first is None:
            return None
        with open(work.path, "rb") as file:
            for shift, array in enumerate(self.first):
                for row, start in zip(array, work.claims, strict=True):
                    size = row.nbytes if work.kind == "rows" else 2 * len(row)
                    at = int(start) * size if work.kind == "rows" else 2 * (int(start) + shift)
                    file.seek(at)
                    found = file.read(size)
                    same = row.tobytes() if work.kind == "rows" else row.astype("uint16").tobytes()
                    if found != same:
                        return f"a row at {start} that differs from the file"
        return None


def run(module, work):
    """Does the work until time is up; returns the checks and the results."""
    own = work.kind in ("cells", "labelled")
    checks, items, first_items, batches = (RowChecks if own else Checks)(work), 0, 0, 0
    began = time.perf_counter()
    first = None
    for batch in getattr(module, work.kind)(work):
        now = time.perf_counter() - began - checks.seconds
        items += count_of(batch, work)
        if first is None:
            first, first_items = now, items
        checks.look(batches, batch)
        batches += 1
        if now - first >= work.seconds:
            break
    seconds = time.perf_counter() - began - checks.seconds
    # Speed counts from the first batch on; opening has its own figure.
    after, rest = items - first_items, seconds - first
    return checks, {
        "items": items,
        "batches": batches,
        "seconds": seconds,
        "per_s": after / rest if after else items / seconds,
        "first_batch_s": first,
        "checking_cpu_s": checks.cpu,
    }


def main():
    mode, name, work = sys.argv[1], sys.argv[2], Work.parse(sys.argv[3])
    sys.stdout = sys.stderr  # stdout carries the protocol, so what peers print goes to stderr
    module = importlib.import_module(f"side_by_side.contestants.{name}")
    if mode == "convert":
        module.convert(work)
        said("done")
        return
    if work.kind == "workers":
        importlib.import_module("side_by_side.contestants._torch_workers")
    if work.kind == "train":
        importlib.import_module("side_by_side.contestants._training").ready(work)
    for library in LIBRARIES.get(work.kind, ()):
        importlib.import_module(library)
    importlib.import_module("numpy.random")
    work.prepare()
    said("ready")
    sys.stdin.readline()
    if hasattr(module, "limit"):
        said("done", **module.limit(work))
        sys.stdin.readline()
        said("checked", digest=None, problem=None)
        return
    checks, result = run(module, work)
    said("done", **result)
    sys.stdin.readline()
    own = work.claims is not None or checks.numbers
    said(
        "checked",
        digest=None if own or work.kind == "train" else checks.digest.hexdigest(),
        problem=None if work.kind == "train" else checks.problem(),
    )


if __name__ == "__main__":
    main()
