"""page_cache="fill": the same data, kept in the page cache."""

import os
import pickle
import threading

import numpy as np
import pytest

import evenkeel


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(300_000, dtype=np.float32).reshape(-1, 30))
    return path


def test_fill_gives_numpys_answers(rows):
    expected = np.load(rows)
    order = np.random.default_rng(1).permutation(len(expected))
    with evenkeel.open(rows, budget="16MiB", page_cache="fill") as a:
        np.testing.assert_array_equal(a.take(order), expected[order])
        np.testing.assert_array_equal(a[100:7000:3, 4], expected[100:7000:3, 4])
        np.testing.assert_array_equal(a[17], expected[17])
        np.testing.assert_array_equal(np.concatenate(list(a.batches(999))), expected)
        for _ in range(2):
            for index, batch in a.batches(777, shuffle=True, seed=3, with_index=True):
                np.testing.assert_array_equal(batch, expected[index])


def test_fill_says_that_the_budget_does_not_cover_the_page_cache(rows):
    with evenkeel.open(rows, budget="16MiB", page_cache="fill") as a:
        assert a.engine.startswith("fill (")
        assert "covers the library's own memory, not the page cache" in a.engine
        assert "covers the library's own memory" in a.describe()
    assert "fill" not in evenkeel.open(rows, budget="16MiB").engine


def test_fill_is_kept_when_it_is_pickled(rows):
    a = evenkeel.open(rows, budget="16MiB", page_cache="fill")
    again = pickle.loads(pickle.dumps(a))
    assert again.engine == a.engine
    np.testing.assert_array_equal(again[3], a[3])


def test_fill_of_fortran_order_big_endian_and_several_files(tmp_path):
    parts = [np.arange(n * 7, dtype=">i4").reshape(n, 7) + n for n in (1000, 3, 500)]
    for i, part in enumerate(parts):
        np.save(tmp_path / f"part{i}.npy", part)
    expected = np.concatenate(parts)
    a = evenkeel.open(str(tmp_path / "part*.npy"), budget="8MiB", page_cache="fill")
    order = np.random.default_rng(2).permutation(len(expected))
    np.testing.assert_array_equal(a.take(order), expected[order])
    column = np.asfortranarray(np.random.default_rng(3).random((40_000, 9)))
    np.save(tmp_path / "fortran.npy", column)
    b = evenkeel.open(tmp_path / "fortran.npy", budget="8MiB", page_cache="fill")
    np.testing.assert_array_equal(b[5:30_000:7], column[5:30_000:7])


def test_tokens_and_their_slices_fill_too(tmp_path):
    stream = np.random.default_rng(4).integers(0, 60_000, 500_000).astype(np.uint16)
    stream.tofile(tmp_path / "train.bin")
    train = evenkeel.tokens(tmp_path / "train.bin", budget="16MiB", page_cache="fill")
    x, y = train.xy([5, 400_000], 64)
    np.testing.assert_array_equal(x[1], stream[400_000:400_064])
    np.testing.assert_array_equal(y[0], stream[6:70])
    part = train.slice(1000, 200_000)
    assert part.engine.startswith("fill (")
    assert pickle.loads(pickle.dumps(part)).engine.startswith("fill (")
    for x, y in evenkeel.TokenLoader(part, 4, 32, seed=1, steps=20):
        np.testing.assert_array_equal(x[:, 1:], y[:, :-1])


def test_threads_take_at_the_same_time(rows):
    expected = np.load(rows)
    a = evenkeel.open(rows, budget="16MiB", page_cache="fill")
    wrong = []

    def work(seed):
        for _ in range(20):
            order = np.random.default_rng(seed).integers(0, len(expected), 2000)
            if not np.array_equal(a.take(order), expected[order]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_truncated_file_is_an_error(rows):
    a = evenkeel.open(rows, budget="16MiB", page_cache="fill")
    a.take([9_000])
    os.truncate(rows, 100_000)
    with pytest.raises(ValueError, match="changed while open"):
        a.take([9_000])


@pytest.mark.parametrize("value", ["all", "", "Fill", "none"])
def test_unknown_values_are_refused_with_what_works(rows, value):
    with pytest.raises(ValueError, match='"spare" .the default.* "fill"'):
        evenkeel.open(rows, page_cache=value)
    with pytest.raises(ValueError, match='"fill"'):
        evenkeel.tokens(rows, page_cache=value)


@pytest.mark.parametrize("value", [None, True, 3, b"fill"])
def test_what_is_no_name_is_a_type_error(rows, value):
    with pytest.raises(TypeError, match='"spare" or "fill"'):
        evenkeel.open(rows, page_cache=value)


def test_fill_goes_with_no_other_engine(rows):
    with pytest.raises(ValueError, match='"fill" does not go with engine "direct"'):
        evenkeel.open(rows, engine="direct", page_cache="fill")
