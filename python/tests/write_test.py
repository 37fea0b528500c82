"""evenkeel.create and evenkeel.TokenWriter."""

import os
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import evenkeel

MIB = 1 << 20


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_is_byte_for_byte_what_numpy_saves(folder):
    dates = np.arange(12).astype("datetime64[D]").reshape(4, 3)
    fields = np.zeros(5, dtype=[("x", "<f4"), ("y", "<i8", (2,)), ("z", "S3")])
    fields["x"] = range(5)
    for array in (
        np.random.default_rng(1).random((1000, 162), np.float32),
        np.arange(7, dtype=np.int8),
        np.arange(24, dtype=">i4").reshape(2, 3, 4),
        np.array([[1 + 2j]], dtype=np.complex64),
        np.array([True, False]),
        dates,
        fields,
    ):
        np.save("wanted.npy", array)
        with evenkeel.create("made.npy", array.dtype, (None, *array.shape[1:])) as w:
            w.append(array[:1])
            w.append(array[1:])
            assert len(w) == len(array)
        assert (folder / "made.npy").read_bytes() == (folder / "wanted.npy").read_bytes()


def test_rows_are_converted_a_few_at_a_time(folder):
    flags = np.ones(16 * MIB, bool)
    with evenkeel.create("a.npy", "complex128", budget="1MiB") as w:
        tracemalloc.start()
        try:
            w.append(flags)
            w[:] = np.int8(1)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        w.abort()
    assert most < 6 * MIB


def test_rows_can_be_assigned(folder):
    wanted = np.random.default_rng(1).random((50_000, 5))
    with evenkeel.create("a.npy", "float64", (None, 5), budget="1MiB") as w:
        w.append(wanted)
        wanted[100:40_000] = 3
        w[100:40_000] = 3
        wanted[7] = [1, 2, 3, 4, 5]
        w[7] = [1, 2, 3, 4, 5]
        wanted[-2:] = wanted[:2]
        w[-2:] = wanted[:2]
        more = np.ones((3, 5))
        w[len(w) :] = more
        with pytest.raises(IndexError, match="50,003 rows so far"):
            w[50_004] = 1
        with pytest.raises(IndexError, match="steps of 1"):
            w[::2] = 1
        with pytest.raises(ValueError, match="broadcast"):
            w[3:5] = np.zeros((3, 5))
    assert np.array_equal(np.load("a.npy"), np.concatenate([wanted, more]))


def test_a_fixed_shape_is_zeros_where_nothing_was_written():
    with evenkeel.create("a.npy", "int32", (1000, 3)) as w:
        w[500] = 5
        w[10:12] = 1
        assert w.shape == (1000, 3)
    a = np.load("a.npy")
    assert a.shape == (1000, 3)
    assert a.sum() == 15 + 6
    with evenkeel.create("empty.npy", "int32", (None, 3)):
        pass
    assert np.load("empty.npy").shape == (0, 3)


def test_slices_of_a_fixed_shape_go_to_its_end():
    with evenkeel.create("a.npy", "int32", (1000, 3)) as w:
        w[:] = 5
        w[-1] = 6
        w[10:] = 7
        w[-3:-1] = [[1, 2, 3], [4, 5, 6]]
        with pytest.raises(ValueError, match="broadcast"):
            w[990:] = np.zeros((11, 3))
        with pytest.raises(IndexError, match="there are 1,000 rows"):
            w[-1001] = 1
    wanted = np.full((1000, 3), 5)
    wanted[10:] = 7
    wanted[-3:-1] = [[1, 2, 3], [4, 5, 6]]
    assert np.array_equal(np.load("a.npy"), wanted)


def test_raw_files_have_no_header(folder):
    with evenkeel.create("a.bin", "uint16") as w:
        w.append([1, 2, 3])
    assert (folder / "a.bin").read_bytes() == b"\1\0\2\0\3\0"


def test_other_kinds_of_values_are_refused():
    with evenkeel.create("a.npy", "int32", (None, 2)) as w:
        with pytest.raises(TypeError, match="float64 cannot be converted to int32"):
            w.append([[0.5, 1]])
        with pytest.raises(ValueError, match=r"shape \(2,\); got an array of shape \(2, 3\)"):
            w.append([[1, 2, 3], [4, 5, 6]])
        with pytest.raises(ValueError, match="values of 1 to 2147483648 do not fit int32"):
            w.append([1, 1 << 31])
        w.append([1, 2])
    assert np.load("a.npy").tolist() == [[1, 2]]
    for shape, what in (
        ((3, None), "first axis"),
        ((-2,), "an axis cannot be -2"),
        ((), "one axis"),
    ):
        with pytest.raises(ValueError, match=what):
            evenkeel.create("b.npy", "int32", shape)
    with pytest.raises(ValueError, match="no format"):
        evenkeel.create("b.npy", "int32", format="hdf5")
    with pytest.raises(MemoryError, match="write buffers"):
        evenkeel.create("b.npy", "int32", budget=1000)
    with pytest.raises(FileNotFoundError, match="folder must exist"):
        evenkeel.create("no/b.npy", "int32")


def test_an_exception_leaves_the_old_file(folder):
    (folder / "a.npy").write_bytes(b"old")
    with pytest.raises(KeyError):
        with evenkeel.create("a.npy", "int32") as w:
            w.append(range(100_000))
            raise KeyError
    assert (folder / "a.npy").read_bytes() == b"old"
    assert names(folder) == ["a.npy"]
    with evenkeel.create("a.npy", "int32") as w:
        w.append([1])
        with pytest.raises(ValueError, match="another writer is writing"):
            evenkeel.create("a.npy", "int32")
        w.abort()
        with pytest.raises(ValueError, match="closed"):
            w.append([1])
    assert (folder / "a.npy").read_bytes() == b"old"
    with pytest.warns(ResourceWarning, match="was not closed"):
        evenkeel.create("a.npy", "int32")
    assert names(folder) == ["a.npy"]


def test_a_killed_writer_goes_on_at_its_checkpoint(folder):
    program = """if True:
        import evenkeel, numpy, os, signal, sys
        left = int(sys.argv[1])
        with evenkeel.create("a.npy", "int64", (None, 8), budget="2MiB", resume=True) as w:
            for i in range(w.rows // 1000, 400):
                assert w.state in ("", str(w.rows)) or i > int(w.state) // 1000
                w.append(numpy.full((1000, 8), i))
                if i % 10 == 9:
                    w.checkpoint(str(w.rows))
                    left -= 1
                if left == 0 and i % 10 == 3:  # rows that no checkpoint promised
                    os.kill(os.getpid(), signal.SIGKILL)
    """
    for stop in (1, 3, 2):
        child = subprocess.run([sys.executable, "-c", program, str(stop)], cwd=folder)
        assert child.returncode == -signal.SIGKILL
        assert not (folder / "a.npy").exists()
    subprocess.run([sys.executable, "-c", program, "1000"], cwd=folder, check=True)
    assert np.array_equal(np.load("a.npy"), np.repeat(np.arange(400), 1000)[:, None].repeat(8, 1))
    assert names(folder) == ["a.npy"]


def test_tokens_of_another_dtype_are_converted_a_part_at_a_time(tmp_path):
    tokens = np.arange(4_000_000, dtype=np.int32) % 50_000
    with evenkeel.TokenWriter(tmp_path / "a.bin", format="nanogpt", budget="16MiB") as w:
        for given in (tokens, tokens.astype(np.uint16)[::2]):
            tracemalloc.start()
            try:
                w.append(given)
                most = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert most < 5 << 20  # all would be 32 MB, and 4 MB
        tokens[3_000_000] = 70_000
        with pytest.raises(
            ValueError, match=r"token 9,000,000 is 70000; uint16 holds 0 to 65535\nhint: choose a"
        ):
            w.append(tokens)
        assert w.tokens == 6_000_000
    written = np.fromfile(tmp_path / "a.bin", np.uint16)
    tokens[3_000_000] = 0
    np.testing.assert_array_equal(written[:4_000_000], tokens)
    np.testing.assert_array_equal(written[4_000_000:], tokens[::2])


def test_memory_stays_within_the_budget(python):
    out = python(
        """
        import evenkeel, numpy, resource
        piece = numpy.zeros((1000, 256), numpy.float32)
        with evenkeel.create("warm.npy", "float32", (None, 256), budget="8MiB") as w:
            w.append(piece)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        budget = evenkeel.Budget("8MiB")
        with evenkeel.create("a.npy", "float32", (None, 256), budget=budget) as w:
            for _ in range(100):
                w.append(piece)
            assert budget.in_use > 0
        assert budget.in_use == 0
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """
    )
    assert int(out) << 10 < 12 * MIB


@pytest.mark.parametrize("format", ["nanogpt", "llm.c", "megatron", "datatrove", "npy"])
def test_every_token_format_is_read_back(format):
    name = {"datatrove": "t.ds", "npy": "t.npy"}.get(format, "t.bin")
    rng = np.random.default_rng(2)
    documents = [rng.integers(0, 50_000, n) for n in rng.integers(1, 3000, 50)]
    with evenkeel.TokenWriter(name, format=format, budget="8MiB") as w:
        for i, document in enumerate(documents):
            w.append(document if i % 2 else document.astype(np.uint16))
            w.end_document()
        assert w.documents == 50
        assert w.format == format
    read = evenkeel.tokens(name)
    assert np.array_equal(read[:], np.concatenate(documents))


def test_tokens_that_do_not_fit_are_refused(folder):
    with evenkeel.TokenWriter("t.bin", eot=0) as w:
        for wrong in ([70_000], [-1], np.array([2**63], np.uint64)):
            with pytest.raises(ValueError, match="t.bin"):
                w.append(wrong)
        with pytest.raises(ValueError, match="integers with one axis"):
            w.append([0.5])
        w.append([])
        w.append([7])
        w.end_document()
    assert (folder / "t.bin").read_bytes() == b"\7\0\0\0"
    with pytest.raises(ValueError, match="uint16 or uint32"):
        evenkeel.TokenWriter("t.bin", format="llm.c", dtype="int64")
    with pytest.raises(ValueError, match="there is no token format"):
        evenkeel.TokenWriter("t.bin", format="arrow")


@pytest.mark.parametrize("format", ["nanogpt", "megatron", "datatrove"])
@pytest.mark.parametrize("eot", [None, 9])
def test_whole_documents_in_one_call_are_those_that_are_ended_one_by_one(folder, format, eot):
    lengths = np.array([3, 0, 5, 1])
    tokens = np.arange(9, dtype=np.uint16)
    made = []
    for way in ("together", "each"):
        os.mkdir(way)
        name = "t.ds" if format == "datatrove" else "t.bin"
        with evenkeel.TokenWriter(f"{way}/{name}", format=format, eot=eot) as w:
            if way == "together":
                w.append_documents(tokens[:8], lengths[:3])
                w.append_documents(tokens[8:], lengths[3:])
                w.append_documents(tokens[:0], [])
            else:
                for one in np.split(tokens, np.cumsum(lengths)[:-1]):
                    w.append(one)
                    w.end_document()
            assert w.documents == (4 if eot else 3)  # an empty document needs a token
        made.append({path.name: path.read_bytes() for path in (folder / way).iterdir()})
    assert made[0] == made[1] and len(made[0]) >= 1


@pytest.mark.parametrize(
    ("tokens", "lengths", "error", "message"),
    [
        (np.uint16([1, 2, 3]), [1, 1], ValueError, "2 documents have 2 tokens in all; got 3"),
        (np.uint16([1, 2, 3]), [2, -1, 2], ValueError, "the length of a document is -1"),
        (np.uint16([1, 2, 3]), [1.5, 1.7, 1.0], TypeError, "integers with one axis; got float64"),
        (np.uint16([1, 2, 3]), [[1, 2]], TypeError, r"one axis; got int64 of shape \(1, 2\)"),
        (np.int64([1, 2, 3]), [1, 2], TypeError, "an array of uint16 with one axis; got int64"),
        (np.uint16([[1, 2, 3]]), [1, 2], TypeError, r"uint16 of shape \(1, 3\)"),
    ],
)
def test_documents_that_do_not_fit_their_lengths_are_refused_whole(
    folder, tokens, lengths, error, message
):
    with evenkeel.TokenWriter("t.bin", format="nanogpt") as w:
        with pytest.raises(error, match="write t.bin: .*" + message):
            w.append_documents(tokens, lengths)
        assert (w.documents, w.tokens) == (0, 0)  # nothing of it was written
        w.append_documents(np.uint16([7]), [1])
    assert (folder / "t.bin").read_bytes() == b"\7\0"


def test_ctrl_c_ends_a_writer(folder):
    program = """if True:
        import evenkeel, numpy
        piece = numpy.zeros(1 << 20, numpy.uint8)
        with evenkeel.create("a.bin", "uint8", budget="1MiB") as w:
            print("ready", flush=True)
            while True:
                w.append(piece)
                if len(w) > 1 << 29:
                    w[0:1000] = 0
    """
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    finally:  # else it would fill the disk
        child.kill()
        child.wait()
    assert "KeyboardInterrupt" in err
    assert names(folder) == []


def test_arguments_of_a_wrong_type_are_named(folder):
    for shape, error, words in (
        ("4", TypeError, "shape must be a whole number or several"),
        (None, TypeError, "shape must be a whole number or several"),
        ((None, 4.0), TypeError, "an axis of shape must be a whole number; got 4.0"),
        ((None, 2**70), ValueError, "is too long"),
        ((None, -4), ValueError, "an axis cannot be -4"),
    ):
        with pytest.raises(error, match=words):
            evenkeel.create("x.npy", shape=shape)
    with evenkeel.create("x.npy", shape=np.int64(5), checksums=0) as w:
        with pytest.raises(TypeError, match="a row must be a whole number; got 1.5"):
            w[1.5] = 1
        with pytest.raises(TypeError, match="state must be a string; got 3"):
            w.checkpoint(3)
    assert np.load("x.npy").shape == (5,)
    with pytest.raises(TypeError, match="eot must be a whole number"):
        evenkeel.TokenWriter("x.bin", eot=1.5)
