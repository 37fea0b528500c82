"""One file per contestant. Each defines

TITLE        its name in tables
PACKAGES     the distributions whose versions are printed
crops(work), rows(work), scan(work), epoch(work), workers(work), train(work), cells(work),
labelled(work)
             generators of batches, for the kinds of work it can do; see work.py
CANNOT       the kinds of work it cannot do, and why
CONVERTS     the data ("rows", "blocks", "cells", ...) that it needs in its own format
convert(work)     writes that copy into work.converted; not timed

CONVERTED    contestants with the same value share one copy; default: the name of the file

A contestant that needs another Python than the others runs in .venv-peers-NAME if that exists.
Imports at the top of the file are not timed.

Files whose names begin with _ are shared code, not contestants.
"""

import pathlib

NAMES = sorted(p.stem for p in pathlib.Path(__file__).parent.glob("*.py") if p.stem[0] != "_")
