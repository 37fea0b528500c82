"""order="megatron": compared with plain NumPy, and with megatron-core itself."""

import re
import struct
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel


def write(prefix, lengths, first=0):
    """A Megatron pair; token i has the value first + i."""
    lengths = np.asarray(lengths, np.int32)
    (first + np.arange(lengths.sum())).astype(np.int32).tofile(f"{prefix}.bin")
    pointers = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]) * 4
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(lengths), len(lengths) + 1))
        index.write(lengths.tobytes() + pointers.astype(np.int64).tobytes())
        index.write(np.arange(len(lengths) + 1, dtype=np.int64).tobytes())
    return str(prefix)


def reference(lengths, block, samples, seed, first=0):
    """What a GPTDataset holds, in its order: the documents of all epochs in a shuffled row, cut
    every `block` tokens, and the cuts shuffled."""
    lengths = np.asarray(lengths)
    starts = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    epochs = 1 if samples is None else -(-(samples * block + 1) // total)
    before = ((epochs - 1) * total - 1) // block
    whole = (total - 1) // block
    apart = epochs > 1 and samples - before < int(0.80 * whole)
    random = np.random.RandomState(seed)

    def shuffled(values):
        random.shuffle(values)
        return values

    def parts(one, last):
        """Shuffled together, or the last epoch apart."""
        return np.concatenate([shuffled(one), shuffled(last)]) if apart else shuffled(one)

    documents = np.arange(len(lengths))
    order = parts(np.tile(documents, epochs - apart), documents.copy())
    stream = np.concatenate([first + starts[d] + np.arange(lengths[d]) for d in order])
    count = (epochs * total - 1) // block
    numbers = parts(np.arange(before if apart else count), np.arange(before, count))
    return np.stack([stream[n * block : n * block + block + 1] for n in numbers])


def greedy(weights, size):
    """Which set each of `size` samples is from, and the how manieth of it."""
    weights = np.array(weights, np.float64) / np.sum(np.array(weights, np.float64))
    counts = np.zeros(len(weights))
    for sample in range(size):
        chosen = int(np.argmax(weights * max(sample, 1) - counts))
        yield chosen, int(counts[chosen])
        counts[chosen] += 1


def all_rows(loader):
    batches = [np.concatenate([x, y[:, -1:]], axis=1) for x, y in loader]
    return np.concatenate(batches)


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(
        lambda many: sum(many) > 60
    ),
    block=st.integers(1, 30),
    samples=st.none() | st.integers(1, 400),
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 3),
)
@settings(deadline=None, max_examples=40)
def test_samples_are_what_numpy_says(tmp_path_factory, lengths, block, samples, seed, batch):
    prefix = write(tmp_path_factory.mktemp("megatron") / "data", lengths)
    expected = reference(lengths, block, samples, seed)
    whole = len(expected) // batch * batch
    tokens = evenkeel.tokens(prefix, budget="4MiB")
    options = {"order": "megatron", "seed": seed, "samples": samples}
    if whole == 0:
        with pytest.raises(ValueError, match="less than one step"):
            evenkeel.TokenLoader(tokens, batch, block, **options)
        return
    with evenkeel.TokenLoader(tokens, batch, block, **options) as loader:
        np.testing.assert_array_equal(all_rows(loader), expected[:whole])
        loader.seek(len(loader) // 2)
        place = len(loader) // 2 * batch
        np.testing.assert_array_equal(next(loader)[0], expected[place : place + batch, :-1])
        assert loader.explain(0)[0]["start"] == expected[0, 0]


@pytest.mark.parametrize("surplus", [None, 0, 0.7])
def test_ten_sets_are_blended_as_numpy_adds(tmp_path, surplus):
    """From eight weights on, NumPy's sum is not from left to right."""
    weights = [0.1, 0.7, 1 / 3, 2.2, 0.05, 1.1, 0.9, 0.3, 0.017, 1.3]
    pairs, expected = [], []
    normal = np.array(weights) / np.sum(np.array(weights))
    sizes = [int(np.ceil(600 * weight)) for weight in normal]
    for number, weight in enumerate(weights):
        lengths = np.random.RandomState(number).randint(1, 30, 50)
        prefix = write(tmp_path / str(number), lengths, 10_000 * number)
        pairs.append((evenkeel.tokens(prefix, budget="4MiB"), weight))
        built = int(np.ceil(sizes[number] * (1.005 if surplus is None else 1 + surplus)))
        expected.append(reference(lengths, 8, built, 42, 10_000 * number))
    options = {} if surplus is None else {"surplus": surplus}
    options |= {"order": "megatron", "seed": 42, "samples": 600}
    with evenkeel.TokenLoader(pairs, 1, 8, **options) as loader:
        assert len(loader) == sum(sizes)
        wanted = [expected[chosen][index] for chosen, index in greedy(normal, sum(sizes))]
        np.testing.assert_array_equal(all_rows(loader), wanted)


def test_states_belong_to_a_number_of_samples(tmp_path):
    tokens = evenkeel.tokens(write(tmp_path / "data", [30] * 50), budget="4MiB")
    options = {"batch_size": 2, "block_size": 8, "order": "megatron", "seed": 3}
    with evenkeel.TokenLoader(tokens, steps=20, **options) as loader:
        loader.seek(5)
        saved, expected = loader.state_dict(), np.array(next(loader)[0])
    with evenkeel.TokenLoader(tokens, samples=40, **options) as loader:
        loader.load_state_dict(saved)
        np.testing.assert_array_equal(next(loader)[0], expected)
    with evenkeel.TokenLoader(tokens, samples=400, **options) as loader:
        with pytest.raises(ValueError, match="samples=40"):
            loader.load_state_dict(saved)


def test_workers_take_the_same_samples(tmp_path):
    torch_data = pytest.importorskip("torch.utils.data")
    tokens = evenkeel.tokens(write(tmp_path / "data", [30] * 50), budget="4MiB")
    options = {"batch_size": 2, "block_size": 8, "order": "megatron", "steps": 10}
    dataset = evenkeel.TokenIterableDataset(tokens, **options)
    found = [x.tolist() for x, _ in torch_data.DataLoader(dataset, batch_size=None)]
    with evenkeel.TokenLoader(tokens, **options) as loader:
        assert found == [x.tolist() for x, _ in loader]
    dataset = evenkeel.TokenIterableDataset(tokens, **{**options, "steps": np.int8(100)})
    assert len([*dataset]) == 100  # 100 * 2 is no int8
    dataset = evenkeel.TokenIterableDataset(tokens, **{**options, "steps": None})
    every = [x.tolist() for x, _ in dataset]
    dataset.set_epoch(1)  # there is no other order
    assert [x.tolist() for x, _ in dataset] == every
    assert len(every) == len(dataset) == 1499 // 8 // 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1}, "has a number of samples, not of epochs"),
        ({"documents": "mask"}, 'takes no documents="mask"'),
        ({"seed": 2**32}, "below 2^32"),
        ({"samples": 0}, "samples must be 1 or more"),
        ({"surplus": -0.5}, "the surplus must be 0 or more; got -0.5"),
        ({"surplus": -1e-9}, "the surplus must be 0 or more; got -1e-09"),
        ({"surplus": float("nan")}, "the surplus must be 0 or more; got nan"),
        ({"order": "shuffled", "samples": 9}, 'samples belongs to order="megatron"'),
        ({"block_size": 10**6}, "take a smaller block_size"),
        ({"batch_size": 10**4}, "less than one step"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, message):
    tokens = evenkeel.tokens(write(tmp_path / "data", [30] * 50), budget="4MiB")
    given_options = {"batch_size": 2, "block_size": 8, "order": "megatron", **options}
    with pytest.raises(ValueError, match=re.escape(message)):
        evenkeel.TokenLoader(tokens, **given_options)


def test_other_files_are_refused(tmp_path):
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "plain.bin")
    tokens = evenkeel.tokens(tmp_path / "plain.bin", budget="4MiB")
    with pytest.raises(ValueError, match=r"come from Megatron's \.idx"):
        evenkeel.TokenLoader(tokens, 2, 8, order="megatron")
    tokens = evenkeel.tokens(write(tmp_path / "data", [30] * 50), budget="4MiB").slice(7)
    with pytest.raises(ValueError, match="does not begin and end with a document"):
        evenkeel.TokenLoader(tokens, 2, 8, order="megatron")
    tokens = evenkeel.tokens(tmp_path / "data", budget="1MiB")
    with pytest.raises(MemoryError, match="Megatron's order"):
        evenkeel.TokenLoader(tokens, 2, 8, order="megatron", samples=10**6)


# --- compared with megatron-core itself


@pytest.fixture(scope="module")
def build():
    """Makes megatron-core's own data sets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reason = "megatron-core is not installed"
        gpt = pytest.importorskip("megatron.core.datasets.gpt_dataset", reason=reason)
        builder = pytest.importorskip("megatron.core.datasets.blended_megatron_dataset_builder")

    class Tokenizer:
        vocab_size, eod, pad, unique_identifiers = 100_000, 0, -1, {}

    def made(prefixes, weights, sizes, seed, block, split="1,0,0"):
        config = gpt.GPTDatasetConfig(
            random_seed=seed,
            sequence_length=block,
            blend=(prefixes, weights),
            split=split,
            tokenizer=Tokenizer(),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        return builder.BlendedMegatronDatasetBuilder(
            gpt.GPTDataset, sizes, lambda: True, config
        ).build()

    return made


def same_rows(loader, dataset):
    count = min(len(dataset), len(loader))
    assert len(loader) == len(dataset)
    rows = all_rows(loader)
    for number in range(count):
        sample = dataset[number]
        np.testing.assert_array_equal(rows[number, :-1], sample["tokens"])
        np.testing.assert_array_equal(rows[number, 1:], sample["labels"])


@pytest.mark.parametrize(
    ("seed", "block", "samples"),
    [(1234, 32, None), (1, 32, 100), (7, 15, 900), (2**32 - 1, 64, 170)],
)
def test_samples_are_those_of_megatron_core(build, tmp_path, seed, block, samples):
    lengths = np.random.RandomState(5).randint(0, 60, 200)
    prefix = write(tmp_path / "data", lengths)
    (dataset, _, _) = build([prefix], None, [samples, None, None], seed, block)
    tokens = evenkeel.tokens(prefix, budget="8MiB")
    options = {"order": "megatron", "seed": seed, "samples": samples}
    with evenkeel.TokenLoader(tokens, 1, block, **options) as loader:
        same_rows(loader, dataset)


@pytest.mark.parametrize(
    ("weights", "samples"),
    [([3.0, 1.0, 0.5], 700), ([0.2, 0.3, 0.5], 100), (None, None), (None, 150)],
)
def test_blends_are_those_of_megatron_core(build, tmp_path, weights, samples):
    prefixes = [
        write(tmp_path / str(n), np.random.RandomState(n).randint(1, 60, 80 + 40 * n), 20_000 * n)
        for n in range(3)
    ]
    sizes = [samples, 0, 0] if weights else [samples, None, None]
    (dataset, *_) = build(prefixes, weights, sizes, 1234, 16)
    sets = [evenkeel.tokens(prefix, budget="8MiB") for prefix in prefixes]
    data = [*zip(sets, weights)] if weights else sets
    options = {"order": "megatron", "seed": 1234, "samples": samples}
    with evenkeel.TokenLoader(data, 1, 16, **options) as loader:
        same_rows(loader, dataset)


@pytest.mark.parametrize("split", ["969,30,1", "80,15,5", "0.5,0.25,0.25", "8,0,2"])
def test_splits_are_those_of_megatron_core(build, tmp_path, split):
    prefix = write(tmp_path / "data", np.random.RandomState(5).randint(1, 60, 211))
    datasets = build([prefix], None, [None, None, None], 1234, 16, split)
    for part, dataset in zip(
        evenkeel.tokens(prefix, budget="8MiB").megatron_split(split), datasets
    ):
        if part is None:
            assert dataset is None or len(dataset.indices) == 0
            continue
        if len(part) < 17:
            continue
        with evenkeel.TokenLoader(part, 1, 16, order="megatron", seed=1234) as loader:
            same_rows(loader, dataset)
