"""Memory of this process over time."""

from __future__ import annotations

import base64
import functools
import html
import os
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Callable, TypeVar

from evenkeel import _core
from evenkeel._core import Budget
from evenkeel._stepping import real

Function = TypeVar("Function", bound=Callable[..., Any])

_recording: list[_core.Recording] = []  # recordings in progress, outermost first


def mark(text: str) -> None:
    """Marks this moment ("epoch 2") in each `evenkeel.profile` that is recording in this process,
    and in an `evenkeel profile` that watches it from outside.

    >>> import evenkeel
    >>> with evenkeel.profile() as p:
    ...     evenkeel.mark("half way")
    >>> [text for seconds, text in p.marks]
    ['half way']
    """
    if not isinstance(text, str):
        raise TypeError(f"mark: pass a string, such as f'step {{step}}'; got {text!r}")
    _core.mark(text)
    for recording in list(_recording):
        recording.mark(text)


class profile:
    """Records the memory of this process and its children: around a block, or as a decorator.

    `budget` is the memory it should stay within; `interval` is the time between two samples, in
    seconds; `files` are patterns of files whose page cache is watched, by default the data files in
    use. The recording thread needs no interpreter. A decorated function has the profile of its last
    call as `.profile`.

    >>> import evenkeel
    >>> with evenkeel.profile(budget="8GiB") as p:
    ...     data = bytearray(20_000_000)
    >>> p.peaks["anon"] > 20_000_000
    True
    >>> p.report("mem.html")
    >>> @evenkeel.profile()
    ... def work():
    ...     return 42
    >>> work(), work.profile.peaks["rss"] > 0
    (42, True)
    """

    def __init__(
        self,
        budget: int | str | Budget | None = None,
        interval: float = 0.01,
        files: str | Iterable[str] | None = None,
    ) -> None:
        given: Any = budget
        if callable(given):
            raise TypeError(
                "profile: as a decorator it needs parentheses\nhint: write @evenkeel.profile()"
            )
        self._budget = None if budget is None else Budget(budget).limit
        self._interval = real("profile: interval, in seconds,", interval)
        self._files = [files] if isinstance(files, (str, os.PathLike)) else list(files or ())
        self._name = _name_of_program()
        self._recording: _core.Recording | None = None
        self._report: _core.Report | None = None
        self._owner = 0  # the process that records

    def __enter__(self) -> profile:
        if self._recording is not None:
            raise ValueError("profile: it is recording already\nhint: create another one")
        self._report = None
        files = [os.fspath(file) for file in self._files]
        self._recording = _core.begin_recording(self._interval, files)
        self._owner = os.getpid()
        _recording.append(self._recording)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            raise ValueError("profile: it is not recording")
        if recording in _recording:
            _recording.remove(recording)
        if self._owner != os.getpid():
            return  # a forked child leaves the block: its parent has the recording
        ended = "done" if kind is None else f"raised {kind.__name__}"
        self._report = _core.end_recording(recording, self._name, ended, self._budget)

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            one = profile(self._budget, self._interval, self._files)
            one._name = f"{self._name}: {function.__qualname__}"
            try:
                with one:
                    return function(*args, **kwargs)
            finally:
                profiled.profile = one  # type: ignore[attr-defined]

        return profiled  # type: ignore[return-value]

    @property
    def peaks(self) -> dict[str, int | None]:
        """The largest value of each kind, in bytes; None if the kernel does not report it."""
        return self._done().peaks

    @property
    def slope(self) -> float | None:
        """How fast memory rises in the second half of the run, in bytes per minute; None for runs
        under a second."""
        return self._done().slopes["memory"]

    @property
    def slopes(self) -> dict[str, float | None]:
        """The same for `memory`, `rss` and `anon`."""
        return self._done().slopes

    @property
    def counters(self) -> dict[str, float]:
        """Bytes read from disk, faults, processor time, seconds over the budget."""
        return self._done().counters

    @property
    def seconds(self) -> float:
        return self._done().seconds

    @property
    def marks(self) -> list[tuple[float, str]]:
        """Moments named by `evenkeel.mark`: seconds since the start, text."""
        return self._done().marks

    @property
    def notes(self) -> list[str]:
        """Notes that are needed to interpret the numbers."""
        return self._done().notes

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes a page, a picture or the numbers: .html, .svg, .json or .csv."""
        done = self._done()
        made = {".html": done.html, ".svg": done.svg, ".json": done.json, ".csv": done.csv}
        suffix = os.path.splitext(os.fspath(path))[1].lower()
        if suffix not in made:
            raise ValueError(f"report: {suffix or 'no suffix'} is not one of {', '.join(made)}")
        _core.write_report(os.fspath(path), made[suffix]())

    def __repr__(self) -> str:
        if self._recording is not None:
            return "<evenkeel.profile, recording>"
        if self._report is None:
            return "<evenkeel.profile, not begun>"
        return f"<evenkeel.profile of {self._report.seconds:.2f} s: {self._report.subtitle}>"

    # An image, which needs no trusted scripts, and has no styles that would affect the notebook.
    def _repr_html_(self) -> str:
        done = self._done()
        picture = base64.b64encode(done.svg().encode()).decode()
        cells = "".join(
            f"<tr><td>{html.escape(kind)}</td><td>{_size(peak)}</td></tr>"
            for kind, peak in done.peaks.items()
        )
        return (
            f'<img alt="{html.escape(done.subtitle)}" style="max-width:100%"'
            f' src="data:image/svg+xml;base64,{picture}">'
            f"<table><tr><th>kind</th><th>peak</th></tr>{cells}</table>"
        )

    def _done(self) -> _core.Report:
        if self._report is None and self._owner not in (0, os.getpid()):
            raise ValueError(
                "profile: nothing was recorded here\n"
                "hint: a recording belongs to the process that began it, not to its children"
            )
        if self._report is None:
            state = "is still recording" if self._recording is not None else "has not recorded yet"
            raise ValueError(f"profile: it {state}\nhint: use it after the block has ended")
        return self._report


def _size(peak: int | None) -> str:
    return "unknown" if peak is None else _core.format_size(peak)


def _name_of_program() -> str:
    script = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    return f"python {script}" if script and script != "-c" else "python"
