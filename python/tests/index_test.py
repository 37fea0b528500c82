"""Indexing gives NumPy's answer: in values, dtype and shape, and in its errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import evenkeel

DTYPES = ["u1", "<i2", ">i4", "<f4", ">f8", "c8", "?", "S3", "<U2", "M8[s]", "V5", "f4,(2,)i2"]


def filled(shape, dtype):
    """Elements that differ, so that a wrong one shows itself."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.kind in "SU":
        return np.arange(count).astype(dtype).reshape(shape)
    raw = np.arange(count * dtype.itemsize, dtype=np.uint32).astype(np.uint8)
    if dtype.kind == "b":
        raw %= 2
    elif dtype.kind in "fc" or dtype.fields:
        raw &= 0x3F  # no NaN, which equals nothing
    return raw.view(dtype).reshape(shape)


def same(got, wanted):
    assert type(got) is type(wanted)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert got.tobytes() == wanted.tobytes()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Arrays and what they were made of, by shape, dtype, order and budget."""
    made = {}
    folder = tmp_path_factory.mktemp("stored")

    def get(shape, dtype, order, budget):
        key = (shape, dtype, order, budget)
        if key not in made:
            path = folder / f"{len(made)}.npy"
            data = np.array(filled(shape, dtype), order=order)
            np.save(path, data)
            made[key] = evenkeel.open(path, budget=budget, engine="auto"), data
        return made[key]

    return get


SHAPES = [(), (1,), (7,), (300,), (5, 4), (6, 1, 3), (4, 3, 2, 2)]


@st.composite
def cases(draw):
    shape = draw(st.sampled_from(SHAPES))
    index = draw(indices(shape))
    return shape, draw(st.sampled_from(DTYPES)), draw(st.sampled_from("CF")), index


def indices(shape):
    basic = hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True)
    kinds = [basic, mixed(shape)]
    if shape:
        arrays = hnp.integer_array_indices(shape[:1], result_shape=hnp.array_shapes(min_dims=0))
        kinds += [arrays, hnp.arrays(bool, shape[:1]), hnp.arrays(bool, shape)]
        kinds.append(hnp.integer_array_indices(shape))
    return st.one_of(kinds)


@st.composite
def mixed(draw, shape):
    """Several kinds at once; what makes no sense, too."""
    items = []
    for length in shape[: draw(st.integers(0, len(shape)))]:
        items.append(
            draw(
                st.one_of(
                    st.integers(-length - 1, length),
                    st.slices(length),
                    st.just(slice(None)),
                    st.lists(st.integers(-length, length - 1), max_size=3),
                    hnp.arrays(np.int16, st.just((2, 1)), elements=st.integers(0, length - 1)),
                    hnp.arrays(bool, st.just(length)),
                )
            )
        )
    for extra in draw(st.lists(st.sampled_from([None, Ellipsis, True, False]), max_size=2)):
        items.insert(draw(st.integers(0, len(items))), extra)
    return tuple(items)


@settings(max_examples=1500, deadline=None)
@given(cases())
def test_every_index_gives_numpys_answer(stored, case):
    shape, dtype, order, index = case
    array, data = stored(shape, dtype, order, "1MiB")
    try:
        wanted = data[index]
    except IndexError as error:
        with pytest.raises(IndexError) as raised:
            array[index]
        assert str(raised.value) == str(error)
        return
    same(array[index], wanted)


@pytest.mark.parametrize("engine", ["auto", "map", "remap", "advise", "read", "direct"])
def test_engines_agree_with_numpy(folder, engine):
    data = filled((5000, 7), ">f4")
    np.save("a.npy", data)
    rows = np.random.default_rng(1).integers(-5000, 5000, 700)
    with evenkeel.open("a.npy", budget="2MiB", engine=engine) as a:
        for index in [17, slice(10, 4000, 3), slice(None, None, -1), rows, (rows, 3), (..., 2)]:
            same(a[index], data[index])
        same(a.take(rows.reshape(70, 10)), data.take(rows.reshape(70, 10), axis=0))
        same(np.asarray(a), data)


@pytest.mark.parametrize(
    "index",
    [9, -6, [5], [[0], [-6]], "x", 1.5, [0.5], (0, 0, 0), (0, 3), np.ones(4, bool), np.array([])],
)
def test_errors_are_numpys(folder, index):
    data = filled((5, 3), "f4")
    np.save("a.npy", data)
    with pytest.raises(IndexError) as wanted:
        data[index]
    with pytest.raises(IndexError) as got:
        evenkeel.open("a.npy")[index]
    assert str(got.value) == str(wanted.value)


def test_fields_of_records(folder):
    data = filled((50,), "f4,(2,)i2")
    np.save("a.npy", data)
    a = evenkeel.open("a.npy")
    same(a["f1"], data["f1"])
    same(a[["f0"]], data[["f0"]])
    same(a[3:9]["f0"], data[3:9]["f0"])
    with pytest.raises(ValueError):
        a["nope"]


def test_parts_of_rows_do_not_keep_the_rows(folder):
    np.save("a.npy", np.zeros((4, 100_000)))
    a = evenkeel.open("a.npy")
    for part in (a[1, :5], a[:, 3], a[::2, ::1000]):
        assert part.base is None or part.base.nbytes == part.nbytes


def test_only_the_needed_rows_are_read(folder, python):
    """By the kernel's own count of bytes that came from the disk."""
    said = python("""
        import evenkeel, numpy as np
        from pathlib import Path

        def read():
            return int(Path("/proc/self/io").read_text().split("read_bytes: ")[1].split()[0])

        np.zeros((100_000, 1024), "u1").tofile("big")
        import os
        with open("big", "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        a = evenkeel.open("big", dtype="u1", shape=(-1, 1024), budget="4MiB", engine="direct")
        before = read()
        a[77], a[5000:5010], a[[1, 90_000], 3], a[40_000:80_000:10_000]
        print(read() - before)
        """)
    assert int(said) <= 17 * 1024 + 17 * 2 * 4096


def test_rows_one_by_one(folder):
    data = filled((1000, 3), "i4")
    np.save("a.npy", data)
    rows = list(evenkeel.open("a.npy", budget="1MiB"))
    assert all(row.base is None for row in rows)
    same(np.array(rows), data)
    np.save("b.npy", data[:, 0])
    assert list(evenkeel.open("b.npy")) == data[:, 0].tolist()


def test_without_axes(folder):
    np.save("a.npy", np.float32(2.5))
    a = evenkeel.open("a.npy")
    same(a[()], np.float32(2.5))
    same(a[...], np.array(2.5, "f4"))
    for call in (lambda: len(a), lambda: iter(a), lambda: a.batches(1)):
        with pytest.raises(TypeError):
            call()


def test_take_into_memory_of_the_callers(folder):
    data = filled((500, 3), "i4")
    np.save("a.npy", data)
    a = evenkeel.open("a.npy", budget="1MiB")
    out = np.empty((2, 2, 3), "i4")
    assert a.take([[1, -1], [499, 1]], out=out) is out
    same(out, data.take([[1, -1], [499, 1]], axis=0))
    read_only = np.empty((2, 3), "i4")
    read_only.flags.writeable = False
    for wrong in (np.empty((2, 3), "f4"), np.empty((3, 3), "i4"), np.empty((2, 6), "i4")[:, ::2]):
        with pytest.raises(ValueError, match="take: out"):
            a.take([0, 1], out=wrong)
    with pytest.raises(ValueError, match="writeable"):
        a.take([0, 1], out=read_only)
    with pytest.raises(TypeError, match="ndarray"):
        a.take([0, 1], out=[1])
    with pytest.raises(IndexError, match="index 500 is out of bounds for axis 0 with size 500"):
        a.take([500])
    with pytest.raises(IndexError, match="integer"):
        a.take([0.5])
    assert a.take([]).shape == (0, 3)


@pytest.mark.parametrize("shape", [(20,), (20, 3), (20, 2, 2)])
@pytest.mark.parametrize("indices", [2, -1, np.int64(3), np.array(4), [2], [[1], [2]], []])
def test_take_has_the_shape_of_numpys(folder, shape, indices):
    data = filled(shape, ">i4")
    np.save("a.npy", data)
    a = evenkeel.open("a.npy")
    same(a.take(indices), data.take(np.asarray(indices, int), axis=0))
    wanted = np.asarray(data.take(np.asarray(indices, int), axis=0))
    out = np.empty(wanted.shape, data.dtype)
    assert a.take(indices, out=out) is out
    np.testing.assert_array_equal(out, wanted)


def test_conversion_to_an_array(folder):
    data = filled((5, 3), "i4")
    np.save("a.npy", data)
    a = evenkeel.open("a.npy")
    same(np.asarray(a, dtype="f8"), data.astype("f8"))
    same(np.array(a), data)
    same(np.concatenate([a, a]), np.concatenate([data, data]))
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="copy"):
            np.asarray(a, copy=False)
    with pytest.raises(TypeError):
        a[0] = 1


ROW_DTYPES = ["?", "i1", ">i2", "<u4", "f2", ">f8", "c8", "S5", "<U3", "M8[s]", "m8[ns]", "V7"]
ROW_DTYPES += [np.dtype([("a", "<i4"), ("b", ">f8", (2,))])]


@pytest.mark.parametrize("dtype", ROW_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)])
@pytest.mark.parametrize("budget", ["1GiB", "1MiB"])
def test_single_rows_are_numpys(folder, dtype, shape, budget):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    stored = np.frombuffer(bytes(range(65, 91)) * count * dtype.itemsize, "u1")
    stored = (
        stored[: count * dtype.itemsize] % 2 if dtype == "?" else stored[: count * dtype.itemsize]
    )
    data = stored.tobytes()
    expected = np.ndarray(shape, dtype, bytearray(data))
    np.save("rows.npy", expected)
    a = evenkeel.open("rows.npy", budget=budget)
    for index in (0, 2, 4, -1, -5):
        row = a[index]
        wanted = expected[index]
        assert type(row) is type(wanted) and row.dtype == wanted.dtype
        assert row.shape == wanted.shape and row.tobytes() == wanted.tobytes()
        if isinstance(row, np.ndarray):
            row[...] = row  # one's own, to change
    for index in (5, -6, 2**63, 2**70, -(2**70)):
        with pytest.raises((IndexError, OverflowError)) as ours:
            a[index]
        with pytest.raises(ours.type):
            expected[index]
    assert a[True].shape == expected[True].shape  # no row number
    a.close()
    with pytest.raises(ValueError, match="close"):
        a[0]
