"""Untrusted files: nothing in them is executed, and opening them does not hang."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
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


# --- headers that were damaged

HEADS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': '>i2', 'fortran_order': True, 'shape': (12,), }",
    "{'descr': [('a', '<f4'), ('b', '|V2'), ('c', '>i8', (2,))], 'fortran_order': False,"
    " 'shape': (3,)}",
    "{'descr': [('\\xe4\\'', '<M8[ns]'), (('title', 'n'), [('x', '<U2')])],"
    " 'fortran_order': False, 'shape': (2,)}",
    "{'descr': '<m8[25s]', 'fortran_order': False, 'shape': ()}",
]


def write_npy(path, text, version=1, data=bytes(64)):
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text + data)


@st.composite
def damaged_headers(draw):
    """A good header with some bytes changed, put in or taken out."""
    text = bytearray(draw(st.sampled_from(HEADS)).encode("latin-1"))
    good = list(b"'\"()[]{},:\\<>|=0123456789abcfimuMOSUVTFL xn\n\t#;-.")
    byte = st.one_of(st.sampled_from(good), st.integers(0, 255))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text) - 1))
        kind = draw(st.sampled_from(["change", "insert", "remove", "cut", "repeat"]))
        if kind == "change":
            text[at] = draw(byte)
        elif kind == "insert":
            text.insert(at, draw(byte))
        elif kind == "remove" and len(text) > 1:
            del text[at]
        elif kind == "cut" and at > 0:
            del text[at:]
        elif kind == "repeat":
            text[at:at] = bytes([text[at]]) * draw(st.integers(1, 300))
    return bytes(text)


@settings(max_examples=800, deadline=None)
@given(damaged_headers(), st.sampled_from([1, 2, 3]))
def test_a_damaged_header_is_a_value_error_with_the_path(tmp_path_factory, text, version):
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    write_npy(path, text, version)
    try:
        array = evenkeel.open(path, budget="4MiB")
    except ValueError as error:
        assert type(error) is ValueError and str(path) in str(error)
        return
    with array:  # what is opened is opened as NumPy would open it
        with path.open("rb") as file:
            npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == 1 else npy.read_array_header_2_0
            shape, _, dtype = read(file)
        assert (array.shape, array.dtype) == (shape, dtype)


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), ",  # tokenize.TokenError
        b"(" * 5000,  # RecursionError
        b"{'descr': ''' , 'shape': ()}",  # SyntaxError
        b"{'descr': '<M8[x]', 'fortran_order': False, 'shape': (2,)}",  # TypeError
        b"{'descr': [('a', '<f4'), ('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        b"{'descr': [('\\\\x', '<f4')], 'fortran_order': False, 'shape': (2,)}".replace(
            b"\\\\", b"\\"
        ),
        b"{'descr': [('\xff', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        b"{'descr': '<f1', 'fortran_order': False, 'shape': (2,)}",
    ],
)
def test_errors_of_numpys_parser_do_not_escape(tmp_path, text):
    path = tmp_path / "bad.npy"
    write_npy(path, text, version=3)
    with pytest.raises(ValueError, match="bad.npy") as raised:
        evenkeel.open(path)
    assert type(raised.value) is ValueError


def test_names_of_fields_are_those_of_numpy(tmp_path):
    names = ["plain", "ä", "日本", "it's", 'say "x"', "back\\slash", "tab\t", "\\u0041"]
    data = np.zeros(3, [(name, "<f4") for name in names])
    for version in ((1, 0), (2, 0), (3, 0)):
        kept = data if version == (3, 0) else data[[n for n in names if n.isascii() or n == "ä"]]
        with open(tmp_path / "named.npy", "wb") as file:
            npy.write_array(file, kept.copy(), version=version)
        assert evenkeel.open(tmp_path / "named.npy").dtype == np.load(tmp_path / "named.npy").dtype


def test_numpys_parser_is_not_used(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.zeros(3, "M8[s],(2,)>i2"))
    for name in ("read_magic", "read_array_header_1_0", "read_array_header_2_0"):
        monkeypatch.setattr(npy, name, None)
    assert evenkeel.open(tmp_path / "a.npy").dtype == np.dtype("M8[s],(2,)>i2")
