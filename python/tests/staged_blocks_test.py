"""Mixtures that change, and sets that end, with order="blocks", against plain Python references."""

import functools
import itertools
import pathlib
from typing import Any

import numpy as np
import pytest
from document_blocks_test import many, orders, packed_at, whole_epoch
from document_corpora import Corpus, packed_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mixture_test import limit_lists, reference, schedules, seed_of_set
from token_blocks_test import crop_start

import evenkeel

pytestmark = pytest.mark.filterwarnings("ignore::evenkeel.ShuffleWarning")
FEW = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SIZES, BLOCK, SEED = (1_300, 700, 2_500), 8, 3  # tokens, or rows, of three sets
BLOCKS = {"block": 4, "window": 10}  # blocks of samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("sets")
    for number, size in enumerate(SIZES):
        values = np.arange(size) + 10_000 * number
        values.astype(np.uint16).tofile(folder / f"{number}.bin")
        np.save(folder / f"{number}.npy", values[: size // 10])
    return folder


def opened(folder: pathlib.Path, kind: str, engine: str) -> list[Any]:
    options: dict[str, Any] = {"budget": "4MiB", "engine": engine}
    if kind == "rows":
        return [evenkeel.open(folder / f"{n}.npy", **options) for n in range(3)]
    return [evenkeel.tokens(folder / f"{n}.bin", **options) for n in range(3)]


def crop_at(streams: int, number: int, index: int) -> tuple[int, int]:
    """The epoch and the first token of a crop; an epoch has whole turns."""
    crops = (SIZES[number] - BLOCK) // BLOCK
    epoch, position = divmod(index, crops - crops % streams)
    return epoch, crop_start(
        SIZES[number], BLOCK, seed_of_set(SEED, number), epoch, position, **BLOCKS, streams=streams
    )


def row_at(streams: int, number: int, index: int) -> tuple[int, int]:
    rows = SIZES[number] // 10
    epoch, position = divmod(index, rows - rows % streams)
    seed = seed_of_set(SEED, number)
    return epoch, orders.blocks(rows, seed, epoch, position, **BLOCKS, streams=streams)


@FEW
@given(data=st.data())
@pytest.mark.parametrize("kind", ["crops", "rows"])
def test_every_position_is_what_the_reference_says(
    folder: pathlib.Path, kind: str, data: Any
) -> None:
    """Steps, seeking, states, ranks and workers."""
    schedule, limits = data.draw(schedules), data.draw(st.none() | limit_lists)
    exhausted = data.draw(st.sampled_from(["stop", "drop", "repeat"]))
    batch, world = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([1, 2, 3]))
    streams, engine = (
        world * data.draw(st.integers(1, 6)),
        data.draw(st.sampled_from(["auto", "direct"])),
    )
    stride = data.draw(st.sampled_from([1, 1, 2]))
    step = batch * world
    if kind == "crops":
        whole = [(size - BLOCK) // BLOCK for size in SIZES]
    else:
        whole = [size // 10 for size in SIZES]
    epochs = [count - count % streams for count in whole]
    at = functools.partial(crop_at if kind == "crops" else row_at, streams)
    wanted = reference(schedule, step, epochs, limits, exhausted, streams)
    turns = list(itertools.islice(wanted, 40 * step // streams + 2))
    ends = len(turns) < 40 * step // streams + 2
    expected = [
        (chosen, stage, *at(chosen, turn * streams + stream))
        for chosen, turn, stage in turns
        for stream in range(streams)
    ]
    pairs = [(one, 1) for one in opened(folder, kind, engine)]

    def load(rank: int, **options: Any) -> Any:
        made: dict[str, Any] = {"order": "blocks", "seed": SEED, "rank": rank, "world": world}
        made |= {"schedule": schedule, "max_epochs": limits, "exhausted": exhausted, **BLOCKS}
        made |= {"streams": streams, "window": 40, "prefetch": 1, **options}
        if kind == "rows":
            return evenkeel.Loader(pairs, batch, **made)
        return evenkeel.TokenLoader(pairs, batch, BLOCK, **made)

    steps = min(len(expected) // step, 40)
    if steps == 0:
        with pytest.raises(ValueError, match="less than one step"):
            load(0)
        return
    sought = data.draw(st.lists(st.integers(0, steps - 1), max_size=3))
    for rank in range(world):
        with load(rank) as loader, load(rank) as other:
            if ends:
                assert loader.size == len(expected) // step
            for number in [*range(0, steps), *sought]:
                if number in sought:
                    loader.seek(number)
                mine = expected[number * step : (number + 1) * step][rank::world]
                place = "start" if kind == "crops" else "row"
                found = [
                    (row["set"], row["stage"], row["epoch"], row[place])
                    for row in loader.explain(number)
                ]
                assert found == mine
                if number in sought:
                    other.load_state_dict(loader.state_dict())
                    both = [next(loader), next(other)]
                else:
                    both = [next(loader)]
                for rows in both:
                    values = rows[0][:, 0] if kind == "crops" else rows
                    assert values.tolist() == [row[3] + 10_000 * row[0] for row in mine]
    with load(0, stride=stride, phase=stride - 1) as loader:
        for number in range(stride - 1, steps, stride):
            rows = next(loader)
            values = rows[0][:, 0] if kind == "crops" else rows
            mine = expected[number * step : (number + 1) * step][::world]
            assert values.tolist() == [row[3] + 10_000 * row[0] for row in mine]


@FEW
@given(data=st.data())
def test_documents_are_what_the_reference_says(tmp_path: pathlib.Path, data: Any) -> None:
    mode = data.draw(st.sampled_from(["packed", "whole"]))
    corpora = two(tmp_path)
    width = 60
    schedule = {0: data.draw(weights), data.draw(st.integers(1, 20)): data.draw(weights)}
    limits = data.draw(st.none() | st.lists(st.none() | st.integers(1, 2), min_size=2, max_size=2))
    exhausted = data.draw(st.sampled_from(["stop", "drop", "repeat"]))
    batch, world = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([1, 2]))
    streams = world * data.draw(st.integers(1, 4))
    engine = data.draw(st.sampled_from(["auto", "direct"]))
    step = batch * world
    packed = [packed_rows(one.starts, len(one.tokens), width, 3) for one in corpora]
    lengths = [
        np.minimum(np.diff([*one.starts, len(one.tokens)]), width).tolist() for one in corpora
    ]
    if mode == "packed":
        epochs = [len(rows) * len(rows[0]) for rows in packed]
    else:
        epochs = [len(one) for one in lengths]

    @functools.cache
    def epoch_of(number: int, epoch: int) -> list[int]:
        return whole_epoch(lengths[number], seed_of_set(SEED, number), epoch, 8, 24, 5)

    def documents(number: int, index: int) -> list[tuple[int, int]]:
        """(first token, tokens) of each piece."""
        if mode == "packed":
            return packed_at(packed[number], seed_of_set(SEED, number), index, 2)
        document = epoch_of(number, index // epochs[number])[index % epochs[number]]
        return [(corpora[number].starts[document], lengths[number][document])]

    wanted = reference(schedule, step, epochs, limits, exhausted, streams)
    turns = list(itertools.islice(wanted, 30 * step // streams + 2))
    ends = len(turns) < 30 * step // streams + 2
    expected = [
        (chosen, stage, documents(chosen, turn * streams + stream))
        for chosen, turn, stage in turns
        for stream in range(streams)
    ]
    steps = min(len(expected) // step, 30)
    sizes = {"window": 3, "mixed_windows": 2}
    if mode == "whole":
        sizes = {"window": 24, "bucket": 5, "block": 8}
    tokens = [evenkeel.tokens(one.paths, budget="16MiB", engine=engine) for one in corpora]
    for rank in range(world):
        with evenkeel.TokenLoader(
            [(one, 1) for one in tokens],
            batch,
            width,
            order="blocks",
            documents=mode,
            seed=SEED,
            rank=rank,
            world=world,
            streams=streams,
            prefetch=1,
            schedule=schedule,
            max_epochs=limits,
            exhausted=exhausted,
            **sizes,
        ) as loader:
            if ends:
                assert loader.size == len(expected) // step
            sought = data.draw(st.integers(0, steps - 1))
            for number in [*range(steps), sought]:
                if number == sought:
                    loader.load_state_dict(state_at(loader, number))
                mine = expected[number * step : (number + 1) * step][rank::world]
                found = [
                    (
                        row["set"],
                        row["stage"],
                        [(piece["start"], piece["tokens"]) for piece in row["documents"]],
                    )
                    for row in loader.explain(number)
                ]
                assert found == mine
                x = next(loader).x
                shown = [
                    np.concatenate([corpora[which].tokens[at : at + n] for at, n in pieces] or [[]])
                    for which, _, pieces in mine
                ]
                if mode == "whole":
                    np.testing.assert_array_equal(x, np.concatenate(shown))
                else:
                    for row, values in zip(x, shown):
                        np.testing.assert_array_equal(row[: len(values)], values)


weights = st.lists(st.integers(0, 4), min_size=2, max_size=2).filter(any)


@functools.cache
def two(folder: pathlib.Path) -> list[Corpus]:
    return [many(folder / "a", 150, 1), many(folder / "b", 90, 2)]


def state_at(loader: evenkeel.TokenLoader, step: int) -> dict[str, Any]:
    loader.seek(step)
    state = loader.state_dict()
    loader.seek(0)
    return state


def test_start_moves_the_crops_of_a_mixture_that_changes(tmp_path: pathlib.Path) -> None:
    corpora = two(tmp_path)
    tokens = [evenkeel.tokens(one.paths, budget="16MiB", engine="direct") for one in corpora]
    options: dict[str, Any] = {"order": "blocks", "seed": 5, "block": 2, "window": 16}
    options |= {"streams": 4, "schedule": {0: [3, 1], 9: [1, 4]}, "max_epochs": [1, 2]}
    options |= {"exhausted": "repeat", "prefetch": 1}
    pairs = [(one, 1) for one in tokens]
    with (
        evenkeel.TokenLoader(pairs, 3, 40, **options) as plain,
        evenkeel.TokenLoader(pairs, 3, 40, documents="start", leftovers="use", **options) as loader,
    ):
        for step in range(120):
            batch = next(loader)
            crops, rows = plain.explain(step), loader.explain(step)
            for x, crop, row in zip(batch.x, crops, rows):
                own = corpora[crop["set"]]
                inside = [s for s in own.starts if crop["start"] <= s < crop["start"] + 40]
                if inside and inside[0] + 40 < len(own.tokens):
                    assert row["start"] == inside[0]
                else:
                    assert row["start"] == crop["start"]
                assert (row["set"], row["stage"]) == (crop["set"], crop["stage"])
                np.testing.assert_array_equal(x, own.tokens[row["start"] :][:40])


def token_loader(folder: pathlib.Path, batch: int = 4, **options: Any) -> evenkeel.TokenLoader:
    pairs = [(one, 1) for one in opened(folder, "crops", "direct")[:2]]
    options = {"streams": 8, "block": 4, "window": 40, **options}
    return evenkeel.TokenLoader(pairs, batch, BLOCK, order="blocks", **options)


def test_the_future_of_a_state_may_change_and_its_past_may_not(folder: pathlib.Path) -> None:
    with token_loader(folder, schedule={0: [3, 1], 5: [1, 3]}) as loader:
        loader.seek(15)
        saved, expected = loader.state_dict(), np.array(next(loader)[0])
    # Step 5 is sample 20; the next turn of 8 begins at sample 24.
    assert "stages=0:3+1,24:1+3 " in saved["state"]
    with token_loader(folder, schedule={0: [3, 1], 6: [1, 3], 16: [1, 1]}) as loader:
        loader.load_state_dict(saved)  # step 6 is the same turn
        np.testing.assert_array_equal(next(loader)[0], expected)
    with token_loader(folder, schedule={0: [3, 1], 7: [1, 3]}) as loader:
        with pytest.raises(ValueError, match="belongs to other batches"):
            loader.load_state_dict(saved)
    for streams, message in ((4, "pass streams=8"), (None, "create the loader with streams=8")):
        schedule = {0: [3, 1], 6: [1, 3]}
        with token_loader(folder, streams=streams, schedule=schedule) as loader:
            with pytest.raises(ValueError, match=message):
                loader.load_state_dict(saved)


def test_states_without_stages_go_on_with_stages(folder: pathlib.Path) -> None:
    """Of an earlier version, which had none with this order."""
    names = [
        "tokens=1300 dtype=uint16 files=1 bytes=2600 names=",
        "tokens=700 dtype=uint16 files=1 bytes=1400 names=",
    ]
    with token_loader(folder, seed=7) as loader:
        loader.seek(6)
        saved, expected = loader.state_dict(), np.array(next(loader)[0])
    text = saved["state"]
    assert text.startswith(
        "evenkeel-loader-state 1 samples=24 seed=7 block_size=8 order=blocks block_rows=4"
        " window_blocks=10 streams=8 share=1/2 " + names[0]
    )
    assert " | share=1/2 " + names[1] in text
    for schedule in ({6: [1, 2]}, {9: [1, 5]}):
        with token_loader(folder, seed=7, schedule=schedule) as loader:
            loader.load_state_dict(saved)
            assert loader.step == 6
            if schedule == {9: [1, 5]}:
                np.testing.assert_array_equal(next(loader)[0], expected)


def test_a_set_must_have_a_turn(folder: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="takes 100 samples|100 of a set at a time"):
        token_loader(folder, streams=100, max_epochs=1)


def test_workers_of_torch_end_where_a_set_does(folder: pathlib.Path) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    pairs = [(one, 1) for one in opened(folder, "crops", "direct")[:2]]
    options: dict[str, Any] = {"order": "blocks", "streams": 4, "block": 4, "window": 40}
    options |= {"max_epochs": [None, 1], "schedule": {0: [1, 1], 10: [1, 2]}}
    dataset = evenkeel.TokenIterableDataset(pairs, 4, BLOCK, steps=1000, **options)
    with evenkeel.TokenLoader(pairs, 4, BLOCK, **options) as loader:
        expected = [x.tolist() for x, _ in loader]
    for workers in (0, 2):
        loop = torch_data.DataLoader(dataset, batch_size=None, num_workers=workers)
        assert [x.tolist() for x, _ in loop] == expected
