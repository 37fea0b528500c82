"""evenkeel.ray.shuffle on a local Ray cluster; a worker is killed in the middle."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import evenkeel

try:
    import ray

    import evenkeel.ray as evenkeel_ray

    missing = None
except ImportError as error:
    missing = error

pytestmark = pytest.mark.skipif(
    missing is not None, reason=f"could not import 'ray.data': {missing}"
)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, _memory=16 << 30)
    yield
    ray.shutdown()


@pytest.fixture
def wanted(folder):
    """What one process makes."""
    draw = np.random.default_rng(1)
    np.save("x.npy", draw.integers(0, 1 << 62, (400_000, 20)))
    evenkeel.shuffle("x.npy", "one.npy", seed=3)
    return (folder / "one.npy").read_bytes()


def test_four_workers_give_the_bytes_of_one_process(folder, wanted):
    plan = evenkeel.plan_shuffle(folder / "x.npy", folder / "many.npy", parts=8, seed=3)
    plan.save("m.json")
    assert evenkeel_ray.shuffle(folder / "m.json", budget="64MiB")["items"] == 400_000
    assert (folder / "many.npy").read_bytes() == wanted


def test_a_worker_that_is_killed_is_replaced(folder, wanted):
    plan = evenkeel.plan_shuffle(folder / "x.npy", folder / "many.npy", parts=6, seed=3)
    killed = []
    over = threading.Event()

    def kill_writers():
        """Finds one process for each step that is writing a part."""
        for step in ("distribute", "write"):
            while step not in killed and not over.is_set():
                for path in folder.glob(f"many.npy.parts/*/*.{step}.*.partial"):
                    pid = holder_of(path)
                    if pid is not None and step not in killed:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(step)
                time.sleep(0.001)

    thread = threading.Thread(target=kill_writers)
    thread.start()
    try:
        evenkeel_ray.shuffle(plan, budget="64MiB")
    finally:
        over.set()
        thread.join()
    assert killed == ["distribute", "write"]
    assert (folder / "many.npy").read_bytes() == wanted


def holder_of(path):
    """The process that has the file open, other than this one."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if str(path) in files and int(pid) != os.getpid():
            return int(pid)
    return None
