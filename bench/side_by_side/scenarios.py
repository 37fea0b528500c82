"""The scenarios: which work on which data, cached or not."""

import dataclasses

from . import data

MB = 10**6


@dataclasses.dataclass(frozen=True)
class Data:
    """A file, and the function that creates it: make(path, count)."""

    name: str
    count: int
    small: int
    make: callable
    text: str
    copied: str = ""  # too large to convert; contestants that convert use this smaller data


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    work: str  # the function of the contestant that is called
    data: str
    unit: str
    warm: bool = False
    limit: int | None = None  # of a memory cgroup, in bytes
    batch: int = 64
    block: int = 1024
    middle: bool = False  # begin in the middle of the epoch
    first_only: bool = False  # only the time to the first batch counts
    workers: int = 0
    without: tuple = ()  # contestants left out because others represent them
    most_repeats: int = 99
    budget: str = "64MiB"  # Evenkeel's
    small_budget: str = "8MiB"  # with --small
    grace: float = 60  # seconds after the measurement until a contestant is stopped


ROWS = "{count:,} rows of 162 float32, {size}"


def make_rows(path, count):
    data.make(path, count * data.COLUMNS * 4)


DATA = {
    one.name: one
    for one in (
        Data(
            "tokens",
            10 * data.GIB,
            64 * data.MIB,
            lambda path, count: data.make(path, count),
            "{size} of uint16 tokens",
        ),
        Data("rows", 3_000_000, 100_000, make_rows, ROWS),
        Data("matrix", 16_000_000, 100_000, make_rows, ROWS, copied="rows"),
        Data(
            "blocks",
            524_288,
            8192,
            data.make_blocks,
            "{count:,} blocks of 1,024 uint16 tokens, {size}",
        ),
        Data(
            "huge",
            488_000_000,
            488_000,
            lambda path, count: data.make_sparse(path, count * 2048 + 2),
            "{count:,} blocks of 1,024 uint16 tokens, {size}, sparse",
            copied="blocks",
        ),
        Data(
            "cells",
            200_000,
            12_000,
            data.make_cells,
            "{count:,} sparse rows of 20,000 columns and about 1,000 values, {size}",
        ),
        Data("labelled", 500_000, 20_000, data.make_labelled, ROWS + ", with labels"),
    )
}

# Contestants that map or read the file like another one. Each is in at least one scenario of its
# kind.
TWINS = ("mmap_ninja_numpy", "tensordict_mapped", "memmap_dontneed")

# Ordered by data, so that only one set of files exists at a time.
SCENARIOS = {
    one.name: one
    for one in (
        Scenario("crops-cold", "Random crops, not cached", "crops", "tokens", "crops"),
        Scenario(
            "crops-limited",
            "Random crops, not cached, inside a memory cgroup of 400 MB",
            "crops",
            "tokens",
            "crops",
            limit=400 * MB,
            without=("mmap_ninja_numpy", "tensordict_mapped", "megatron_indexed"),
        ),
        Scenario(
            "scan-cold", "Sequential scan, not cached", "scan", "tokens", "MiB", without=TWINS
        ),
        Scenario(
            "train",
            "A small GPT trained on the CPU, not cached",
            "train",
            "tokens",
            "sequences",
            batch=16,
            block=64,
            without=(*TWINS, "megatron_indexed"),
        ),
        Scenario(
            "crops-warm",
            "Random crops, all cached",
            "crops",
            "tokens",
            "crops",
            warm=True,
            without=TWINS,
        ),
        Scenario(
            "scan-warm",
            "Sequential scan, all cached",
            "scan",
            "tokens",
            "MiB",
            warm=True,
            without=TWINS,
        ),
        Scenario("rows-cold", "Shuffled rows, not cached", "rows", "matrix", "rows", batch=256),
        Scenario(
            "rows-fit",
            "Shuffled rows of a file that fits in memory, not cached at first",
            "rows",
            "rows",
            "rows",
            batch=256,
        ),
        Scenario(
            "rows-limited",
            "Shuffled rows, not cached, inside a memory cgroup of 400 MB",
            "rows",
            "rows",
            "rows",
            limit=400 * MB,
            batch=256,
        ),
        Scenario(
            "epoch-shuffled",
            "A shuffled epoch of blocks that fit in memory, not cached at first",
            "epoch",
            "blocks",
            "blocks",
        ),
        Scenario(
            "epoch-limited",
            "A shuffled epoch of blocks, not cached, inside a memory cgroup of 500 MB",
            "epoch",
            "blocks",
            "blocks",
            limit=500 * MB,
        ),
        Scenario(
            "resume",
            "Time to resume in the middle of a shuffled epoch",
            "epoch",
            "blocks",
            "blocks",
            middle=True,
            first_only=True,
            without=(*TWINS, "memmap_anew", "memmap_random", "torch_from_file"),
        ),
        Scenario(
            "workers",
            "A shuffled epoch with 4 worker processes, not cached",
            "workers",
            "blocks",
            "blocks",
            workers=4,
        ),
        Scenario(
            "open-huge",
            "Time to the first batch of a shuffled epoch of 1 TB",
            "epoch",
            "huge",
            "blocks",
            first_only=True,
            limit=8000 * MB,
            without=(*TWINS, "memmap_anew", "memmap_random", "megatron_indexed", "evenkeel"),
            most_repeats=3,
            grace=300,
        ),
        Scenario(
            "cells-cold",
            "Shuffled sparse cells, not cached",
            "cells",
            "cells",
            "cells",
            batch=512,
            budget="160MiB",
            small_budget="64MiB",
        ),
        Scenario(
            "cells-warm",
            "Shuffled sparse cells, all cached",
            "cells",
            "cells",
            "cells",
            warm=True,
            batch=512,
            budget="160MiB",
            small_budget="64MiB",
        ),
        Scenario(
            "labelled-cold",
            "Shuffled rows with labels to torch, not cached",
            "labelled",
            "labelled",
            "rows",
            batch=512,
            workers=2,
        ),
    )
}
