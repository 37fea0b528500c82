"""Array.batches(shuffle="blocks"): every row once, resumed elsewhere, refused where it must be."""

import json

import numpy as np
import pytest

import evenkeel

pytestmark = pytest.mark.filterwarnings("ignore::evenkeel.ShuffleWarning")
ROWS, WIDE = 60_000, 40


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    name = tmp_path_factory.mktemp("blocks") / "rows.npy"
    rows = np.arange(ROWS, dtype=np.int32)[:, None] * np.ones(WIDE, np.int32)
    np.save(name, rows)
    return name


def opened(path, budget="4MiB"):
    return evenkeel.open(path, budget=budget)


def rows_of(loop):
    return np.concatenate([rows[:, 0] for rows in loop])


def test_every_row_comes_once_and_each_epoch_is_another_order(path):
    loop = opened(path).batches(500, shuffle="blocks", seed=1)
    first, second = rows_of(loop), rows_of(loop)
    assert len(loop) == 120
    for rows in (first, second):
        assert (np.sort(rows) == np.arange(ROWS)).all()
    assert (first != second).mean() > 0.99
    assert (rows_of(opened(path).batches(500, shuffle="blocks", seed=1)) == first).all()


def test_the_index_is_the_rows(path):
    seen = 0
    for index, rows in opened(path).batches(777, shuffle="blocks", with_index=True):
        assert (rows == index[:, None]).all()
        seen += len(index)
    assert seen == len(opened(path))


def test_data_that_fits_the_budget_comes_in_the_same_order(path):
    sizes = dict(shuffle="blocks", seed=4, block=64, window=6400)
    small, mapped = opened(path), opened(path, "64MiB")
    assert mapped.engine.startswith("map")
    assert (rows_of(small.batches(500, **sizes)) == rows_of(mapped.batches(500, **sizes))).all()


def test_the_order_depends_on_block_and_window_and_not_on_the_budget(path):
    loop = opened(path).batches(200, shuffle="blocks", seed=2)
    for _ in range(7):
        next(loop)
    state = json.loads(json.dumps(loop.state_dict()))
    rest = rows_of(loop)
    resumed = opened(path, "6MiB").batches(200, shuffle="blocks", seed=2)
    assert resumed.state_dict()["blocks"] != state["blocks"]
    resumed.load_state_dict(state)
    assert (rows_of(resumed) == rest).all()
    assert resumed.state_dict()["blocks"] == state["blocks"]


def test_it_continues_on_another_number_of_ranks(path):
    one = opened(path).batches(120, shuffle="blocks", seed=2, streams=12)
    for _ in range(7):
        next(one)
    state, wanted = one.state_dict(), [next(one)[:, 0] for _ in range(5)]
    for world in (2, 3, 4, 12):
        ranks = [
            opened(path).batches(120 // world, "blocks", 2, rank=rank, world=world, streams=12)
            for rank in range(world)
        ]
        for loop in ranks:
            loop.load_state_dict(state)
        for rows in wanted:
            parts = np.stack([next(loop)[:, 0] for loop in ranks], axis=1)
            assert (parts.reshape(-1) == rows).all()


def test_a_state_that_is_no_string_is_refused(path):
    loader = evenkeel.Loader(opened(path), 4, order="blocks")
    with pytest.raises(ValueError, match="state"):
        loader.load_state_dict({"state": None})


def test_a_state_of_other_sizes_is_refused_when_sizes_were_given(path):
    state = opened(path).batches(100, shuffle="blocks", block=50, window=5000).state_dict()
    other = opened(path).batches(100, shuffle="blocks", block=40)
    with pytest.raises(ValueError, match="the state has block 50, these batches 40"):
        other.load_state_dict(state)
    same = opened(path).batches(100, shuffle="blocks", window=5000)
    same.load_state_dict(state)
    exact = opened(path).batches(100, shuffle=True)
    with pytest.raises(ValueError, match="shuffle"):
        exact.load_state_dict(state)
    with pytest.raises(ValueError, match="shuffle"):
        other.load_state_dict(exact.state_dict())
    del state["blocks"]
    with pytest.raises(ValueError, match="no sizes of blocks"):
        same.load_state_dict(state)


def test_sizes_are_rows_or_bytes(path):
    loop = opened(path).batches(100, shuffle="blocks", block="16KiB", window="1MiB")
    assert loop.state_dict()["blocks"] == [102, 65, 64]
    loop = opened(path).batches(100, shuffle="blocks", block=100, window=6500, streams=4)
    assert loop.state_dict()["blocks"] == [100, 65, 4]


def test_describe_says_sizes_and_quality(path):
    text = opened(path).batches(129, shuffle="blocks", block=100, window=6500).describe()
    assert "blocks: 100 rows (15.6 KiB); windows: 65 blocks (6,500 rows" in text
    assert "10.8 % of the rows" in text
    assert "varies 1.41 times as much" in text
    whole = opened(path, "32MiB").batches(65, shuffle="blocks", block=100, window=ROWS)
    assert "as in an exact shuffle" in whole.describe()
    assert "in order" in opened(path).batches(10).describe()


def test_what_does_not_fit_is_refused_with_the_arithmetic(path):
    with pytest.raises(MemoryError, match="two windows of 30,000 rows of 160 bytes do not fit"):
        opened(path).batches(100, shuffle="blocks", block=100, window=30_000)
    with pytest.raises(ValueError, match="window of 6,400 rows is smaller than a chunk of 7,000"):
        opened(path).batches(7000, shuffle="blocks", block=100, window=6400)
    with pytest.raises(ValueError, match="a world of 3 does not divide the 64 streams"):
        opened(path).batches(10, shuffle="blocks", world=3, streams=64)
    with pytest.raises(ValueError, match=r"belong to shuffle=.blocks"):
        opened(path).batches(10, shuffle=True, window=100)
    for wrong in ({"block": 0}, {"window": -1}, {"streams": 0}):
        with pytest.raises(ValueError, match="must be 1"):
            opened(path).batches(10, shuffle="blocks", **wrong)


def test_ranks_do_not_choose_windows_by_free_memory(path):
    with pytest.raises(ValueError, match="the same on every rank"):
        evenkeel.open(path).batches(10, shuffle="blocks", world=2)
    assert len(evenkeel.open(path).batches(10, shuffle="blocks", world=2, window=10_000)) == 3000


def test_a_window_of_few_blocks_warns(path):
    with pytest.warns(evenkeel.ShuffleWarning, match="a window of 10 blocks") as caught:
        opened(path).batches(10, shuffle="blocks", block=100, window=1000)
    assert caught[0].filename == __file__
