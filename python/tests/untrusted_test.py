"""Files from anyone: nothing in them is executed, and nobody is kept waiting."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import evenkeel


class Trap:
    """Leaves a trace where its pickle is executed."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return os.mkdir, (self.trace,)


@pytest.fixture
def trapped(tmp_path):
    path, trace = tmp_path / "trap.npy", tmp_path / "trace"
    np.save(path, np.array([Trap(trace)], dtype=object), allow_pickle=True)
    assert pickle.dumps(Trap(trace)) and not trace.exists()
    yield path
    assert not trace.exists()


@pytest.mark.parametrize("way", [evenkeel.open, evenkeel.tokens])
def test_objects_are_refused_and_no_pickle_is_executed(trapped, way):
    with pytest.raises(ValueError, match="pickle is never executed"):
        way(trapped, budget="4MiB")


@pytest.mark.parametrize("dtype", [object, [("a", "<f4"), ("b", object)]])
def test_objects_cannot_be_told_either(trapped, dtype):
    with pytest.raises(ValueError, match="Python objects"):
        evenkeel.open(trapped, dtype=dtype, budget="4MiB")
    with pytest.raises(ValueError, match="Python objects"):
        evenkeel.memmap(trapped, dtype=dtype, mode="r")


def test_a_trap_does_work_where_it_is_asked_to(tmp_path):
    """The trap of the tests above is none that never closes."""
    np.save(tmp_path / "trap.npy", np.array([Trap(tmp_path / "trace")]), allow_pickle=True)
    np.load(tmp_path / "trap.npy", allow_pickle=True)
    assert (tmp_path / "trace").exists()


@pytest.mark.parametrize("way", ["open", "tokens"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, way):
    os.mkfifo(tmp_path / "pipe")
    code = f"import evenkeel; evenkeel.{way}({str(tmp_path / 'pipe')!r}, budget='4MiB')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "is not a regular file" in done.stderr


def test_messages_show_names_and_do_not_obey_them(tmp_path):
    name = tmp_path / "a\x1b[2J\n\x9b.npy"
    name.write_bytes(b"neither NPY nor told")
    with pytest.raises(ValueError) as caught:
        evenkeel.open(name, budget="4MiB")
    assert "a\\x1b[2J\\x0a\\x9b.npy" in str(caught.value)
    np.save(tmp_path / "b.npy", np.zeros(3, dtype=">f4"))
    np.save(name, np.zeros(3, dtype=">f8"))
    with pytest.raises(ValueError) as caught:
        evenkeel.open([tmp_path / "b.npy", name], budget="4MiB")
    assert "\x1b" not in str(caught.value) and "\x9b" not in str(caught.value)
