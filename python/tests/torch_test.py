"""With torch: tensors, DataLoader workers, several processes."""

import contextlib
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from token_help import COUNT

import evenkeel

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.utils.data import DataLoader  # noqa: E402


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, b) for p, q in zip(one, other) for a, b in zip(p, q)
    )


def test_xy_is_nanogpts_get_batch_for_the_same_draws(stored, train):
    block_size = 100
    torch.manual_seed(1337)
    data = np.memmap(stored, dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (12,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix]
    )
    got = train.xy(ix, block_size)
    assert torch.equal(got[0], x) and torch.equal(got[1], y)
    out = torch.zeros_like(x), torch.zeros_like(y)
    assert train.xy(ix, block_size, out=out)[0] is out[0]
    assert torch.equal(out[1], y)


def test_with_a_device_batches_are_tensors(train):
    arrays = list(evenkeel.TokenLoader(train, 4, 64, seed=1, steps=9))
    tensors = list(evenkeel.TokenLoader(train, 4, 64, seed=1, steps=9, device="cpu"))
    assert tensors[0][0].dtype == torch.int64
    assert same(tensors, [tuple(map(torch.from_numpy, pair)) for pair in arrays])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64", "uint64"])
def test_stored_dtypes_become_tensors(tmp_path, dtype):
    tokens = np.arange(99).astype(dtype)
    np.save(tmp_path / "tokens.npy", tokens)
    train = evenkeel.tokens(tmp_path / "tokens.npy", budget="4MiB")
    options = {"order": "shuffled", "dtype": "stored"}
    with evenkeel.TokenLoader(train, 1, 98, **options) as arrays:
        assert torch.equal(torch.from_numpy(next(arrays)[0][0]), torch.from_numpy(tokens[:98]))
    with evenkeel.TokenLoader(train, 1, 98, device="cpu", **options) as tensors:
        assert torch.equal(next(tensors)[1][0], torch.from_numpy(tokens[1:]))


def test_states_go_through_torch_save(tmp_path, train):
    loader = evenkeel.TokenLoader(train, 4, 64, seed=1, device="cpu")
    next(loader)
    torch.save({"loader": loader.state_dict()}, tmp_path / "checkpoint.pt")
    wanted = [next(loader) for _ in range(3)]
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    again = evenkeel.TokenLoader(train, 4, 64, seed=1, device="cpu")
    again.load_state_dict(saved["loader"])
    assert same([next(again) for _ in range(3)], wanted)


WORKERS = [(0, None), (1, "fork"), (3, "fork"), (1, "spawn")]  # a spawned one imports torch first


@pytest.mark.parametrize(("workers", "context"), WORKERS)
def test_iterable_batches_are_the_loaders_whatever_the_workers(train, workers, context):
    options = {"order": "shuffled", "seed": 3}
    wanted = evenkeel.TokenLoader(train, 4, 64, device="cpu", steps=22, **options)
    wanted = list(wanted)
    data = evenkeel.TokenIterableDataset(train, 4, 64, steps=11, **options)
    loader = DataLoader(
        data,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=context,
        persistent_workers=workers > 0,
    )
    assert len(loader) == 11
    assert same(list(loader), wanted[:11])
    assert same(list(loader), wanted[:11])  # the same epoch again
    data.set_epoch(1)
    assert same(list(loader), wanted[11:])


@pytest.mark.parametrize(("workers", "context"), WORKERS)
def test_map_style_blocks_are_right_in_workers(stored, train, workers, context):
    blocks = evenkeel.TokenDataset(train, 50)
    assert len(blocks) == (COUNT - 1) // 50
    loader = DataLoader(
        blocks,
        batch_size=16,
        num_workers=workers,
        multiprocessing_context=context,
        sampler=range(0, 1600, 10),
    )
    xs = torch.cat([x for x, _ in loader])
    wanted = torch.stack([torch.arange(i * 50, i * 50 + 50) % 65536 for i in range(0, 1600, 10)])
    assert torch.equal(xs, wanted)


def test_blocks_by_number(train):
    blocks = evenkeel.TokenDataset(train, 50)
    x, y = blocks[3]
    assert x.tolist() == list(range(150, 200)) and torch.equal(y[:-1], x[1:])
    assert torch.equal(blocks[-1][0], blocks[len(blocks) - 1][0])
    with pytest.raises(IndexError):
        blocks[len(blocks)]
    with pytest.raises(ValueError, match="too few for a block"):
        evenkeel.TokenDataset(train, COUNT)


def test_an_iteration_can_be_resumed_in_the_middle(train):
    data = evenkeel.TokenIterableDataset(train, 4, 64, seed=9, steps=10)
    going = iter(data)
    first = [next(going) for _ in range(4)]
    state = data.state_dict()
    rest = list(going)
    again = evenkeel.TokenIterableDataset(train, 4, 64, seed=9, steps=10)
    again.load_state_dict(state)
    assert same(list(again), rest)
    assert same([*first, *rest], list(data))
    other = evenkeel.TokenIterableDataset(train, 4, 64, seed=8, steps=10)
    with pytest.raises(ValueError, match="seed"):
        other.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_stateful_loader_resumes_it(train, workers):
    stateful = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed"
    ).StatefulDataLoader

    def loader():
        data = evenkeel.TokenIterableDataset(train, 4, 64, seed=9, steps=10)
        return stateful(data, batch_size=None, num_workers=workers)

    whole = list(loader())
    half = loader()
    going = iter(half)
    first = [next(going) for _ in range(5)]
    state = half.state_dict()
    again = loader()
    again.load_state_dict(state)
    assert same([*first, *again], whole)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_have_the_budget_to_themselves(stored, context):
    """Also while a loader of the parent holds most of it."""
    train = evenkeel.tokens(stored, budget="16MiB", engine="direct")
    options = {"batch_size": 256, "block_size": 512, "seed": 3}
    with evenkeel.TokenLoader(train, device="cpu", **options) as loader:
        wanted = [next(loader)]
        assert train.budget.in_use > 8 << 20
        data = evenkeel.TokenIterableDataset(train, steps=4, **options)
        workers = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=context)
        got = list(workers)
        wanted += [next(loader) for _ in range(3)]
    assert same(got, wanted)


TOGETHER = """
    import sys
    import torch, torch.distributed as distributed
    import evenkeel
    distributed.init_process_group("gloo")
    train = evenkeel.tokens(sys.argv[1], budget="32MiB/node", engine="direct")
    assert train.budget.limit == 16 << 20
    loader = evenkeel.TokenLoader(train, 4, 64, order="shuffled", seed=2, device="cpu")
    assert (loader.rank, loader.world) == (distributed.get_rank(), 2)
    for step in range(5):
        x, _ = next(loader)
        parts = [torch.empty_like(x) for _ in range(2)]
        distributed.all_gather(parts, x)
        if loader.rank == 0:
            alone = evenkeel.TokenLoader(train, 8, 64, order="shuffled", seed=2, device="cpu",
                                         rank=0, world=1)
            alone.seek(step)
            assert torch.equal(torch.cat(parts), next(alone)[0]), step
            alone.close()
    loader.close()
    distributed.destroy_process_group()
"""


def test_two_processes_of_torchrun_share_the_batches(tmp_path, stored):
    program = tmp_path / "together.py"
    program.write_text(textwrap.dedent(TOGETHER))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            str(program),
            str(stored),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_batch_for_a_gpu_survives_a_signal_handler_that_raises(monkeypatch, broken):
    """Without a GPU: streams and events do nothing, and the handler raises in one of them."""
    from evenkeel import _device

    class Tick(Exception):
        pass

    calls = 0

    class Stream:
        def wait_event(self, event):
            nonlocal calls
            calls += 1
            if calls == broken:
                raise Tick

    class Event:
        def record(self, stream):
            pass

        def synchronize(self):
            pass

    class Reader:
        next_step = 0
        taken_step = property(lambda self: self.next_step - 1)
        taken_stands, delivering_here = True, False

        def begin_delivery(self):
            pass

        def take(self):
            self.next_step += 1
            return buffers[self.next_step - 1] if self.next_step <= len(buffers) else None

    buffers = [(np.full(3, n), np.full(3, n + 1)) for n in range(5)]
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory, **k: empty(*a, **k))
    ring = _device.Ring(torch.device("cpu"), [((1, 3), np.dtype("i8"))] * 2, 1, 2)
    ring._pinned = {one.ctypes.data: torch.from_numpy(one) for pair in buffers for one in pair}
    reader, seen = Reader(), []
    while len(seen) < len(buffers):
        assert ring.step(reader) == len(seen)
        try:
            seen.append(int(ring.next(reader)[0][0]))
        except Tick:
            pass
    assert seen == [0, 1, 2, 3, 4] and ring.next(reader) is None and calls >= broken


@pytest.fixture
def rows(folder):
    np.save("features.npy", np.arange(515, dtype=np.float32).reshape(103, 5))
    np.save("labels.npy", np.arange(103))
    budget = evenkeel.Budget("16MiB")
    return {name: evenkeel.open(f"{name}.npy", budget=budget) for name in ("features", "labels")}


def test_batches_of_rows_are_tensors(rows):
    for batch in evenkeel.Loader(rows, 10, device="cpu"):
        assert batch["features"].dtype == torch.float32
        assert torch.equal(batch["features"][:, 0].long() // 5, batch["labels"])
    np.save("dates.npy", np.arange("2000-01", "2004-03", dtype="datetime64[M]"))
    with pytest.raises(TypeError, match="torch has no tensors of datetime64"):
        evenkeel.Loader(evenkeel.open("dates.npy"), 10, device="cpu")
    with pytest.raises(ValueError, match="torch sees no GPU here"):
        evenkeel.Loader(rows, 10, device="cuda")


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_workers_take_turns_at_batches_of_rows(rows, workers):
    options = {"batch_size": 10, "seed": 3}
    with evenkeel.Loader(rows, device="cpu", **options) as loader:
        epochs = [[batch["labels"].tolist() for batch in loader] for _ in range(2)]
    data = evenkeel.RowIterableDataset(rows, **options)
    assert len(data) == 11
    data = pickle.loads(pickle.dumps(data))  # as spawned workers receive it
    batches = DataLoader(data, batch_size=None, num_workers=workers)
    assert [batch["labels"].tolist() for batch in batches] == epochs[0]
    data.set_epoch(1)
    assert [batch["labels"].tolist() for batch in batches] == epochs[1]


def test_stateful_data_loader_resumes_rows(rows):
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="no torchdata")

    def loader():
        data = evenkeel.RowIterableDataset(rows, 10, seed=3)
        return stateful.StatefulDataLoader(data, batch_size=None, num_workers=2)

    whole = [batch["labels"].tolist() for batch in loader()]
    half, first = loader(), []
    for batch in half:
        first.append(batch["labels"].tolist())
        if len(first) == 4:
            break
    again = loader()
    again.load_state_dict(half.state_dict())
    assert first + [batch["labels"].tolist() for batch in again] == whole
    other = evenkeel.RowIterableDataset(rows["labels"], 10, seed=3)
    with pytest.raises(ValueError, match="its data is"):
        other.load_state_dict({**evenkeel.Loader(rows, 10, seed=3).state_dict(), "next": 1})


@pytest.fixture
def no_gpu(monkeypatch):
    """device="cuda" without a GPU: streams and events do nothing, and the memory is not pinned."""
    from evenkeel import _device

    class Nothing:
        def __init__(self, *args):
            pass

        def __getattr__(self, name):
            return lambda *args: None

    for name in ("Stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", Nothing)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: empty(*a, **k))
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *a, **k: to(self.clone(), *a, **k))
    cpu = torch.device("cpu")
    monkeypatch.setattr(_device, "ring_for", lambda device, *rest: _device.Ring(cpu, *rest))


@pytest.mark.usefixtures("no_gpu")
def test_a_ring_holds_several_fields_and_a_short_last_batch(rows):
    loader = evenkeel.Loader(rows, 10, seed=3, device="cuda", transform=lambda batch: [batch])
    expected = list(evenkeel.Loader(rows, 10, seed=3, device=None))
    for _ in range(2):
        loader.seek(0)
        got = list(loader)
        assert len(got) == 11
        for (batch,), wanted in zip(got, expected):
            assert batch.keys() == wanted.keys()
            assert all(np.array_equal(batch[name].numpy(), wanted[name]) for name in batch)
    loader.close()


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("steps", [1, 2, 8])
def test_loops_follow_one_another_on_a_gpu(rows, steps):
    labels = rows["labels"]
    with evenkeel.Loader(labels, 10, seed=3, steps=steps) as plain:
        expected = [batch.tolist() for batch in plain]
    with evenkeel.Loader(labels, 10, seed=3, steps=steps, device="cuda") as loader:
        for _ in range(4):
            assert [batch.tolist() for batch in loader] == expected


@pytest.mark.usefixtures("no_gpu")
def test_a_loop_that_was_left_before_its_last_batch_goes_on(rows):
    with evenkeel.Loader(rows["labels"], 10, seed=3, steps=4, device="cuda") as loader:
        batches = iter(loader)
        first = [next(batches).tolist() for _ in range(3)]
        rest = [batch.tolist() for batch in loader]
        assert len(rest) == 1
        assert [batch.tolist() for batch in loader] == first + rest


@pytest.mark.usefixtures("no_gpu")
def test_a_signal_handler_may_move_and_close_a_loader_for_a_gpu(rows, monkeypatch):
    """The handler runs while its own thread is in the ring: there it waits for a copy."""
    calls = []

    class Stream:
        def __init__(self, *args):
            pass

        def wait_event(self, event):
            if calls:
                calls.pop()()

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    options = {"batch_size": 10, "seed": 3}
    with evenkeel.Loader(rows["labels"], **options) as plain:
        expected = [batch.tolist() for batch in plain]
    loader = evenkeel.Loader(rows["labels"], device="cuda", **options)
    assert next(loader).tolist() == expected[0]
    calls.append(lambda: loader.seek(6))
    assert next(loader).tolist() == expected[1]
    assert loader.step == 6
    assert [batch.tolist() for batch in loader] == expected[6:]
    calls.append(loader.close)
    loader.seek(0)
    assert next(loader).tolist() == expected[0]
    with pytest.raises(ValueError, match="used after close"):
        next(loader)


@pytest.mark.usefixtures("no_gpu")
def test_a_batch_for_a_gpu_that_did_not_arrive_is_given_again(rows):
    with evenkeel.Loader(rows["labels"], 10, seed=3, steps=4) as plain:
        expected = [batch.tolist() for batch in plain]
    loader = evenkeel.Loader(rows["labels"], 10, seed=3, steps=4, device="cuda")
    deliver, count = loader.deliver, 0

    def interrupted(reader):
        nonlocal count
        batch = deliver(reader)
        count += 1
        if count % 2:
            raise KeyError
        return batch

    loader.deliver = interrupted
    for _ in range(2):
        seen = []
        while len(seen) < 4:
            assert loader.step == len(seen) or len(seen) == 0
            try:
                seen += [next(iter(loader)).tolist()]
            except KeyError:
                pass
        assert seen == expected
    loader.close()


def test_devices_that_are_no_gpu_of_cuda_are_refused(rows):
    with pytest.raises(ValueError, match="the CPU or to a GPU of CUDA; got device 'meta'"):
        evenkeel.Loader(rows, 10, device="meta")


def test_numbers_of_blocks_and_epochs_are_whole(train):
    blocks = evenkeel.TokenDataset(train, np.uint16(64))
    assert len(blocks) == (len(train) - 1) // 64
    for wrong in (1.5, True):
        with pytest.raises(IndexError, match="numbered by integers"):
            blocks[wrong]
    dataset = evenkeel.TokenIterableDataset(train, 4, 64, steps=3)
    with pytest.raises(TypeError, match="epoch must be a whole number; got 1.5"):
        dataset.set_epoch(1.5)
    with pytest.raises(ValueError, match="epoch must be 0 or more"):
        dataset.set_epoch(-1)
