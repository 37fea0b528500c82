"""TokenLoader(order="blocks"), against docs/orders.md in plain Python."""

import importlib.util
import itertools
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel

pytestmark = pytest.mark.filterwarnings("ignore::evenkeel.ShuffleWarning")

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location(
    "orders_reference", ROOT / "tests" / "orders_reference_test.py"
)
orders = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(orders)


def crop_start(tokens, size, seed, epoch, position, block, window, streams):
    """Of the crop at a position of an epoch."""
    phase_seed = seed ^ 0x70686173655F6F66
    phase = orders.shuffled(size, phase_seed, epoch // size, epoch % size)
    crops = (tokens - size) // size
    return phase + size * orders.blocks(crops, seed, epoch, position, block, window, streams)


def expected_starts(tokens, size, seed, step, global_batch, **blocks):
    """Of the crops of all ranks at a step. An epoch ends with a whole step."""
    epoch, step = divmod(step, (tokens - size) // size // global_batch)
    return [
        crop_start(tokens, size, seed, epoch, step * global_batch + i, **blocks)
        for i in range(global_batch)
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    name = tmp_path_factory.mktemp("tokens") / "train.bin"
    (np.arange(60_000) % 65_536).astype("uint16").tofile(name)
    return name


def direct(path, budget="8MiB", **options):
    return evenkeel.tokens(path, budget=budget, engine="direct", **options)


@settings(max_examples=12, deadline=None)
@given(
    tokens=st.integers(2_000, 60_000),
    size=st.sampled_from([1, 7, 16, 33]),
    seed=st.integers(0, 2**64 - 1),
    block=st.integers(1, 40),
    window=st.integers(20, 60),
    batch=st.integers(1, 8),
    world=st.sampled_from([1, 2, 3, 6]),
    first=st.integers(0, 60),
    stride=st.sampled_from([1, 2, 3]),
)
def test_batches_are_those_of_the_prose(
    path, tokens, size, seed, block, window, batch, world, first, stride
):
    window = max(window, batch * world)
    train = direct(path, stop=tokens)
    numbers = {"block": block, "window": window, "streams": 12}
    parts = [
        evenkeel.TokenLoader(
            train,
            batch,
            size,
            order="blocks",
            seed=seed,
            rank=rank,
            world=world,
            block=block,
            window=block * window,
            streams=12,
            stride=stride,
            phase=first % stride,
            dtype="stored",
        )
        for rank in range(world)
    ]
    for step in range(first, first + 4 * stride, stride):
        starts = expected_starts(tokens, size, seed, step, batch * world, **numbers)
        for rank, part in enumerate(parts):
            if step == first:
                part.seek(first)
            mine = starts[rank::world]
            assert [row["start"] for row in part.explain(step)] == mine
            x, y = next(part)
            assert (x[:, 0] == np.array(mine) % 65_536).all()
            assert (y[:, -1] == (np.array(mine) + size) % 65_536).all()
    for part in parts:
        part.close()


def chairman(shares):
    """The set of each turn, and how many turns it had before: Tijdeman's rule, with fractions of
    the sum of the shares."""
    period, taken = sum(shares), [0] * len(shares)
    slack = max(2 * len(shares), 4) - 2
    for turn in itertools.count(1):
        due = []
        for i, share in enumerate(shares):
            lag = (share * turn - taken[i] * period) * slack
            if lag >= period:
                due.append(((period * slack - period - lag) / share, i))
        _, chosen = min(due)
        yield chosen, taken[chosen]
        taken[chosen] += 1


@pytest.mark.parametrize(("world", "workers"), [(1, 1), (2, 3), (4, 1)])
def test_a_mixture_takes_turns_of_one_set(path, world, workers):
    streams, size, seed = 4, 16, 11
    sets = [direct(path, stop=4_000), direct(path, start=20_000, stop=26_000)]
    counts, seeds = [len(one) for one in sets], [seed, seed ^ 0x9E3779B97F4A7C15]
    numbers = {"block": 8, "window": 16, "streams": streams}
    expected = []
    for chosen, before in itertools.islice(chairman([2, 3]), 240):
        crops = (counts[chosen] - size) // size
        crops -= crops % streams
        for stream in range(streams):
            epoch, position = divmod(before * streams + stream, crops)
            start = crop_start(counts[chosen], size, seeds[chosen], epoch, position, **numbers)
            expected.append((chosen, start))
    global_batch = 24
    for rank in range(world):
        for worker in range(workers):
            options = dict(order="blocks", seed=seed, rank=rank, world=world, stride=workers)
            loader = evenkeel.TokenLoader(
                list(zip(sets, (2, 3))),
                global_batch // world,
                size,
                **options,
                block=8,
                window=128,
                streams=streams,
                phase=worker,
            )
            for step in range(worker, 36, workers):
                mine = expected[step * global_batch :][:global_batch][rank::world]
                assert [(row["set"], row["start"]) for row in loader.explain(step)] == mine
                first = [start + 20_000 * which for which, start in mine]
                assert next(loader)[0][:, 0].tolist() == first
            loader.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_of_torch_give_the_same_batches(path, workers):
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    options = dict(order="blocks", seed=3, block=8, window=800)
    tokens = evenkeel.TokenIterableDataset(direct(path), 8, 16, steps=20, **options)
    rows = np.arange(12_000, dtype="int32").reshape(4_000, 3)
    np.save(path.parent / "rows.npy", rows)
    array = evenkeel.open(path.parent / "rows.npy", budget="8MiB", engine="direct")
    table = evenkeel.RowIterableDataset(array, 150, **options)
    for dataset in (tokens, table):
        alone = list(DataLoader(dataset, batch_size=None))
        shared = list(DataLoader(dataset, batch_size=None, num_workers=workers))
        assert len(alone) == len(shared) > 0
        for mine, theirs in zip(alone, shared):
            assert all(map(torch.equal, mine, theirs))


def test_states_take_their_blocks_along(path):
    made = dict(batch_size=8, block_size=16, order="blocks", seed=2)
    loader = evenkeel.TokenLoader(direct(path), **made, block=16, window=1600)
    for _ in range(5):
        next(loader)
    state = loader.state_dict()
    expected = next(loader)[0]
    other = evenkeel.TokenLoader(direct(path, "4MiB"), **made)
    other.load_state_dict(state)
    assert other.blocks_in_use == loader.blocks_in_use == (16, 100, 64)
    assert (next(other)[0] == expected).all()
    told = evenkeel.TokenLoader(direct(path), **made, block=20, window=2000)
    with pytest.raises(ValueError, match="the state has block 16, this loader has 20"):
        told.load_state_dict(state)
    with pytest.raises(ValueError, match=r"belong to order=.blocks"):
        evenkeel.TokenLoader(direct(path), 8, 16, block=16)


def test_it_describes_itself_and_warns_of_few_blocks(path):
    with evenkeel.TokenLoader(
        direct(path), 8, 16, order="blocks", block="512B", window="50KiB"
    ) as loader:
        text = loader.describe()
        assert "blocks: 16 crops (512 B); windows: 100 blocks (1,600 crops" in text
        assert "8 x 16 tokens" in text
        assert "the share of each kind in a batch of 8 crops" in text
    assert loader.describe() == "loader: closed"
    with pytest.warns(evenkeel.ShuffleWarning, match="a window of 10 blocks") as caught:
        evenkeel.TokenLoader(direct(path), 8, 16, order="blocks", block=16, window=160).close()
    assert caught[0].filename == __file__


def test_documents_can_be_masked(path):
    tokens = np.arange(6_000, dtype="uint16") % 37
    tokens.tofile(path.parent / "documents.bin")
    opened = evenkeel.tokens(path.parent / "documents.bin", budget="8MiB", engine="direct")
    made = dict(batch_size=10, block_size=16, seed=4, epochs=1, documents="mask", eos=0)
    found = {}
    for order in ("covering", "blocks"):
        rows = {}
        with evenkeel.TokenLoader(opened, **made, order=order) as loader:
            for step, batch in enumerate(loader):
                for i, row in enumerate(loader.explain(step)):
                    rows[row["start"]] = [*batch.x[i].tolist(), *batch.position_ids[i].tolist()]
        found[order] = rows
    assert len(found["blocks"]) == len(found["covering"]) == 370
    common = found["blocks"].keys() & found["covering"].keys()  # an epoch leaves out a few
    assert len(common) > 360
    assert all(found["blocks"][start] == found["covering"][start] for start in common)
