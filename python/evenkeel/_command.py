"""Shared code of the commands that run in Python."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

# Errors that are printed as a message, without a traceback.
_ERRORS = (OSError, ValueError, TypeError, LookupError, ImportError, RuntimeError, MemoryError)


class Parser(argparse.ArgumentParser):
    """`prog` is "evenkeel NAME"."""

    def __init__(self, prog: str) -> None:
        argparse.ArgumentParser.__init__(self, prog=prog, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        usage = f"usage: {self.prog} --help lists the options"
        sys.stderr.write(f"evenkeel: {message}\n{usage}\n")
        sys.exit(2)


def main(
    words: Sequence[str],
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], dict[str, Any]],
    say: Callable[[dict[str, Any]], None],
) -> int:
    # End on these signals like the tool does: quickly, and without losing checkpoints.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    arguments = parser.parse_args(words)
    try:
        report = run(arguments)
    except KeyboardInterrupt:
        clear()
        return 128 + signal.SIGINT
    except _ERRORS as error:
        clear()
        sys.stderr.write(f"evenkeel: {_message(error)}\n")
        return 1
    clear()
    # As in the tool: a closed pipe ends the program, and what cannot be printed is an error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        if sys.stdout is None:  # it was closed
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        _print(report, arguments, parser, say)
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"evenkeel: write stdout: {error.strerror}\n")
        if sys.stdout is not None:  # Python flushes it again when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _message(error: BaseException) -> str:
    """An OSError without "[Errno 2]", and with its path once: ours name it in their text."""
    if not isinstance(error, OSError) or error.errno is None or error.strerror is None:
        return str(error)
    text = error.strerror
    if text != os.strerror(error.errno) or error.filename is None:
        return text
    path = os.fsdecode(error.filename)
    return f"{path if path.isprintable() else repr(path)}: {text}"


def _print(
    report: dict[str, Any],
    arguments: argparse.Namespace,
    parser: argparse.ArgumentParser,
    say: Callable[[dict[str, Any]], None],
) -> None:
    if arguments.json:
        print(json.dumps(report, indent=1))
    elif "manifest" in report:
        print(f"{report['manifest']}: {report['parts']} parts")
        name = parser.prog
        if len(report["steps"]) == 1:
            print(f"next: {name} --manifest FILE --part I for each of them, then --finish")
        else:
            steps = ", then ".join(f"{first} to {end - 1}" for first, end in report["steps"])
            print(f"next: {name} --manifest FILE --part I for {steps}, then --finish")
    else:
        say(report)


def add_manifest_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--manifest")
    add("--parts", type=int)
    add("--scratch")
    add("--part", type=int)
    add("--finish", action="store_true")
    add("--json", action="store_true")


def part_or_finish(
    given: argparse.Namespace,
    parser: argparse.ArgumentParser,
    progress: Callable[[dict[str, Any]], None] | None,
) -> dict[str, Any] | None:
    """Handles --part and --finish; does nothing if neither was given."""
    import evenkeel
    from evenkeel._core import Budget

    if given.part is None and not given.finish:
        return None
    name = parser.prog.split()[-1]
    if given.manifest is None or given.files:
        raise ValueError(f"{name}: --part and --finish need --manifest and no files")
    doing = "finish" if given.finish else "part"
    require_no_more(
        given,
        parser,
        f"--{doing}",
        {"manifest", "budget", "json", "resume", doing}
        | ({"workers", "checkpoint"} if doing == "part" else set()),
        "the manifest defines the inputs, the output and the options; create a new one to change"
        " them",
    )
    manifest = evenkeel.Manifest.load(given.manifest)
    if manifest.work != name:
        raise ValueError(f"{name}: this manifest is for `evenkeel {manifest.work}`")
    if given.finish:
        return manifest.finish(budget=given.budget or "64MiB")
    return manifest.run(
        given.part,
        workers=getattr(given, "workers", None),
        budget=given.budget,
        checkpoint=Budget(given.checkpoint).limit,
        progress=progress,
    )


def require_parts(
    given: argparse.Namespace, parser: argparse.ArgumentParser, useful: Sequence[str]
) -> None:
    """Checks the options of a command that only plans."""
    if given.parts is None:
        name = parser.prog.split()[-1]
        raise ValueError(f"{name}: --manifest needs --parts, the number of parts")
    require_no_more(
        given,
        parser,
        "--manifest --parts",
        {*useful, "files", "output", "manifest", "parts", "scratch", "json"},
        "this command only plans; use the option with --part",
    )


def saved(manifest: Any, path: str) -> dict[str, Any]:
    """Writes a plan, and returns the report about it."""
    manifest.save(path)
    steps = [[step.start, step.stop] for step in manifest.steps]
    return {"manifest": os.path.abspath(path), "parts": len(manifest), "steps": steps}


def require_no_more(
    given: argparse.Namespace,
    parser: argparse.ArgumentParser,
    doing: str,
    useful: set[str],
    hint: str,
) -> None:
    """Refuses options that would have no effect."""
    more = [
        "--" + name.replace("_", "-")
        for name, value in vars(given).items()
        if name not in useful and value != parser.get_default(name) and value != []
    ]
    if more:
        name = parser.prog.split()[-1]
        raise ValueError(
            f"{name}: {doing} cannot be given together with {', '.join(more)}\nhint: {hint}"
        )


def show_line(now: dict[str, Any], text: str) -> None:
    """Rewrites one line of the terminal: a bar, and a text."""
    share = now["done"] / max(1, now["total"])
    filled = int(20 * share)
    sys.stderr.write(f"\r\x1b[K{'━' * filled}{'╌' * (20 - filled)} {100 * share:3.0f} %  {text}")
    sys.stderr.flush()


def clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
