"""Other processes, threads, interruptions and the end."""

import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import evenkeel


@pytest.fixture
def features(folder):
    data = np.arange(800_000, dtype="f4").reshape(-1, 100)  # 3.2 MB
    np.save("features.npy", data)
    return data


def test_pickling_sends_the_recipe(features, folder, monkeypatch):
    a = evenkeel.open("features.npy", budget="2MiB", engine="read")
    sent = pickle.dumps(a)
    assert len(sent) < 1000
    monkeypatch.chdir("/")
    b = pickle.loads(sent)
    for array in (a, b):  # the first read finds out whether RWF_DONTCACHE works here
        assert (array[[5, 7000]] == features[[5, 7000]]).all()
    assert b.budget.limit == a.budget.limit and b.engine == a.engine
    raw = evenkeel.open(folder / "features.npy", dtype=">f4", shape=(-1, 10), offset=128)
    assert pickle.loads(pickle.dumps(raw)).shape == raw.shape
    a.close()
    with pytest.raises(ValueError, match="close"):
        pickle.dumps(a)


def test_arrays_sent_together_share_their_budget(features):
    budget = evenkeel.Budget("4MiB")
    pair = [evenkeel.open("features.npy", budget=budget) for _ in range(2)]
    one, other = pickle.loads(pickle.dumps(pair))
    assert one.budget.in_use == other.budget.in_use == budget.in_use


def _sum_of(array, rows):
    return float(array[rows].sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_processes(features, method):
    a = evenkeel.open("features.npy", budget="2MiB", engine="direct")
    a[3]  # the parent has a ring already
    with multiprocessing.get_context(method).Pool(2) as pool:
        got = pool.starmap(_sum_of, [(a, slice(n, n + 10)) for n in range(0, 8000, 500)])
    assert got == [float(features[n : n + 10].sum()) for n in range(0, 8000, 500)]


@pytest.mark.parametrize("engine", ["auto", "map", "read", "direct"])
def test_after_fork_parent_and_child_go_on(features, python, engine):
    said = python(
        """
        import os, sys, numpy as np, evenkeel
        a = evenkeel.open("features.npy", budget="2MiB", engine=sys.argv[1])
        loop = a.batches(500)
        next(loop)
        child = os.fork()
        assert a[7999, 99] == 799_999
        if child == 0:
            try:
                next(loop)
            except ValueError as error:
                print("before a fork" in str(error), flush=True)
            del loop
            print(sum(map(len, a.batches(500))), flush=True)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        print(sum(map(len, loop)))
        """,
        engine,
    )
    assert said.split() == ["True", "8000", "7500"] or (
        engine in ("auto", "map") and said.split()[-2:] == ["8000", "7500"]
    )


@pytest.mark.parametrize("engine", ["auto", "remap", "advise", "read", "direct"])
def test_threads_share_one_array(features, engine):
    a = evenkeel.open("features.npy", budget="8MiB", engine=engine)

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(30):
            rows = random.integers(0, 8000, 50)
            assert (a[rows] == features[rows]).all()
        index, rows = next(a.batches(200, shuffle=True, seed=seed, with_index=True))
        assert (rows == features[index]).all()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_closing_while_others_read(features):
    for _ in range(20):
        a = evenkeel.open("features.npy", budget="4MiB", engine="read")
        begun, wrong = threading.Event(), []

        def work(a=a, begun=begun, wrong=wrong):
            try:
                while True:
                    if not (a[100:200] == features[100:200]).all():
                        wrong.append("data")
                    begun.set()
            except ValueError as error:
                if "close" not in str(error):
                    wrong.append(error)
            finally:
                begun.set()  # also if it ends before its first row

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait()
        a.close()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_child_ends_that_was_forked_while_a_thread_waited_for_the_gil(features, python):
    """The main thread does not let go of the GIL until the other one wants it back."""
    assert (
        python("""
        import os, signal, sys, threading, time, evenkeel
        a = evenkeel.open("features.npy", budget="2MiB", engine="read")
        sys.setswitchinterval(1000)
        def read():
            while True:
                a[0:2000]
        threading.Thread(target=read, daemon=True).start()
        for _ in range(5):
            time.sleep(0.01)
            end = time.monotonic() + 0.05
            while time.monotonic() < end:
                pass
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """)
        == ""
    )


# A disk that takes its time: a reader that sleeps in each read of the file, by LD_PRELOAD.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>
int reads = 0;
ssize_t preadv2(int fd, const struct iovec* to, int n, off_t at, int flags) {
  __atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
  usleep(20000);
  ssize_t (*real)(int, const struct iovec*, int, off_t, int) = dlsym(RTLD_NEXT, "preadv2");
  return real(fd, to, n, at, flags);
}
ssize_t preadv64v2(int fd, const struct iovec* to, int n, off_t at, int flags) {
  return preadv2(fd, to, n, at, flags);
}
"""


@pytest.fixture(scope="module")
def slow_disk(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.c").write_text(SLOW)
    library = folder / "slow.so"
    built = subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "slow.c"), "-ldl"],
        capture_output=True,
    )
    if built.returncode != 0:
        pytest.skip("no C compiler")
    return str(library)


# 65,536 rows that take up no disk, too far apart for one read to bring two: 20 ms each.
INTERRUPTED = """
import ctypes, os, sys, numpy as np, evenkeel
reads = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "reads")
with open("sparse", "wb") as file:
    file.truncate(1 << 32)
far_apart = np.random.default_rng(0).permutation(300) * 200
a = evenkeel.open("sparse", dtype="u1", shape=(-1, 65536), budget="128MiB", engine="read")
print("ready", flush=True)
try:
    {use}
except KeyboardInterrupt:
    print("after", reads.value, flush=True)
print(a[5, 5], sum(map(len, a.batches(8, rank=0, world=10_000))))  # it can still be used
"""


@pytest.mark.parametrize(
    "use",
    [
        "a[far_apart]",
        "a[far_apart, 7]",
        "a.take(far_apart, out=np.empty((300, 65536), 'u1'))",
        "list(a.batches(300, shuffle=True, seed=1))",
        "[a[n] for n in far_apart]",
    ],
)
def test_an_interrupt_ends_a_long_read(folder, slow_disk, use):
    """Each would be 300 reads and six seconds or more."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(use=use)],
        env={**os.environ, "LD_PRELOAD": slow_disk},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=240)
    assert (errors, process.returncode) == ("", 0)
    done, rest = re.fullmatch(r"after (\d+)\n(.*)\n", out).groups()
    assert int(done) < 200 and rest == "0 7"


FORKED = """
import os, signal, sys, numpy as np, evenkeel
with open("sparse", "wb") as file:
    file.truncate(1 << 32)
far_apart = np.arange(60) * 200
a = evenkeel.open("sparse", dtype="u1", shape=(-1, 65536), budget="128MiB", engine="read")
children = []
signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    print("read", a[far_apart].sum(), flush=True)
except ValueError as error:
    print("refused", "call it again in the child" in str(error), flush=True)
print("again", a[5].sum(), flush=True)
if children == [0]:
    sys.exit()
print("ended", os.waitpid(children[0], 0)[1])
"""


def test_a_signal_handler_may_fork_during_a_long_read(folder, slow_disk):
    """The parent continues it. The child once waited forever for a thread that it does not have."""
    process = subprocess.run(
        [sys.executable, "-c", FORKED],
        env={**os.environ, "LD_PRELOAD": slow_disk},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.stderr, process.returncode) == ("", 0)
    lines = sorted(process.stdout.splitlines())
    assert lines == ["again 0", "again 0", "ended 0", "read 0", "refused True"]


@pytest.mark.parametrize(
    "left_alive",
    [
        "a = evenkeel.open('features.npy', budget='2MiB', engine='direct'); a[1]",
        "a = evenkeel.open('features.npy', budget='2MiB'); loop = a.batches(100); next(loop)",
        "loop = evenkeel.open('features.npy', budget='2MiB').batches(100); next(loop)\n"
        "import builtins; builtins.kept = loop",
        "p = evenkeel.profile(); p.__enter__()",
        "import threading\n"
        "a = evenkeel.open('features.npy', budget='2MiB')\n"
        "def forever():\n"
        "    while True:\n"
        "        for rows in a.batches(10): a[7]\n"
        "threading.Thread(target=forever, daemon=True).start()",
        "a = evenkeel.open('features.npy'); a.self = a; a.loop = a.batches(10); next(a.loop)",
    ],
)
def test_the_interpreter_ends_cleanly_with_readers_alive(features, python, left_alive):
    assert python("import evenkeel\n" + left_alive) == ""


def test_the_interpreter_may_end_on_another_thread(python):
    """As in programs that embed Python, and initialise it on a thread of their own."""
    assert (
        python("""
        import atexit, os, threading, evenkeel
        evenkeel.Budget("1MiB")
        end = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
        end.start()
        end.join(60)
        print("hangs" if end.is_alive() else "ended", flush=True)
        os._exit(0)
        """)
        == "ended\n"
    )


def test_the_interpreter_ends_while_a_daemon_thread_reports_progress(folder, python):
    with open("lines.txt", "wb") as file:
        file.writelines(b"a line\n" * 100_000 for _ in range(20))
    assert (
        python("""
        import threading, time, evenkeel
        class Late:  # destroyed when other threads cannot get the GIL any more
            def __del__(self, sleep=time.sleep):
                sleep(1)
        late, reported = Late(), threading.Event()
        def count():
            while True:
                evenkeel.stats("lines.txt", budget="64MiB", progress=lambda now: reported.set())
        threading.Thread(target=count, daemon=True).start()
        reported.wait()
        """)
        == ""
    )


def test_importing_costs_next_to_nothing(python):
    said = python("""
        import sys, evenkeel
        print("numpy" in sys.modules, "evenkeel._core" in sys.modules)
        assert {"open", "profile", "mark", "Budget"} <= set(dir(evenkeel))
        import numpy
        before = set(sys.modules)
        evenkeel.open, evenkeel.profile, evenkeel.__version__
        more = {name.split(".")[0] for name in set(sys.modules) - before}
        print(sorted(more - getattr(sys, "stdlib_module_names", more - {"evenkeel"})))
        """)
    assert said == "False False\n['evenkeel']\n"


def test_it_says_what_it_does_not_have():
    with pytest.raises(AttributeError, match="nonsense"):
        evenkeel.nonsense  # noqa: B018


@pytest.mark.not_emulated("its user namespace has no user but root")
@pytest.mark.parametrize("engine", ["auto", "read", "direct"])
def test_an_unprivileged_user(features, folder, python, engine):
    """May read files that are not theirs: then the kernel does not tell what is cached."""
    program = """
        import os, sys, numpy as np, evenkeel, evenkeel._open, evenkeel._profile
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        a = evenkeel.open("features.npy", budget="2MiB", engine=sys.argv[1])
        with evenkeel.profile(budget="8GiB") as p:
            print(sum(map(len, a.batches(300, shuffle=True))), a[[7, 7999], 0].tolist())
        print(p.peaks["rss"] > 0)
        """
    os.chmod(folder, 0o755)
    assert python(program, engine) == "8000 [700.0, 799900.0]\nTrue\n"
