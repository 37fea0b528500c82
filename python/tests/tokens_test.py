"""Token streams; NumPy slicing is the oracle."""

import pickle

import numpy as np
import pytest
from token_help import COUNT, sliced

import evenkeel

# --- streams


def test_xy_is_what_slicing_a_memmap_gives(stored, train):
    starts = np.random.default_rng(1).integers(0, COUNT - 100, 50)
    for got, wanted in zip(train.xy(starts, 100), sliced(stored, starts, 100)):
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, wanted)


def test_xy_takes_lists_and_other_dtypes(stored, train):
    x, y = train.xy([0, 7], 5, dtype="int32")
    assert x.dtype == np.int32
    assert y[1].tolist() == [8, 9, 10, 11, 12]
    assert train.xy([], 5)[0].shape == (0, 5)
    assert train.xy(np.array([3], np.uint8), 2, dtype=train.dtype)[0].dtype == np.uint16


def test_another_byte_order_is_refused(stored, train):
    with pytest.raises(ValueError, match="byte order of this machine, but dtype is '>i4'"):
        train.xy([0, 7], 5, dtype=">i4")
    with pytest.raises(ValueError, match=r"byte order(.|\n)*evenkeel.open\(path, dtype='>u2'\)"):
        evenkeel.tokens(stored, dtype=">u2")
    assert evenkeel.tokens(stored, dtype="<u2")[1:3].tolist() == [1, 2]


def test_xy_fills_what_it_is_given(train):
    out = np.zeros((2, 4), np.int64), np.zeros((2, 4), np.int64)
    x, y = train.xy([5, 9], 4, out=out)
    assert x is out[0] and y is out[1]
    assert x[1].tolist() == [9, 10, 11, 12]


@pytest.mark.parametrize(
    "out",
    [np.zeros((2, 5), np.int64), np.zeros((2, 4), np.int32), np.zeros((4, 2), np.int64).T],
    ids=["shape", "dtype", "order"],
)
def test_out_of_another_kind_is_refused(train, out):
    with pytest.raises(ValueError, match="it must be int64 of shape"):
        train.xy([5, 9], 4, out=(out, out))


def test_arguments_of_a_wrong_type_are_named(stored, train):
    for options, words in (
        ({"start": 1.5}, "start must be a whole number; got 1.5"),
        ({"stop": "9"}, "stop must be a whole number; got '9'"),
        ({"engine": 3}, "engine must be the name"),
    ):
        with pytest.raises(TypeError, match=words):
            evenkeel.tokens(stored, **options)
    with pytest.raises(ValueError, match="out of range"):
        evenkeel.tokens(stored, stop=2**70)
    with pytest.raises(TypeError, match="start must be a whole number"):
        train.slice(1.5)
    for wrong in ("0.9", None, [0.8, 0.2]):
        with pytest.raises(TypeError, match="the fraction must be a number"):
            train.split(wrong)
    with pytest.raises(TypeError, match="split must be a string; got \\[9, 1\\]"):
        train.megatron_split([9, 1])
    for wrong in ("8", None, 8.5):
        with pytest.raises(TypeError, match="block_size must be a whole number"):
            train.xy([0], wrong)
    with pytest.raises(TypeError, match="out must be a pair"):
        train.xy([0], 8, out=3)


def test_starts_outside_are_index_errors(train):
    with pytest.raises(IndexError, match="before the first token"):
        train.xy([-1], 4)
    with pytest.raises(IndexError, match="300,000"):
        train.xy([COUNT - 4], 4)
    with pytest.raises(TypeError, match="whole numbers"):
        train.xy([0.5], 4)
    with pytest.raises(ValueError, match="block_size"):
        train.xy([1], 0)


def test_a_stream_says_what_it_is(stored, train):
    assert len(train) == COUNT
    assert train.dtype == np.uint16
    assert train.paths == [str(stored)]
    assert repr(train).startswith(
        "<evenkeel.Tokens train.bin: 300,000 uint16, raw (uint16 assumed)"
    )
    assert len(repr(train)) < 100
    for part in ("direct", "16 MiB", "in use", "train.bin", train.fingerprint):
        assert part in train.describe()


def test_pickling_sends_the_recipe(train):
    text = pickle.dumps(train)
    assert len(text) < 2000
    again = pickle.loads(text)
    assert again.fingerprint == train.fingerprint
    np.testing.assert_array_equal(again.xy([77], 3)[0], train.xy([77], 3)[0])


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        evenkeel.tokens(tmp_path / "none.bin")


def test_a_stream_becomes_an_array_within_the_budget(stored, train):
    data = np.fromfile(stored, np.uint16)
    np.testing.assert_array_equal(np.asarray(train), data)
    assert np.asarray(train, dtype="i8").dtype == np.int64
    assert list(evenkeel.tokens(stored, stop=70_000))[65_530:] == data[65_530:70_000].tolist()
    assert train.xy([3], 2, dtype="stored")[0].dtype == np.uint16
    small = evenkeel.tokens(stored, budget="1MiB", engine="direct")
    with pytest.raises(MemoryError, match="train.bin.*budget of 1 MiB"):
        np.asarray(small)
    torch = pytest.importorskip("torch")
    with pytest.raises(MemoryError, match="budget of 1 MiB"):
        torch.as_tensor(small)
    assert (torch.as_tensor(train).numpy() == data).all()


@pytest.mark.parametrize("engine", ["auto", "read", "direct"])
def test_indexing_is_numpys(stored, engine):
    data = np.fromfile(stored, np.uint16)
    train = evenkeel.tokens(stored, budget="16MiB", engine=engine)
    rng = np.random.default_rng(0)
    mask = rng.random(COUNT) < 0.01
    for index in [
        *(0, -1, np.int64(7), slice(None), slice(5, 9), slice(-5, None), slice(9, 5)),
        *(slice(100, 90, -2), slice(None, None, 1000), [3, 1, 3], rng.integers(-9, 9, (4, 2))),
        *(mask, [], ..., (..., 3), None, (None, slice(2, 4)), (), np.array(6)),
    ]:
        got, wanted = train[index], data[index]
        assert type(got) is type(wanted) and got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    for wrong in (COUNT, -COUNT - 1, [COUNT], (1, 2), 1.5, "x"):
        with pytest.raises(IndexError):
            train[wrong]


def test_parts_of_a_stream(stored):
    data = np.fromfile(stored, np.uint16)
    part = evenkeel.tokens(stored, budget="16MiB", start=1000, stop=-1000)
    assert len(part) == COUNT - 2000 and (part[:] == data[1000:-1000]).all()
    again = pickle.loads(pickle.dumps(part.slice(10, 20)))
    assert again[:].tolist() == data[1010:1020].tolist()
    assert part.slice(-5)[:].tolist() == data[-1005:-1000].tolist()
    assert part.slice(0, 9).budget.limit == part.budget.limit
    x, y = part.xy([0], 4)
    assert x.tolist() == [[1000, 1001, 1002, 1003]]
    with pytest.raises(IndexError):
        part.xy([COUNT - 2000 - 4], 4)
    for wrong in ({"start": COUNT}, {"stop": COUNT + 1}, {"start": 5, "stop": 5}):
        with pytest.raises(ValueError, match="300,000 tokens"):
            evenkeel.tokens(stored, **wrong)


def test_split_for_training_and_validation(stored):
    train, validation = evenkeel.tokens(stored, budget="16MiB").split(0.9)
    assert (len(train), len(validation)) == (270_000, 30_000)
    assert validation[0] == 270_000 % 65536 and train.fingerprint != validation.fingerprint
    state = None
    for part, first, end in ((train, 0, 270_000), (validation, 270_000, 300_000)):
        with evenkeel.TokenLoader(part, 4, 100, order="shuffled", seed=1) as loader:
            if state is not None:
                with pytest.raises(ValueError):
                    loader.load_state_dict(state)
            for step in range(20):
                origins = loader.explain(step)
                x, y = next(loader)
                for row, origin in zip(x, origins):
                    start = first + origin["start"]
                    assert start + 100 < end and row[0] == start % 65536
                    assert origin["offset"] == 2 * start
            state = loader.state_dict()
    half, rest = evenkeel.tokens(stored, budget="16MiB").split(0.5)
    assert len(half) == len(rest) and half.fingerprint != rest.fingerprint
    for wrong in (0, 1, -0.5, 1.5, float("nan"), 1e-9):
        with pytest.raises(ValueError, match="split"):
            train.split(wrong)


def test_a_megatron_pair_by_its_prefix(tmp_path):
    tokens = np.arange(12, dtype=np.uint16)
    tokens.tofile(tmp_path / "corpus.bin")
    lengths, documents = np.array([7, 5], np.int32), np.array([0, 1, 2], np.int64)
    (tmp_path / "corpus.idx").write_bytes(
        b"MMIDIDX\0\0"
        + np.array([1], np.uint64).tobytes()
        + b"\x08"
        + np.array([2, 3], np.uint64).tobytes()
        + lengths.tobytes()
        + np.array([0, 14], np.int64).tobytes()
        + documents.tobytes()
    )
    for folder_too in (False, True):
        if folder_too:
            (tmp_path / "corpus").mkdir()
        for prefix in (tmp_path / "corpus", [tmp_path / "corpus"], str(tmp_path / "corpus")):
            found = evenkeel.tokens(prefix)
            assert found.format == "megatron" and found[:].tolist() == tokens.tolist()
            assert found.paths == [str(tmp_path / "corpus.bin")]
    assert len(pickle.loads(pickle.dumps(found))) == 12
