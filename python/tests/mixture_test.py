"""Mixtures whose weights change, and sets that end; a plain Python mixture is the oracle."""

import functools
import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel

BLOCK, SIZES = 4, (160, 96, 400)  # tokens of three sets, whose values tell them apart


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    for number, size in enumerate(SIZES):
        (np.arange(size + 1) + 1000 * number).astype(np.uint16).tofile(folder / f"{number}.bin")
    return [evenkeel.tokens(folder / f"{n}.bin", budget="4MiB") for n in range(len(SIZES))]


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for number, size in enumerate(SIZES):
        np.save(folder / f"{number}.npy", np.arange(size) + 1000 * number)
    return [evenkeel.open(folder / f"{n}.npy", budget="4MiB") for n in range(len(SIZES))]


def shares(weights):
    """Whole numbers over the smallest period, as the weights are whole themselves."""
    whole = [int(weight) for weight in weights]
    return [weight // math.gcd(*whole) for weight in whole]


def chairman(weights):
    """Generates the sets in order, without end: Tijdeman's rule with fractions."""
    parts = [Fraction(share, sum(shares(weights))) for share in shares(weights)]
    slack = Fraction(1, max(2 * len(parts), 4) - 2)
    taken = [0] * len(parts)
    for step in itertools.count(1):
        lags = [part * step - had for part, had in zip(parts, taken)]
        due = [i for i, lag in enumerate(lags) if parts[i] > 0 and lag >= slack]
        chosen = min(due, key=lambda i: ((1 - slack - lags[i]) / parts[i], i))
        taken[chosen] += 1
        yield chosen


def reference(schedule, step, epochs=(), limits=(), exhausted="stop", turn=1):
    """(set, index in its order, stage) of each sample, or of each turn of as many samples."""
    taken, dropped = [0] * len(epochs), set()
    starts = sorted(schedule)
    sample, stage, mixture = 0, 0, None

    def begin():
        weights = [0 if i in dropped else w for i, w in enumerate(schedule[starts[stage]])]
        return chairman(weights) if any(weights) else None

    mixture = begin()
    while True:
        while stage + 1 < len(starts) and sample * turn >= starts[stage + 1] * step:
            stage += 1
            mixture = begin()
        if mixture is None:
            return
        chosen = next(mixture)
        most = limits[chosen] * epochs[chosen] // turn if limits and limits[chosen] else None
        if most is not None and taken[chosen] >= most:
            if exhausted == "stop":
                return
            if exhausted == "drop":
                dropped.add(chosen)
                mixture = begin()
                continue
        yield chosen, taken[chosen] % most if most else taken[chosen], stage
        taken[chosen] += 1
        sample += 1


def seed_of_set(seed, number):
    return seed ^ (number * 0x9E3779B97F4A7C15 % 2**64)


@pytest.fixture(scope="module")
def alone(sets, arrays):
    """What a loader of one set alone gives at a position, for tokens and for rows."""

    def starts(number):
        loader = evenkeel.TokenLoader(
            sets[number], 1, BLOCK, order="shuffled", seed=seed_of_set(3, number), prefetch=0
        )
        return functools.cache(lambda position: loader.explain(position)[0]["start"])

    def rows(number):
        loader = evenkeel.Loader(arrays[number], 1, seed=seed_of_set(3, number), prefetch=0)
        return functools.cache(lambda position: loader.explain(position)[0]["row"])

    return {"start": [starts(n) for n in range(3)], "row": [rows(n) for n in range(3)]}


weight_lists = st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any)
schedules = st.dictionaries(st.integers(1, 25), weight_lists, max_size=3).flatmap(
    lambda later: weight_lists.map(lambda first: {0: first, **later})
)
limit_lists = st.lists(st.none() | st.integers(1, 3), min_size=3, max_size=3)


@given(
    schedule=schedules,
    limits=st.none() | limit_lists,
    exhausted=st.sampled_from(["stop", "drop", "repeat"]),
    batch=st.integers(1, 4),
    world=st.integers(1, 3),
)
@settings(deadline=None, max_examples=25)
def test_every_position_is_what_the_reference_says(
    sets, arrays, alone, schedule, limits, exhausted, batch, world
):
    step = batch * world
    for loader_class, data, epochs, extra in (
        (evenkeel.TokenLoader, sets, [size // BLOCK for size in SIZES], {"block_size": BLOCK}),
        (evenkeel.Loader, arrays, SIZES, {}),
    ):
        wanted = reference(schedule, step, epochs, limits, exhausted)
        expected = list(itertools.islice(wanted, 40 * step))
        pairs = [(one, 1) for one in data]
        loaders = []
        for rank in range(world):
            options = {"order": "shuffled", "seed": 3, "rank": rank, "world": world, "prefetch": 0}
            changes = {"schedule": schedule, "max_epochs": limits, "exhausted": exhausted}
            try:
                loaders.append(loader_class(pairs, batch, **extra, **options, **changes))
            except ValueError as error:
                assert "less than one step" in str(error) and len(expected) < step
        if not loaders:
            continue
        whole = len(expected) // step
        if len(expected) < 40 * step:
            assert [loader.size for loader in loaders] == [whole] * world
        place = "start" if loader_class is evenkeel.TokenLoader else "row"
        for number in range(whole):
            rows = sorted(
                (row for loader in loaders for row in loader.explain(number)),
                key=lambda row: row["sample"],
            )
            assert [row["sample"] for row in rows] == [*range(number * step, number * step + step)]
            for row in rows:
                chosen, index, stage = expected[row["sample"]]
                assert (row["set"], row["stage"]) == (chosen, stage)
                assert row["epoch"] == index // epochs[chosen]
                assert row[place] == alone[place][chosen](index)
        # seek leads to the same batch as stepping, and to what explain returns.
        loader = loaders[0]
        for number in {0, whole // 2, whole - 1}:
            loader.seek(number)
            found = next(loader)
            found = found[0][:, 0] if place == "start" else found
            assert found.tolist() == [
                row[place] + 1000 * row["set"] for row in loader.explain(number)
            ]
        for loader in loaders:
            loader.close()


def test_stepping_over_changes_is_seeking(sets):
    options = {"schedule": {0: [3, 1, 0], 5: [1, 3, 1], 6: [0, 0, 1], 9: [1, 1, 1]}, "seed": 1}
    pairs = [(one, 1) for one in sets]
    with evenkeel.TokenLoader(pairs, 3, BLOCK, order="covering", **options) as loader:
        stepped = [np.array(next(loader)[0]) for _ in range(40)]
        for step in [39, *range(40)]:
            loader.seek(step)
            np.testing.assert_array_equal(next(loader)[0], stepped[step])


def test_a_set_goes_on_where_it_was_at_a_change(sets):
    """No sample is lost or repeated: every block occurs once per epoch, with any stages."""
    schedule = {0: [1, 2, 1], 3: [5, 1, 0], 10: [1, 1, 1]}
    with evenkeel.TokenLoader(
        [(one, 1) for one in sets], 4, BLOCK, order="shuffled", schedule=schedule
    ) as loader:
        seen = [row for step in range(80) for row in loader.explain(step)]
    for number, size in enumerate(SIZES):
        starts = [row["start"] for row in seen if row["set"] == number]
        for first in range(0, len(starts) - size // BLOCK + 1, size // BLOCK):
            assert sorted(starts[first : first + size // BLOCK]) == [*range(0, size, BLOCK)]


# --- states


def token_loader(sets, **options):
    return evenkeel.TokenLoader(
        [(one, 1) for one in sets[:2]], 4, BLOCK, order="shuffled", **options
    )


def test_the_future_of_a_state_may_change_and_its_past_may_not(sets):
    with token_loader(sets, schedule={0: [3, 1], 10: [1, 3]}) as loader:
        loader.seek(15)
        saved, expected = loader.state_dict(), np.array(next(loader)[0])
    assert "stages=0:3+1,40:1+3 " in saved["state"]
    same_past = [
        {0: [3, 1], 10: [1, 3], 16: [1, 1]},  # a stage is added
        {0: [3, 1], 10: [2, 6]},  # the same shares
    ]
    for schedule in same_past:
        with token_loader(sets, schedule=schedule) as loader:
            loader.load_state_dict(saved)
            np.testing.assert_array_equal(next(loader)[0], expected)
    with token_loader(sets, schedule={0: [3, 1], 10: [1, 3], 15: [0, 1]}) as loader:
        loader.load_state_dict(saved)  # from the very next step on
        assert {row["set"] for row in loader.explain(loader.step)} == {1}
    for schedule in ({0: [3, 1]}, {0: [3, 1], 9: [1, 3]}, {0: [3, 1], 10: [1, 3], 14: [1, 1]}):
        with token_loader(sets, schedule=schedule) as loader:
            with pytest.raises(ValueError, match=re.escape("stages=0:3+1,40:1+3")):
                loader.load_state_dict(saved)


def test_a_state_goes_on_with_another_world_where_the_stages_are_the_same_samples(sets):
    with token_loader(sets, schedule={0: [3, 1], 10: [1, 3]}) as loader:
        loader.seek(16)
        saved, expected = loader.state_dict(), loader.explain(16) + loader.explain(17)
    pairs = [(one, 1) for one in sets[:2]]
    found = []
    for rank in range(2):
        with evenkeel.TokenLoader(
            pairs, 4, BLOCK, order="shuffled", rank=rank, world=2, schedule={0: [3, 1], 5: [1, 3]}
        ) as loader:
            loader.load_state_dict(saved)
            assert loader.step == 8
            found += loader.explain(8)
    assert sorted(found, key=lambda row: row["sample"]) == expected


def test_states_of_before_there_were_stages_go_on(tmp_path):
    """Taken with version 0.1."""
    (np.arange(1000)).astype(np.uint16).tofile(tmp_path / "code.bin")
    (np.arange(500) + 2000).astype(np.uint16).tofile(tmp_path / "text.bin")
    pairs = [
        (evenkeel.tokens(tmp_path / "code.bin", budget="4MiB"), 3),
        (evenkeel.tokens(tmp_path / "text.bin", budget="4MiB"), 1),
    ]
    old = {
        "evenkeel": 1,
        "state": "evenkeel-loader-state 1 samples=28 seed=5 block_size=16 order=shuffled share=3/4"
        " tokens=1000 dtype=uint16 files=1 bytes=2000 names=10541649641507665281 | share=1/4"
        " tokens=500 dtype=uint16 files=1 bytes=1000 names=18197721477363905414",
    }
    for schedule in (None, {7: [1, 9]}, {0: [3, 1], 8: [1, 3]}):
        options = {"order": "shuffled", "seed": 5, "schedule": schedule}
        with evenkeel.TokenLoader(pairs, 4, 16, **options) as loader:
            loader.load_state_dict(old)
            assert loader.step == 7
            if schedule != {7: [1, 9]}:
                assert next(loader)[0][:, 0].tolist() == [768, 80, 2064, 240]
    with evenkeel.TokenLoader(
        pairs, 4, 16, order="shuffled", seed=5, schedule={6: [1, 3]}
    ) as loader:
        with pytest.raises(ValueError, match="belongs to other batches"):
            loader.load_state_dict(old)


def test_row_states_of_before_there_were_stages_go_on(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100))
    np.save(tmp_path / "y.npy", np.arange(60) + 1000)
    x, y = (evenkeel.open(tmp_path / f"{name}.npy", budget="4MiB") for name in "xy")
    state = (
        "evenkeel-row-loader-state 1 samples=54 seed=5 order=shuffled share=2/3 rows=100"
        " dtype=int64 files=1 bytes=928 names=12334189148395366139 row=8 | share=1/3 rows=60"
        " dtype=int64 files=1 bytes=608 names=615306943895334223 row=8"
    )
    with evenkeel.Loader([(x, 2), (y, 1)], 6, seed=5, schedule={20: [1, 1]}) as loader:
        loader.load_state_dict({"evenkeel": 1, "state": state})
        assert next(loader).tolist() == [92, 1005, 13, 62, 1019, 46]


# --- ends


def test_stop_ends_the_loop_and_the_next_loop_is_the_same(arrays):
    with evenkeel.Loader([(arrays[0], 1), (arrays[1], 1)], 10, max_epochs=[None, 1]) as loader:
        assert len(loader) == 19  # set 1 has 96 rows; its 97th would be sample 193
        first = [batch.tolist() for batch in loader]
        assert len(first) == 19 and first == [batch.tolist() for batch in loader]


def test_dropped_sets_leave_their_share_to_the_others(arrays):
    with evenkeel.Loader(
        [(one, 1) for one in arrays], 10, max_epochs=1, exhausted="drop"
    ) as loader:
        rows = np.concatenate([*loader])
        assert len(loader) == sum(SIZES) // 10
        assert len(np.unique(rows)) == len(rows)  # every row at most once
        late = rows[-100:]
        assert set(late // 1000) == {2}


def test_repeated_sets_begin_again_with_the_same_order(arrays):
    with evenkeel.Loader(
        [(arrays[0], 1), (arrays[1], 1)], 2, max_epochs=[None, 1], exhausted="repeat"
    ) as loader:
        second = [row["row"] for s in range(96 * 2) for row in loader.explain(s) if row["set"] == 1]
    assert second[:96] == second[96:]


def test_workers_end_where_a_set_does(arrays):
    torch_data = pytest.importorskip("torch.utils.data")
    data = [(arrays[0], 1), (arrays[1], 1)]
    dataset = evenkeel.RowIterableDataset(data, 10, max_epochs=[None, 1], steps=1000)
    found = [batch.tolist() for batch in torch_data.DataLoader(dataset, batch_size=None)]
    with evenkeel.Loader(data, 10, max_epochs=[None, 1]) as loader:
        assert found == [batch.tolist() for batch in loader]
    dataset = evenkeel.RowIterableDataset(data, 10, max_epochs=[None, 1])
    assert len(dataset) == 19
    for epoch in range(3):  # all there is, each time
        dataset.set_epoch(epoch)
        assert [batch.tolist() for batch in dataset] == found


def test_epochs_of_given_steps_end_with_the_sets(sets, arrays):
    pytest.importorskip("torch")
    limits = {"order": "shuffled", "max_epochs": [None, 1], "steps": 10}
    rows = evenkeel.RowIterableDataset([(arrays[0], 1), (arrays[1], 1)], 10, **limits)
    tokens = evenkeel.TokenIterableDataset([(sets[0], 1), (sets[1], 1)], 4, BLOCK, **limits)
    for dataset, steps in ((rows, 19), (tokens, 12)):
        lengths = []
        for epoch in range(2):
            dataset.set_epoch(epoch)
            lengths.append(sum(1 for _ in dataset))
        assert lengths == [10, steps - 10]
        dataset.set_epoch(2)
        with pytest.raises(ValueError, match="epoch 2 of 10 steps begins at step 20, but the data"):
            next(iter(dataset))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"schedule": {0: [1]}}, ValueError, "1 numbers for 2 sets"),
        ({"schedule": {0: [1, -1]}}, ValueError, "stage at step 0: weight 1 is -1"),
        ({"schedule": {0: [1, -1e-9]}}, ValueError, "stage at step 0: weight 1 is -1e-09"),
        ({"schedule": {0: [0, 0]}}, ValueError, "add up to 0"),
        ({"schedule": {-1: [1, 1]}}, ValueError, "step must be 0 or more"),
        ({"schedule": {}}, ValueError, "no stages"),
        ({"schedule": [(5, [1, 1]), (5, [1, 2])]}, ValueError, "in the order of their steps"),
        ({"schedule": [[1, 1], 3]}, TypeError, "a schedule is a dict"),
        ({"schedule": "3"}, TypeError, "a schedule is a dict"),
        ({"schedule": {0: 3}}, TypeError, "a schedule is a dict"),
        ({"schedule": {0: "31"}}, TypeError, "a schedule is a dict"),
        ({"schedule": {0: ["a", 1]}}, TypeError, "a schedule is a dict"),
        ({"max_epochs": 1.5}, TypeError, "max_epochs must be a whole number; got 1.5"),
        ({"max_epochs": [1]}, ValueError, "max_epochs has 1 numbers for 2 sets"),
        ({"max_epochs": 0}, ValueError, "max_epochs must be 1 or more"),
        ({"max_epochs": 1, "exhausted": "end"}, ValueError, "stop, drop or repeat"),
        ({"max_epochs": 1, "order": "random"}, ValueError, "has no epochs"),
    ],
)
def test_bad_options_are_refused(sets, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        evenkeel.TokenLoader(
            [(one, 1) for one in sets[:2]], 4, BLOCK, **{"order": "shuffled", **options}
        )


def test_stages_are_for_several_sets(sets):
    with pytest.raises(ValueError, match="for several sets"):
        evenkeel.TokenLoader(sets[0], 4, BLOCK, schedule={0: [1]})
    with pytest.raises(ValueError, match="the weights of the sets differ"):
        evenkeel.TokenLoader([(sets[0], 2), (sets[1], 1)], 4, BLOCK, schedule={0: [1, 1]})
