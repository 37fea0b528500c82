"""What a contestant is asked to do, as the process that does it sees it."""

import dataclasses
import json
import os

COLUMNS = 162  # of the rows
MIB = 1 << 20


@dataclasses.dataclass
class Work:
    kind: str  # the function of the contestant: crops, rows, scan, epoch, workers, train
    path: str  # the file as it is
    converted: str  # the folder with what the contestant made of it, or ""
    seconds: float  # for how long
    batch: int  # crops, blocks or rows of a batch
    block: int = 1024  # tokens of a crop or block
    chunk: int = 16 * MIB  # bytes of a scan's step
    first_batch: int = 0  # where in the epoch to begin
    budget: str = "64MiB"  # Evenkeel's
    workers: int = 0
    numbered: bool = False  # the blocks of the file begin with their numbers
    seed: int = 7

    def __post_init__(self):
        # Set by contestants with an order of their own: where the first batch is from.
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
    def blocks(self):
        """Of an epoch: each has `block` tokens, and one more for y."""
        return (self.tokens - 1) // self.block

    def starts(self):
        """Where crops begin, a batch at a time, without end: the same for every contestant."""
        import numpy as np

        random, last = np.random.default_rng(self.seed), self.tokens - self.block - 1
        while True:
            yield random.integers(0, last, self.batch)

    def prepare(self):
        """What is given to contestants, made before the clock: the order of the rows."""
        import numpy as np

        if self.kind == "rows":
            self._order = np.random.default_rng(self.seed).permutation(self.rows)

    def indices(self):
        """Row numbers in shuffled order, a batch at a time, over and over."""
        while True:
            for at in range(0, len(self._order) - self.batch + 1, self.batch):
                yield self._order[at : at + self.batch]

    def shuffled_blocks(self):
        """Block numbers of a shuffled epoch as most programs make them: an array of all."""
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
        """Of one item."""
        if self.kind == "scan":
            return MIB
        return 4 * COLUMNS if self.kind == "rows" else 2 * (self.block + 1)
