"""Ctrl-C, other threads and the end of the interpreter while a disk does not answer.

Each test runs a program on a FUSE mount whose server is stopped. The program says when it is about
to wait; then it gets SIGINT. It must answer while the disk still does not.
"""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from slow_disk import slow_disk

LIMIT = 40  # seconds; a program that waits for the disk never ends by itself

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import evenkeel

ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.001)
threading.Thread(target=tick, daemon=True).start()

def stopped():
    # The parent stops the disk when it reads this, and says so.
    print("stop", flush=True)
    sys.stdin.readline()

def interrupted(call):
    # SIGINT comes 0.2 s after the call has begun, or later, when the other thread has run: it never
    # comes if the call holds the interpreter.
    before, began = ticks, time.monotonic()
    def interrupt():
        time.sleep(0.2)
        while ticks - before < 20:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    try:
        threading.Thread(target=interrupt).start()
        call()
    except KeyboardInterrupt:
        print("interrupted after", time.monotonic() - began, "ticks", ticks - before, flush=True)
    else:
        print("not interrupted", flush=True)

evenkeel.open, evenkeel.tokens, evenkeel.TokenLoader  # imports look at the current folder
os.chdir(sys.argv[1])
"""


@pytest.fixture
def disk(tmp_path):
    with slow_disk(tmp_path) as disk:
        np.arange(1_000_000, dtype="i4").reshape(-1, 100).tofile(disk.source / "rows.bin")
        (np.arange(4_000_000) % 65536).astype(np.uint16).tofile(disk.source / "train.bin")
        yield disk


def has_left(pid):
    """Whether a process has called exit: its memory is gone, and the kernel closes its files."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return "VmSize" not in status.read()
    except FileNotFoundError:
        return True


def go_on_after_exit(disk, process):
    """Closing a file of a FUSE mount waits for the server, in the kernel. When a program is there,
    it has ended as far as it can."""
    while process.returncode is None and not has_left(process.pid):
        time.sleep(0.02)
    disk.go_on()


def run(disk, program):
    """What a program says after each stop of the disk; it must end while the disk is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(program), str(disk.mount)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(LIMIT, process.kill)
    watchdog.start()
    threading.Thread(target=go_on_after_exit, args=(disk, process), daemon=True).start()
    said = []
    try:
        for line in process.stdout:
            if line == "stop\n":
                disk.stop()
            elif line == "go on\n":
                disk.go_on()
            else:
                said.append(line.strip())
                continue
            process.stdin.write("\n")
            process.stdin.flush()
        errors = process.stderr.read()
        code = process.wait()
    finally:
        watchdog.cancel()
        disk.go_on()
        process.kill()
        process.wait()
    assert (code, errors) == (0, ""), (code, errors, said)
    return said


def assert_interrupted(line):
    words = line.split()
    assert words[0] == "interrupted", line
    assert int(words[-1]) >= 20, f"other threads stood still: {line}"
    print(line)  # the time is for those who look


ENGINES = ["auto", "read", "direct", "map"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "call",
    [
        "a[0:1500]",
        "a[3]",
        "a[[5, 7000, 300]]",
        "a.take([1, 9000], out=np.empty((2, 100), 'i4'))",
        "next(a.batches(500))",
    ],
)
def test_array_calls(disk, engine, call):
    (line,) = run(
        disk,
        f"""
        a = evenkeel.open("rows.bin", dtype="i4", shape=(-1, 100), budget="2MiB", engine="{engine}")
        stopped()
        interrupted(lambda: {call})
        """,
    )
    assert_interrupted(line)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("call", ["next(loader)", "train.xy([5, 90_000], 64)", "loader.seek(500)"])
def test_token_calls(disk, engine, call):
    said = run(
        disk,
        f"""
        train = evenkeel.tokens("train.bin", budget="4MiB", engine="{engine}")
        loader = evenkeel.TokenLoader(train, 4, 64, prefetch=2)
        stopped()
        if "seek" in "{call}":  # then a thread is reading
            try:
                interrupted(lambda: next(loader))
            except RuntimeError:
                pass
        interrupted(lambda: {call})
        """,
    )
    if "seek" in call and said[-1] == "not interrupted":
        said.pop()  # it had nothing to wait for
    for line in said:
        assert_interrupted(line)


@pytest.mark.parametrize(
    "call",
    [
        "evenkeel.open('rows.bin', dtype='i4')",
        "evenkeel.tokens('train.bin')",
    ],
)
def test_opening(disk, call):
    (line,) = run(
        disk,
        f"""
        stopped()
        interrupted(lambda: {call})
        """,
    )
    assert_interrupted(line)


@pytest.mark.parametrize("call", ["a[0:8000]", "a[3]", "a.engine", "a.batches(4000)"])
def test_calls_while_the_array_ends_its_mapping(disk, call):
    """A large result ends it, after the reads that use it."""
    (line,) = run(
        disk,
        f"""
        a = evenkeel.open("rows.bin", dtype="i4", shape=(-1, 100), budget="6MiB")
        assert a.engine.startswith("map"), a.engine
        stopped()
        threading.Thread(target=lambda: a[5000:5001], daemon=True).start()
        time.sleep(0.1)
        if "{call}" != "a[0:8000]":
            threading.Thread(target=lambda: a[0:8000], daemon=True).start()
            time.sleep(0.1)
        interrupted(lambda: {call})
        os._exit(0)
        """,
    )
    assert_interrupted(line)


def test_the_next_call_after_an_interrupt_does_not_hold_other_threads(disk):
    lines = run(
        disk,
        """
        a = evenkeel.open("rows.bin", dtype="i4", shape=(-1, 100), budget="8MiB", engine="read")
        stopped()
        interrupted(lambda: next(a.batches(500)))
        interrupted(lambda: next(a.batches(500)))
        interrupted(lambda: a[5:400])
        print("go on", flush=True)
        sys.stdin.readline()
        print(int(a[77, 7]), int(next(a.batches(500))[5, 5]))
        """,
    )
    for line in lines[:3]:
        assert_interrupted(line)
    assert lines[3] == "7707 505"


def test_an_interrupted_next_loses_no_batch(disk):
    lines = run(
        disk,
        """
        train = evenkeel.tokens("train.bin", budget="4MiB", engine="read")
        loader = evenkeel.TokenLoader(train, 4, 64, prefetch=0, seed=3)
        stopped()
        interrupted(lambda: next(loader))
        assert loader.step == 0
        print("go on", flush=True)
        sys.stdin.readline()
        x, _ = next(loader)
        print([row["start"] % 65536 for row in loader.explain(0)] == x[:, 0].tolist())
        """,
    )
    assert_interrupted(lines[0])
    assert lines[1] == "True"


@pytest.mark.parametrize(
    "waiting",
    [
        "next(evenkeel.TokenLoader(train, 4, 64))",
        "train.xy([5], 64)",
        "a[5:300]",
        "next(a.batches(500))",
    ],
)
def test_the_interpreter_ends_with_a_daemon_thread_that_waits(disk, waiting):
    assert run(
        disk,
        f"""
        train = evenkeel.tokens("train.bin", budget="4MiB", engine="read")
        a = evenkeel.open("rows.bin", dtype="i4", shape=(-1, 100), budget="2MiB", engine="read")
        stopped()
        begun = threading.Event()
        def wait():
            begun.set()
            {waiting}
        threading.Thread(target=wait, daemon=True).start()
        begun.wait()
        time.sleep(0.05)  # so that it is in the call; earlier is no failure either
        print("ends", flush=True)
        """,
    ) == ["ends"]


def test_the_interpreter_ends_with_readers_that_wait(disk):
    """Alive at exit, closed and abandoned ones."""
    said = run(
        disk,
        """
        train = evenkeel.tokens("train.bin", budget="16MiB", engine="read")
        a = evenkeel.open("rows.bin", dtype="i4", shape=(-1, 100), budget="2MiB", engine="read")
        loaders = [evenkeel.TokenLoader(train, 4, 64) for _ in range(3)]
        stopped()
        for loader in loaders:
            interrupted(lambda: next(loader))
        interrupted(loaders[0].close)
        del loaders[1]
        loop = a.batches(500)
        interrupted(lambda: next(loop))
        """,
    )
    for line in said[:3]:
        assert_interrupted(line)


def test_closing_from_another_thread_while_next_waits(disk):
    (line,) = run(
        disk,
        """
        train = evenkeel.tokens("train.bin", budget="4MiB", engine="read")
        loader = evenkeel.TokenLoader(train, 4, 64)
        stopped()
        threading.Timer(0.2, loader.close).start()
        try:
            next(loader)
        except ValueError as error:
            print(str(error).replace("\\n", " | "), flush=True)
        os._exit(0)  # the closing thread waits for the disk, as it was asked to
        """,
    )
    assert "used after close" in line and "create a new loader" in line


def test_closing_batches_from_another_thread_while_next_waits(disk):
    (line,) = run(
        disk,
        """
        a = evenkeel.open("rows.bin", dtype="i4", shape=(-1, 100), budget="2MiB", engine="read")
        loop = a.batches(500)
        stopped()
        threading.Timer(0.2, loop.close).start()
        try:
            next(loop)
        except ValueError as error:
            print(str(error).replace("\\n", " | "), flush=True)
        os._exit(0)  # the closing thread waits for the disk, as it was asked to
        """,
    )
    assert "used after close" in line


def test_a_slow_disk_is_not_a_stopped_one(tmp_path):
    """Rows arrive, slowly; a long read can be interrupted in the middle."""
    with slow_disk(tmp_path) as disk:
        with open(disk.source / "rows.bin", "wb") as file:
            file.truncate(64 << 20)
        program = """
        a = evenkeel.open("rows.bin", dtype="u1", shape=(-1, 4096), budget="32MiB", engine="read")
        def flicker():
            while True:
                print("stop", flush=True)
                sys.stdin.readline()
                time.sleep(0.05)
                print("go on", flush=True)
                sys.stdin.readline()
        threading.Thread(target=flicker, daemon=True).start()
        def read_all():
            while True:
                a[0:4000]
        interrupted(read_all)
        os._exit(0)
        """
        (line,) = run(disk, program)
        assert_interrupted(line)


# --- without a slow disk


def test_exceptions_of_signal_handlers_lose_no_batch(tmp_path, python):
    path = tmp_path / "train.bin"
    (np.arange(300_000) % 65536).astype(np.uint16).tofile(path)
    said = python(
        """
        import signal, sys, evenkeel
        class Tick(Exception): pass
        armed = False
        def handler(*_):
            global armed
            if armed:
                armed = False
                raise Tick
        train = evenkeel.tokens(sys.argv[1], budget="16MiB", engine="read")
        loader = evenkeel.TokenLoader(train, 8, 256, seed=1)
        starts = [[row["start"] % 65536 for row in loader.explain(s)] for s in range(2000)]
        seen, ticks = [], 0
        signal.signal(signal.SIGALRM, handler)
        begun = False
        while len(seen) < 2000:  # the last of them may be followed by a signal, too
            try:
                armed = True
                if not begun:
                    begun = True
                    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
                for x, y in loader:
                    seen.append(x)
                    if len(seen) == 2000:
                        armed = False
                        break
            except Tick:
                ticks += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        wrong = [i for i, x in enumerate(seen) if x[:, 0].tolist() != starts[i]]
        print(len(seen), wrong[:3], ticks > 10)
        """,
        path,
    )
    assert said == "2000 [] True\n"


def test_signal_is_default_here():
    """The tests above send SIGINT; see conftest.py."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
