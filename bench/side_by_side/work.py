"""The work that a contestant's process is asked to do."""

import dataclasses
import json
import os

COLUMNS = 162  # of a row
MIB = 1 << 20


@dataclasses.dataclass
class Work:
    kind: str  # the function of the contestant; see contestants/__init__.py
    path: str  # the original file, or a folder of several
    converted: str  # the folder with the contestant's converted copy, or ""
    seconds: float  # duration after the first batch
    batch: int  # crops, blocks or rows per batch
    block: int = 1024  # tokens per crop or block
    chunk: int = 16 * MIB  # bytes per step of a scan
    first_batch: int = 0  # the batch of the epoch to begin with
    budget: str = "64MiB"  # Evenkeel's
    workers: int = 0
    numbered: bool = False  # each block of the file begins with its number
    seed: int = 7

    def __post_init__(self):
        # Contestants with their own order set this to where the rows of the first batch begin.
        self.claims = None
        self._order = None

    @classmethod
    def parse(cls, text):
        return cls(**json.loads(text))

    def text(self):
        return json.dumps(dataclasses.asdict(self))

    @property
    def tokens(self):
        return os.path.getsize(self.path) // 2

    @property
    def rows(self):
        return os.path.getsize(self.path) // (4 * COLUMNS)

    @property
    def count(self):
        """Rows of cells or of labelled data."""
        import numpy as np

        name = "indptr" if self.kind == "cells" else "y"
        length = len(np.load(f"{self.path}/{name}.npy", mmap_mode="r"))
        return length - 1 if self.kind == "cells" else length

    @property
    def blocks(self):
        """Blocks of an epoch: each has `block` tokens, and one more for y."""
        return (self.tokens - 1) // self.block

    def starts(self):
        """Starts of crops, one batch at a time, without end; the same for every contestant."""
        import numpy as np

        random, last = np.random.default_rng(self.seed), self.tokens - self.block - 1
        while True:
            yield random.integers(0, last, self.batch)

    def prepare(self):
        """Draws the order of the rows before the measurement starts."""
        import numpy as np

        if self.kind in ("rows", "cells"):
            count = self.rows if self.kind == "rows" else self.count
            self._order = np.random.default_rng(self.seed).permutation(count)

    def indices(self):
        """Row numbers in shuffled order, one batch at a time, without end."""
        while True:
            for at in range(0, len(self._order) - self.batch + 1, self.batch):
                yield self._order[at : at + self.batch]

    def shuffled_blocks(self):
        """Block numbers of a shuffled epoch, from an array of all of them, as in most programs."""
        import numpy as np

        random = np.random.default_rng(self.seed)
        at = self.first_batch * self.batch
        while True:
            order = random.permutation(self.blocks)
            while at + self.batch <= len(order):
                yield order[at : at + self.batch]
                at += self.batch
            at = 0

    def wanted_bytes(self):
        """Bytes of one item."""
        if self.kind == "scan":
            return MIB
        if self.kind == "cells":
            return 8000
        if self.kind == "labelled":
            return 4 * COLUMNS + 8
        return 4 * COLUMNS if self.kind == "rows" else 2 * (self.block + 1)
