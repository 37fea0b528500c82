"""One file a contestant. Each has

TITLE        what tables call it
PACKAGES     the distributions whose versions are printed
crops(work), rows(work), scan(work), epoch(work), workers(work), train(work)
             generators of batches, those that it can do; work.py says what is asked
CANNOT       for what it cannot do: the work, and why
CONVERTS     the data ("tokens", "rows", "blocks") of which it needs a copy of its own, made by
convert(work)     into work.converted, outside the clock

What is imported at its head is imported before the clock.

A name that begins with _ is no contestant, but shared by some.
"""

import pathlib

NAMES = sorted(p.stem for p in pathlib.Path(__file__).parent.glob("*.py") if p.stem[0] != "_")
