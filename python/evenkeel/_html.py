"""HTML for notebooks: small tables of arrays, tokens, loaders and budgets, without scripts, and
without styles that would affect the rest of the page."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evenkeel._core import Budget, format_size
from evenkeel._files import printable
from evenkeel._ragged import Ragged

if TYPE_CHECKING:
    from evenkeel._array import Array
    from evenkeel._batches import Batches
    from evenkeel._loader import TokenLoader
    from evenkeel._rows import Loader
    from evenkeel._tokens import Tokens

_MOST_FILES = 3
_MOST_USES = 8


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><td style="text-align:left"><b>{html.escape(name)}</b></td>'
        f'<td style="text-align:left">{value}</td></tr>'
        for name, value in rows
    )
    head = f"<tr><th colspan=2>{html.escape(title)}</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{cells}</tbody></table>"


def _text(value: Any) -> str:
    return html.escape(str(value))


def _files(paths: Sequence[str | bytes]) -> tuple[str, str]:
    names = [os.path.basename(printable(path)) for path in paths[:_MOST_FILES]]
    more = len(paths) - len(names)
    shown = ", ".join(names) + (f" and {more:,} more" if more else "")
    return ("file" if len(paths) == 1 else f"{len(paths):,} files", _text(shown))


def _budget_rows(budget: Budget) -> list[tuple[str, str]]:
    used, limit = budget.in_use, budget.limit
    share = 0.0 if limit == 0 else used / limit
    rows = [
        (
            "budget",
            f'<meter value="{share:.3f}" max="1"></meter> {_text(format_size(used))} of '
            f"{_text(format_size(limit))} in use, {_text(format_size(budget.peak))} at the peak",
        )
    ]
    uses = sorted(budget.uses().items(), key=lambda use: -use[1])
    if uses:
        shown = [f"{what} {format_size(size)}" for what, size in uses[:_MOST_USES]]
        rest = sum(size for _, size in uses[_MOST_USES:])
        if rest > 0:
            shown.append(f"others {format_size(rest)}")
        rows.append(("used by", _text(", ".join(shown))))
    return rows


def _budgets_rows(budgets: Iterable[Budget]) -> list[tuple[str, str]]:
    """A shared budget is shown once. Two objects of one budget have the same figures."""
    shown: list[list[tuple[str, str]]] = []
    for budget in budgets:
        figures = _budget_rows(budget)
        if figures not in shown:
            shown.append(figures)
    return [row for figures in shown for row in figures]


def array(a: Array) -> str:
    if a._reader.closed:
        return _table("evenkeel.Array, closed", [_files(a._recipe[0])])
    rows = [
        ("shape", _text(a.shape)),
        ("dtype", _text(a.dtype)),
        ("size", _text(f"{format_size(a.nbytes)}, {a.format}")),
        _files(a.paths),
        *_budget_rows(a.budget),
        ("engine", _text(a.engine)),
    ]
    return _table("evenkeel.Array", rows)


def tokens(t: Tokens) -> str:
    rows = [
        ("tokens", _text(f"{len(t):,} of {t.dtype}, {t.format}")),
        _files(t.paths),
        *_budget_rows(t.budget),
        ("engine", _text(t.engine)),
    ]
    return _table("evenkeel.Tokens", rows)


def batches(b: Batches) -> str:
    order = f"shuffled, seed {b._seed}" if b._shuffle else "in order"
    where = f"{b._position:,} of {b._length:,}, epoch {b._epoch}"
    rows = [
        ("batches", _text(f"{b._n:,} rows, {order}, rank {b._rank} of {b._world}")),
        ("position", _text("closed" if b._closed else where)),
        ("array", _text(f"{b._array.shape} {b._array.dtype}")),
        _files(b._array._recipe[0]),
    ]
    if not b._closed and not b._array._reader.closed:
        rows += [*_budget_rows(b._array.budget), ("engine", _text(b._array.engine))]
    return _table("evenkeel.Batches", rows)


def loader(one: TokenLoader) -> str:
    batch, block = one._shape
    rows = [
        ("batch", _text(f"{batch:,} x {block:,} {one._dtype}")),
        ("order", _text(f"{one._order}, rank {one._rank} of {one._world}")),
    ]
    if one._closed:
        return _table("evenkeel.TokenLoader, closed", rows)
    rows.append(("next step", _text(f"{one.step:,}" + (f" of {one.size:,}" if one.size else ""))))
    rows.append(("read ahead", _text(f"{one.buffers:,} batches")))
    for source in one._sources:
        rows.append(("tokens", _text(f"{len(source):,} of {source.dtype}, {source.format}")))
        rows.append(_files(source.paths))
        rows.append(("engine", _text(source.engine)))
    rows += _budgets_rows(source.budget for source in one._sources)
    return _table("evenkeel.TokenLoader", rows)


def row_loader(one: Loader) -> str:
    total = sum(len(fields[0]) for fields, _ in one._sets)
    rows = [
        ("batch", _text(f"{one._batch_size:,} of {total:,} rows")),
        ("order", _text(f"{one._order}, rank {one._rank} of {one._world}")),
    ]
    if one._closed:
        return _table("evenkeel.Loader, closed", rows)
    rows.append(("next step", _text(f"{one.step:,}" + (f" of {one.size:,}" if one.size else ""))))
    rows.append(("read ahead", _text(f"{one.buffers:,} batches")))
    for fields, weight in one._sets:
        if len(one._sets) > 1:
            rows.append(("weight", _text(f"{weight:g}")))
        for field in fields:
            for array in field.arrays if isinstance(field, Ragged) else (field,):
                rows.append(("array", _text(f"{array.shape} {array.dtype}")))
                rows.append(_files(array._recipe[0]))
                if not array._reader.closed:
                    rows.append(("engine", _text(array.engine)))
    rows += _budgets_rows(field.budget for fields, _ in one._sets for field in fields)
    return _table("evenkeel.Loader", rows)


def budget(one: Budget) -> str:
    return _table("evenkeel.Budget", [("limit", _text(one.describe())), *_budget_rows(one)])
