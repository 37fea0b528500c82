"""Worker processes. Returns their answers in the order of the items, in bounded memory."""

from __future__ import annotations

import builtins
import fcntl
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from evenkeel._closing import Closing
from evenkeel._tokenize.documents import Message, Position, TooLong
from evenkeel._tokenize.job import Job
from evenkeel._tokenize.worker import Work

# Not `python -m`: the worker must use the same sys.path as this process.
_START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from evenkeel._tokenize.worker import main; main()"
)
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python 3.9 has no name for
# Items that a worker has: the one it works on and the next one, so that it never waits.
AHEAD = 2
# Answers per worker that may wait for their turn, including those in progress.
WINDOW = 4

Item = tuple[int, Position, int, Message]  # its number, and what `items` yields
Answer = tuple[Position, int, Any, dict[str, int]]


class Alone:
    """Like Pool, but without processes: the work is done in this one."""

    def __init__(self, job: Job, most: int, items: Iterator[Any]) -> None:
        self._work, self._items = Work(job, most), items
        self.peaks: list[int] = []

    def __iter__(self) -> Iterator[Answer]:
        for position, done, message in self._items:
            tokens, counts = self._work(message)
            yield position, done, tokens, counts

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Pool(Closing):
    """Answers items in order. As a context manager, it always ends its processes."""

    def __init__(self, job: Job, workers: int, most: int, items: Iterator[Any]) -> None:
        self._items = items
        self._reading = threading.Lock()  # held while an item is taken
        self._changed = threading.Condition()  # its lock guards all below
        self._asked = 0  # items that were handed out
        self._given = 0  # answers that were taken
        self._answers: dict[int, Answer] = {}
        self._ended = False  # there are no more items
        self._failure: BaseException | None = None
        self._window = workers * WINDOW
        self.peaks = [0] * workers  # the most memory of each process
        self._processes = [_start(job, most) for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(n,), daemon=True) for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Answer]:
        while True:
            with self._changed:
                while self._given not in self._answers:
                    if self._failure is not None:
                        raise self._failure
                    if self._ended and self._given == self._asked:
                        return
                    self._changed.wait(1)
                answer = self._answers.pop(self._given)
                self._given += 1
                self._changed.notify_all()
            yield answer

    def _next(self, wait: bool) -> Item | None:
        """An item for a worker, once there is room for its answer; None if there are no more items.

        A waiting thread has no answer to collect, so no thread waits for itself.
        """
        if not self._reading.acquire(blocking=wait):
            return None
        try:
            with self._changed:
                while self._asked - self._given >= self._window and self._failure is None:
                    if not wait:
                        return None
                    self._changed.wait(1)
                if self._ended or self._failure is not None:
                    return None
            item = next(self._items, None)
            with self._changed:
                if item is None:
                    self._ended = True
                    self._changed.notify_all()
                    return None
                self._asked += 1
                return (self._asked - 1, *item)
        finally:
            self._reading.release()

    def _serve(self, n: int) -> None:
        process = self._processes[n]
        given: list[Item] = []
        try:
            while True:
                while len(given) < AHEAD:
                    item = self._next(wait=not given)
                    if item is None:
                        break
                    _send(process, item[3])
                    given.append(item)
                if not given:
                    return
                number, position, done, message = given.pop(0)
                tokens, counts, self.peaks[n] = _answer(process, message)
                with self._changed:
                    self._answers[number] = position, done, tokens, counts
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._failure = self._failure or RuntimeError("tokenize: the work was stopped")
            self._changed.notify_all()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for thread in self._threads:
            thread.join(10)
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _close(pipe)


def _start(job: Job, most: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            fcntl.fcntl(pipe, _SET_PIPE_SIZE, 1 << 20)
        except OSError:
            pass  # only costs more switches between processes
    _send(process, sys.path)
    _send(process, (job, most))
    return process


def _send(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    try:
        pickle.dump(message, process.stdin, protocol=5)
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it has ended; reading its answer reports why


def _answer(process: subprocess.Popen[bytes], message: Message) -> tuple[Any, Any, int]:
    assert process.stdout is not None
    try:
        answer = pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        code = process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        raise RuntimeError(
            f"tokenize: a worker process {how} while it had {_words(message)}\nhint: signal 9"
            " often comes from the kernel when memory runs out; use fewer workers. --resume"
            " continues the run"
        ) from None
    if answer[0] == "error":
        raise _error(*answer[1:])
    return answer[1], answer[2], answer[3]


def _words(message: Message) -> str:
    if message[0] == "range":
        return f"bytes {message[3]:,} to {message[4]:,} of {message[1]}"
    return f"text of {message[1][0] if message[0] == 'files' else message[1]}"


def _error(kind: str, text: str) -> BaseException:
    """The worker's error, with its original type if that is a builtin."""
    if kind == TooLong.__name__:
        return TooLong(text)
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception) and known is not UnicodeDecodeError:
        return known(text)
    return RuntimeError(f"tokenize: {kind}: {text}")


def _close(pipe: Any) -> None:
    try:
        pipe.close()
    except OSError:
        pass
