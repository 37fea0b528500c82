"""The package as its users type it; read by mypy, not run."""

from pathlib import Path
from typing import Any, Optional

import numpy as np

import evenkeel

budget: evenkeel.Budget = evenkeel.Budget("64MiB")
limit: int = budget.limit

a: evenkeel.Array = evenkeel.open(Path("features.npy"), budget=budget)
evenkeel.open(["a.npy", b"b.npy"], budget="1GiB/node", engine="direct")
evenkeel.open("raw", dtype=np.float32, shape=(-1, 4), offset=16, budget=1 << 20)
shape: tuple[int, ...] = a.shape
kind: np.dtype[Any] = a.dtype
rows: int = len(a)
block = a[3:7, ..., None]
taken = a.take([1, 2], out=np.empty((2, 4)))
loop: evenkeel.Batches = a.batches(4096, shuffle=True, seed=1, with_index=True)
state: dict[str, Any] = loop.state_dict()
whole = np.asarray(a)
engine: str = a.engine
with evenkeel.open("x.npy") as b:
    b.close()

with evenkeel.create(Path("made.npy"), np.float32, (None, 3), budget="64MiB", resume=True) as w:
    w.append(np.zeros((2, 3)))
    w[0:1] = 7
    w.checkpoint(str(w.rows))
with evenkeel.TokenWriter("made.bin", format="llm.c", eot=50256) as t:
    t.append([1, 2, 3])
    t.end_document()

with evenkeel.profile(budget="1GiB", interval=0.01, files=["*.npy"]) as p:
    evenkeel.mark("here")
peak: Optional[int] = p.peaks["rss"]
slope: Optional[float] = p.slope
p.report(Path("mem.html"))


@evenkeel.profile()
def work(x: int) -> str:
    return str(x)


text: str = work(3)
version: str = evenkeel.__version__
what: dict[str, Any] = evenkeel.info("x.npy")
