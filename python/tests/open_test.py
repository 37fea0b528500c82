"""What can be opened, and what is said where it cannot."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import evenkeel


def saved(name, array):
    np.save(name, array)
    return array


def test_attributes_are_those_of_the_array(folder):
    data = saved("a.npy", np.arange(24, dtype="i2").reshape(4, 3, 2))
    with evenkeel.open("a.npy") as a:
        for name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize"):
            assert getattr(a, name) == getattr(data, name), name
        assert len(a) == 4
        assert a.paths == ["a.npy"] and a.format == "npy"


def test_paths_of_every_kind(folder):
    data = saved("part-1.npy", np.arange(6))
    more = saved("part-2.npy", np.arange(6, 8))
    both = np.concatenate([data, more]).tolist()
    assert evenkeel.open(Path("part-1.npy"))[:].tolist() == data.tolist()
    assert evenkeel.open(b"part-1.npy")[:].tolist() == data.tolist()
    assert evenkeel.open("part-*.npy")[:].tolist() == both
    assert evenkeel.open(["part-1.npy", Path("part-2.npy")])[:].tolist() == both
    assert evenkeel.open(iter(["part-2.npy", "part-1.npy"]))[0] == 6
    with pytest.raises(ValueError, match="no file was named"):
        evenkeel.open([])


def test_paths_need_not_be_text(folder):
    name = b"\xff\xfe.npy"
    with open(name, "wb") as file:
        np.save(file, np.arange(3))
    a = evenkeel.open(os.fsdecode(name))
    assert a[2] == 2 and a.paths == [os.fsdecode(name)]
    with pytest.raises(FileNotFoundError) as raised:
        evenkeel.open(b"\xff")
    assert raised.value.filename == os.fsdecode(b"\xff")


def test_raw_files_as_they_are_told(folder):
    data = np.arange(24, dtype=">f4")
    Path("raw").write_bytes(b"head" + data.tobytes())
    a = evenkeel.open("raw", dtype=">f4", shape=(-1, 4), offset=4)
    assert a.shape == (6, 4) and a.dtype == np.dtype(">f4")
    np.testing.assert_array_equal(a[:], data.reshape(6, 4))
    assert evenkeel.open("raw", dtype=np.float32, shape=3, offset=4).shape == (3,)
    assert evenkeel.open("raw", dtype="u1").shape == (100,)
    with pytest.raises(ValueError, match="not whole rows"):
        evenkeel.open("raw", dtype="f4", shape=(-1, 7))
    with pytest.raises(ValueError, match="negative axis"):
        evenkeel.open("raw", dtype="f4", shape=(-1, -1))
    with pytest.raises(ValueError, match="offset must be"):
        evenkeel.open("raw", dtype="f4", offset=-1)


def test_what_the_header_says_is_not_said_again(folder):
    saved("a.npy", np.zeros((4, 3), "f4"))
    for dtype, shape in (("f4", (4, 3)), ("f4", (-1, 3)), ("i4", (4, 3))):
        with pytest.raises(ValueError, match=r"the NPY header defines them: float32 of shape"):
            evenkeel.open("a.npy", dtype=dtype, shape=shape)
    with pytest.raises(ValueError, match="the NPY header says float32 .*, but float64 was given"):
        evenkeel.open("a.npy", dtype="f8")


def test_bfloat16_by_name(folder):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    data = np.arange(12).astype(ml_dtypes.bfloat16)
    data.tofile("raw")
    np.save("a.npy", data)  # as 'V2'
    for a in (evenkeel.open("raw", dtype="bfloat16"), evenkeel.open("a.npy", dtype="bfloat16")):
        assert a.dtype == data.dtype and a[3:5].tobytes() == data[3:5].tobytes()


def test_records_by_their_fields(folder):
    data = np.zeros(10, [("id", "<u4"), ("at", ">f8"), ("name", "S3")])
    data["id"] = range(10)
    data["at"] = range(10)
    data.tofile("raw")
    np.save("a.npy", data)
    for a in (evenkeel.open("raw", dtype=data.dtype), evenkeel.open("a.npy")):
        assert a.dtype == data.dtype
        np.testing.assert_array_equal(a[[7, 2]], data[[7, 2]])
        assert a[7]["at"] == 7


def test_files_that_disagree_are_refused(folder):
    saved("a.npy", np.zeros(4, "<f4"))
    saved("b.npy", np.zeros(4, ">f4"))
    for names in (["a.npy", "b.npy"], ["b.npy", "a.npy"]):
        with pytest.raises(ValueError, match="agree"):
            evenkeel.open(names)


def test_dtypes_that_no_file_holds(folder):
    Path("raw").write_bytes(bytes(64))
    for wrong in (object, "(3,)f4", "V0"):
        with pytest.raises(ValueError):
            evenkeel.open("raw", dtype=wrong)
    with pytest.raises(TypeError):
        evenkeel.open("raw", dtype="nonsense")
    np.save("pickled.npy", np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="a pickle is never executed"):
        evenkeel.open("pickled.npy")


@pytest.mark.parametrize("wrong", [None, 5, np.zeros(3), ["a.npy", None]], ids=str)
def test_what_is_no_path_is_named(folder, wrong):
    saved("a.npy", np.zeros(4))
    for opened in (evenkeel.open, evenkeel.tokens, evenkeel.stats):
        with pytest.raises(TypeError, match="a path is a string, bytes or a pathlib.Path"):
            opened(wrong)
    with open("a.npy", "rb") as file, pytest.raises(TypeError, match="a path is a string"):
        evenkeel.open(file)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"engine": None}, TypeError, 'engine must be the name of an engine.*"auto"; got None'),
        ({"engine": b"read"}, TypeError, "engine must be the name"),
        ({"dtype": "u1", "offset": 4.0}, TypeError, "offset must be a whole number; got 4.0"),
        ({"dtype": "u1", "shape": "16"}, TypeError, "shape must be a whole number or several"),
        ({"dtype": "u1", "shape": (-1, 4.0)}, TypeError, "an axis of shape must be a whole"),
        ({"dtype": "u1", "shape": (2**63, 2)}, ValueError, "an axis of 9,223,.* is too long"),
    ],
    ids=str,
)
def test_arguments_of_a_wrong_type_are_named(folder, options, error, words):
    Path("raw").write_bytes(bytes(64))
    with pytest.raises(error, match=words):
        evenkeel.open("raw", **options)
    if "engine" in options:
        np.savez("a.npz", x=np.arange(3))
        with pytest.raises(error, match=words):
            evenkeel.open("a.npz", **options)


def test_a_file_of_one_array_takes_no_name(folder):
    np.save("fields.npy", np.zeros(3, dtype=[("a", "<i4"), ("b", "<f8")]))
    with pytest.raises(ValueError, match="name and column choose an array of a file"):
        evenkeel.open("fields.npy", name="")


def test_system_errors_are_pythons_own(folder):
    with pytest.raises(FileNotFoundError, match="hint: check the spelling") as missing:
        evenkeel.open("missing.npy")
    assert missing.value.filename == "missing.npy" and missing.value.errno == errno.ENOENT
    with pytest.raises(FileNotFoundError, match="no file matches"):
        evenkeel.open("missing-*.npy")
    os.mkdir("folder")
    with pytest.raises(OSError):
        evenkeel.open("folder")
    Path("text").write_text("hello")
    with pytest.raises(ValueError, match="open text"):
        evenkeel.open("text")
    np.save("cut.npy", np.zeros(100))
    os.truncate("cut.npy", 300)
    with pytest.raises(ValueError, match="truncated"):
        evenkeel.open("cut.npy")


@pytest.mark.not_emulated("its user namespace has no user but root")
def test_a_file_that_may_not_be_read(folder, python):
    saved("a.npy", np.zeros(3))
    os.chmod("a.npy", 0)
    os.chmod(folder, 0o755)
    said = python("""
        import os, evenkeel, evenkeel._open
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            evenkeel.open("a.npy")
        except PermissionError as error:
            print(error.filename)
        """)
    assert said == "a.npy\n"


def test_a_file_that_changes_is_an_error(folder):
    saved("a.npy", np.zeros((100_000, 8)))
    with evenkeel.open("a.npy", budget="2MiB", engine="read") as a:
        os.truncate("a.npy", 1000)
        with pytest.raises((ValueError, OSError)):
            a[99_999]


def test_engine_names_are_listed(folder):
    saved("a.npy", np.zeros(3))
    with pytest.raises(ValueError, match="direct"):
        evenkeel.open("a.npy", engine="fast")


def test_use_after_close(folder):
    saved("a.npy", np.arange(10))
    a = evenkeel.open("a.npy")
    loop = a.batches(3)
    with a:
        pass
    a.close()
    for use in (lambda: a[0], lambda: a.take([1]), lambda: a.batches(1), lambda: a.budget):
        with pytest.raises(ValueError, match="used after close"):
            use()
    assert "closed" in repr(a)
    assert a.shape == (10,)
    assert [rows.sum() for rows in loop] == [3, 12, 21, 9]  # a loop keeps what it needs


def test_what_is_said_of_it(folder):
    saved("a.npy", np.zeros((1000, 100), "f4"))
    a = evenkeel.open("a.npy", budget="2MiB", engine="read")
    assert repr(a) == "<evenkeel.Array a.npy: (1000, 100) float32, budget 2 MiB>"
    for part in ("a.npy", "(1000, 100)", "float32", "391 KiB", "2 MiB", "in use", "read (", "npy"):
        assert part in a.describe(), part
    a.close()
    assert repr(a) == "<evenkeel.Array a.npy: closed>"


def test_a_repr_is_one_short_line(folder):
    name = "a\x1b[2J\n\x9b" + "long" * 50 + ".npy"
    for data in (np.zeros((2, 1, 1, 1, 1, 1)), np.zeros(3, ",".join(["f4"] * 40))):
        np.save(name, data)
        for paths in (name, [name] * 3):
            a = evenkeel.open(paths)
            assert len(repr(a)) < 100 and repr(a).isprintable() and repr(a).startswith("<evenkeel.")
            assert "\x1b" not in a.describe() and "\x9b" not in a.describe()
    assert ".npy" in repr(evenkeel.open("a*.npy"))


def test_raw_files_without_axes(folder):
    np.arange(3, dtype="i4").tofile("raw")
    a = evenkeel.open("raw", dtype="i4", shape=())
    assert a.shape == () and a.ndim == 0 and a.size == 1 and a[()] == 0 and type(a[()]) is np.int32
    assert np.asarray(a).shape == ()
    for shape in (2, (2,), [2], np.array([2]), np.int64(2), range(2, 3)):
        assert evenkeel.open("raw", dtype="i4", shape=shape).shape == (2,)
    for wrong in (1.5, "2", (1.5,)):
        with pytest.raises(TypeError):
            evenkeel.open("raw", dtype="i4", shape=wrong)
    saved("a.npy", np.zeros(1, "i4"))
    with pytest.raises(ValueError, match="header"):
        evenkeel.open("a.npy", dtype="i4", shape=())


def test_info(folder):
    saved("a.npy", np.zeros((1000, 100), "f4"))
    what = evenkeel.info("a.npy")
    assert what["shape"] == (1000, 100) and what["bytes"] == 400_000
    assert what["cached"] is None or 0 <= what["cached"] <= 409_600


def test_info_of_raw_files(folder):
    np.arange(24, dtype=">f4").tofile("raw")
    with pytest.raises(ValueError, match="dtype"):
        evenkeel.info("raw")
    what = evenkeel.info("raw", dtype=">f4", shape=(-1, 4), offset=16)
    assert (what["format"], what["dtype"], what["shape"]) == ("raw", np.dtype(">f4"), (5, 4))
