"""evenkeel.stats: statistics of files of any size."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from evenkeel import _core
from evenkeel._core import Budget
from evenkeel._files import AnyBudget, PathLike, Paths, expand, printable
from evenkeel._manifest import Progress, callback
from evenkeel._shuffle import items_of, known_items, work_budget
from evenkeel._stepping import number

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def stats(
    paths: Paths,
    *,
    unit: str | None = None,
    dtype: Any = None,
    shape: Sequence[int | None] | None = None,
    block: int = 0,
    bos: int | None = None,
    eos: int | None = None,
    tokens: bool = False,
    quantiles: Sequence[float] = QUANTILES,
    sketch: int = 1024,
    bins: int = 40,
    top: int = 20,
    budget: AnyBudget = None,
    state: PathLike | None = None,
    resume: bool = False,
    checkpoint: int | str = "1GiB",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Statistics of files of any size, read once: what `evenkeel stats --json` prints.

    For each column of an array: number of values, NaN and infinities, minimum, maximum, mean,
    variance, quantiles and a histogram. For token files: how often tokens occur, and lengths of
    documents. For text: lengths of lines.

    - `unit`, `dtype`, `shape`, `block`, `bos`, `eos`: as for `evenkeel.shuffle`. `tokens`: the
      files hold tokens, not rows.
    - `quantiles`: from 0 to 1. They are exact for up to `sketch` numbers in a column. Beyond that,
      their rank among all numbers is exact to within "rank_error" with a probability of 99 %.
    - `bins`: bars of histograms. `top`: how many of the most frequent tokens to return.
    - `budget`: all memory; default 512 MiB, or an eighth of the memory available if that is less.
    - `state`: a file for checkpoints, which is removed at the end. `checkpoint`: bytes after which
      a killed run can continue; `resume` continues there.

    >>> import evenkeel, numpy
    >>> numpy.save("x.npy", numpy.arange(10.0).reshape(5, 2))
    >>> [column["mean"] for column in evenkeel.stats("x.npy")["columns"]]
    [4.0, 5.0]
    """
    known = known_items(locals())
    began = time.monotonic()
    files = expand(paths, _core.expand_token_paths)
    items = items_of(files, known)
    if tokens and unit is None and items.unit == "rows":  # no documents are known
        items = items_of(files, {**known, "unit": "blocks", "block": 1 << 15})
    if resume and state is None:
        raise ValueError("stats: resume needs state, the file with the checkpoint")
    try:
        shares = [float(q) for q in quantiles]
    except (TypeError, ValueError):
        raise TypeError(
            f"stats: quantiles must be numbers from 0 to 1; got {quantiles!r}"
        ) from None
    for q in shares:
        if not 0 <= q <= 1:
            raise ValueError(f"stats: quantiles must be from 0 to 1; got {q}")
    report = _core.stats(
        items,
        budget=work_budget(budget),
        quantiles=shares,
        sketch=number("sketch", sketch, 0, what="stats"),
        bins=number("bins", bins, 0, what="stats"),
        top=number("top", top, 0, what="stats"),
        state=os.fsencode(state) if state is not None else b"",
        resume=bool(resume),
        checkpoint=Budget(checkpoint).limit,
        progress=callback(progress),
    )
    names = [printable(path) for path in files]
    return {"files": names, **report, "seconds": time.monotonic() - began}
