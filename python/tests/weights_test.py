"""Model weights: against safetensors' and gguf's own writers, and files that are wrong."""

import json
import mmap
import pickle
import struct
import tracemalloc

import numpy as np
import pytest

import evenkeel

torch = pytest.importorskip("torch")
save_file = pytest.importorskip("safetensors.torch").save_file


def same(a, b):
    """Bit for bit: NaNs and types without comparisons, too."""
    assert a.shape == b.shape and a.dtype == b.dtype
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def some(dtype, *shape):
    count = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    random = np.random.default_rng(count).integers(0, 2 if dtype is torch.bool else 256, count)
    return torch.from_numpy(random.astype(np.uint8)).view(dtype).reshape(shape)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Every dtype, no dimensions, no elements, small and large tensors at odd places."""
    state = {f"types.{str(dtype)[6:]}": some(dtype, 3, 8) for dtype in DTYPES}
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.empty(0, 7)
    state["odd"] = some(torch.uint8, 4099)
    state["layers.0.weight"] = some(torch.float32, 600, 512)
    state["layers.1.weight"] = some(torch.bfloat16, 1024, 1024)
    state["layers.10.weight"] = some(torch.uint8, (1 << 20) + 1)
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(state, path, metadata={"format": "pt"})
    return path, state


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("engine", ["auto", "direct", "read"])
def test_load_gives_what_was_saved(model, engine, buffers, monkeypatch):
    """In place, and through buffers as where there are many processors."""
    from evenkeel import _load

    monkeypatch.setattr(_load, "_copying_pays", lambda weights: buffers)
    path, state = model
    loaded = evenkeel.load_safetensors(path, budget="16MiB", engine=engine)
    assert set(loaded) == set(state)
    assert all(same(loaded[name], state[name]) for name in state)


def test_cold_files_go_through_buffers_where_there_are_many_processors(model, monkeypatch):
    from evenkeel import _core, _load

    path, _ = model
    with evenkeel.open(path) as weights:
        core = weights._weights
        for processors, cached, pays in [(7, 0, False), (8, 0, True), (8, 1 << 40, False)]:
            monkeypatch.setattr(_load.os, "sched_getaffinity", lambda _, n=processors: range(n))
            monkeypatch.setattr(_core, "cached_bytes", lambda _, n=cached: n)
            assert _load._copying_pays(core) == pays


def test_loaded_tensors_can_be_written_and_outlive_the_file(model):
    path, state = model
    loaded = evenkeel.load_safetensors(path, only="layers.*")
    loaded["layers.1.weight"].zero_()
    assert same(evenkeel.load_safetensors(path)["layers.1.weight"], state["layers.1.weight"])


def test_a_mapping_of_arrays(model):
    path, state = model
    with evenkeel.open(path, budget="16MiB") as weights:
        assert isinstance(weights, evenkeel.Weights)
        assert len(weights) == len(state) and set(weights) == set(state)
        assert "scalar" in weights and "nothing" not in weights
        assert weights.metadata == {"format": "pt"}
        assert weights.format == "safetensors"
        assert weights.nbytes == sum(t.numel() * t.element_size() for t in state.values())
        assert weights.tensors["layers.1.weight"].type == "BF16"
        array = weights["layers.0.weight"]
        assert array.shape == (600, 512)
        assert np.array_equal(
            array[100:200:7, 3].view("uint32"),
            state["layers.0.weight"][100:200:7, 3].numpy().view("uint32"),
        )
        assert weights["scalar"][()] == 2.5
        assert weights["empty"].shape == (0, 7)
        assert weights["types.int64"][-1].tolist() == state["types.int64"][-1].tolist()
        assert "tensors" in repr(weights) and "\n" not in repr(weights)
        again = pickle.loads(pickle.dumps(weights))
        assert set(again) == set(weights)
    with pytest.raises(ValueError, match="closed"):
        weights.load()


def test_only(model):
    path, state = model
    load = evenkeel.load_safetensors
    assert set(load(path, only="layers.1*")) == {"layers.1.weight", "layers.10.weight"}
    assert set(load(path, only=["scalar", "layers.0.*"])) == {"scalar", "layers.0.weight"}
    assert set(load(path, only=lambda name: name == "odd")) == {"odd"}
    with pytest.raises(KeyError, match="no tensor matches 'lay.rz"):
        load(path, only="lay?rz*")
    with pytest.raises(KeyError, match="did you mean"):
        load(path, only="layers.0.wieght")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("world", [1, 2, 8])
def test_slices(model, axis, world):
    path, state = model
    for name in ("layers.0.weight", "layers.1.weight", "types.float16"):
        if state[name].shape[axis] % world:
            continue
        for rank in range(world):
            part = evenkeel.load_safetensors(
                path, only=name, slice={"*": (axis, rank, world)}, budget="8MiB"
            )[name]
            assert same(part, state[name].chunk(world, axis)[rank].contiguous())


def test_slices_of_numpys_integers(tmp_path):
    """Products of small integers of NumPy overflow."""
    state = {"t": some(torch.uint8, 4096, 100)}
    save_file(state, tmp_path / "m.safetensors")
    small = (np.int8(0), np.uint8(3), np.uint8(8))
    part = evenkeel.load_safetensors(tmp_path / "m.safetensors", slice={"*": small})["t"]
    assert same(part, state["t"].chunk(8)[3])


def test_slices_that_cannot_be(model):
    path, _ = model
    for share, message in [
        ((0, 0, 7), "cannot be divided by 7"),
        ((0, 3, 3), "rank 3 is not below world 3"),
        ((2, 0, 2), "has no axis 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            evenkeel.load_safetensors(path, only="layers.1.weight", slice={"*": share})
    with pytest.raises(KeyError, match="of slice"):
        evenkeel.load_safetensors(path, only="odd", slice={"layers*": (0, 0, 2)})


def test_into_tensors_that_exist(model):
    path, state = model
    mine = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    given = evenkeel.load_safetensors(path, into=mine, budget="16MiB")
    assert all(given[name] is mine[name] and same(mine[name], state[name]) for name in state)
    with pytest.raises(KeyError, match="1 of the 1 tensors of `into` are not in the files"):
        evenkeel.load_safetensors(path, into={"other": torch.empty(1)})
    with pytest.raises(ValueError, match=r"\(2, 3\) of torch.float32, but the file has"):
        evenkeel.load_safetensors(path, into={"odd": torch.empty(2, 3)})
    transposed = torch.empty(512, 600).t()
    with pytest.raises(ValueError, match="not contiguous"):
        evenkeel.load_safetensors(path, into={"layers.0.weight": transposed})


def test_into_a_model(tmp_path):
    network = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    path = tmp_path / "m.safetensors"
    save_file(network.state_dict(), path)
    other = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    evenkeel.load_safetensors(path, into=other.state_dict())
    x = torch.randn(3, 8)
    assert torch.equal(network(x), other(x))


def test_shards(tmp_path):
    state = {f"w{i}": some(torch.float32, 100 + i, 10) for i in range(12)}
    files = {}
    for shard in range(3):
        names = [name for i, name in enumerate(state) if i % 3 == shard]
        file = f"model-{shard + 1:05}-of-00003.safetensors"
        save_file({name: state[name] for name in names}, tmp_path / file)
        files.update(dict.fromkeys(names, file))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": files}))
    for path in (index, tmp_path, tmp_path / "model-*.safetensors"):
        loaded = evenkeel.load_safetensors(path, budget="8MiB")
        assert all(same(loaded[name], state[name]) for name in state)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002"):
        evenkeel.load_safetensors(index)


def replay(path, slices, size, number, budget="16MiB"):
    """What goes to a GPU, through buffers that no GPU needs."""
    from evenkeel import _core, _load, _load_buffers

    with evenkeel.open(path, budget=budget) as weights:
        wanted = [_load._wanted(t, slices, "safetensors") for t in weights.tensors.values()]
        wanted = [tensor for tensor in wanted if tensor.bytes > 0]
        buffers = torch.from_numpy(_core.allocate(0, size * number, 4096)).split(size)
        alignment = weights._weights.alignment
        runs, copies = _load_buffers._fill_plan(wanted, buffers, size, alignment)
        result = {t.name: torch.full((t.bytes,), 99, dtype=torch.uint8) for t in wanted}
        reader = runs.reader(weights._weights, number, size)
        for place, group in enumerate(copies):
            assert reader.next()
            buffer = buffers[place % number]
            for copy in group:
                part = buffer[copy.begin : copy.begin + copy.length]
                result[copy.name][copy.first : copy.first + copy.length] = part
            buffer.fill_(77)  # the next one's
            reader.release()
        assert not reader.next()
        reader.close()
        return {t.name: result[t.name].view(t.dtype).view(t.shape) for t in wanted}, len(copies)


def test_through_buffers(model):
    path, state = model
    loaded, groups = replay(path, {}, 1 << 20, 3)
    assert groups > 4  # some are larger than a buffer
    for name in loaded:
        assert same(loaded[name], state[name]), name
    assert set(state) - set(loaded) == {"empty"}


@pytest.mark.parametrize("axis", [0, 1])
def test_shares_through_buffers(tmp_path, axis):
    # Runs of 8 bytes and of 2 MiB, which no buffer of 1 MiB holds.
    state = {"rows": some(torch.uint8, 9000, 16), "long": some(torch.uint8, 3, 4 << 20)}
    state["between"] = some(torch.int16, 2, 2)
    path = tmp_path / "m.safetensors"
    save_file(state, path)
    slices = {"between": (axis, 1, 2)} if axis == 0 else {"*": (axis, 1, 2)}
    loaded, _ = replay(path, slices, 1 << 20, 2)
    for name, tensor in state.items():
        share = tensor.chunk(2, axis)[1] if axis == 1 or name == "between" else tensor
        assert same(loaded[name], share.contiguous()), name


def test_gaps_and_shards_through_buffers(tmp_path):
    sizes = (5, 3 << 20, 7, 9)
    for shard in range(2):
        state = {f"{shard}.{i}": some(torch.uint8, size) for i, size in enumerate(sizes)}
        save_file(state, tmp_path / f"m-{shard}.safetensors")
    with evenkeel.open(tmp_path / "m-*.safetensors") as weights:
        places = {name: tensor.offset for name, tensor in weights.tensors.items()}
    assert len(places) == 8
    loaded, groups = replay(tmp_path / "m-*.safetensors", {}, 4 << 20, 2)
    assert groups == 2  # one a shard: close together
    for shard in range(2):
        for i, size in enumerate(sizes):
            assert same(loaded[f"{shard}.{i}"], some(torch.uint8, size))


def test_buffers_take_at_most_half_of_what_is_left():
    from evenkeel import _load_buffers

    for limit in (4 << 20, 12 << 20, 64 << 20, 1 << 30):
        for wanted in (_load_buffers._BUFFER_BYTES, _load_buffers._REMOTE_BUFFER_BYTES):
            size, number = _load_buffers._buffers(evenkeel.Budget(limit), wanted)
            assert size * number <= limit // 2 and number >= 2 and 1 << 20 <= size <= wanted


@pytest.fixture
def through_buffers(monkeypatch):
    from evenkeel import _load

    monkeypatch.setattr(_load, "_copying_pays", lambda _: True)


def many_tensors(tmp_path):
    state = {f"t{i}": some(torch.uint8, (1 << 20) + 100_000 * i) for i in range(20)}
    path = tmp_path / "many.safetensors"
    save_file(state, path)
    return path, state


@pytest.mark.parametrize("inference", [False, True])
def test_copying_threads_take_buffers_again_and_again(tmp_path, through_buffers, inference):
    path, state = many_tensors(tmp_path)  # 38 MiB
    for budget in ("8MiB", "10MiB", "64MiB"):
        with torch.inference_mode(inference):
            loaded = evenkeel.load_safetensors(path, budget=budget)
            into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
            evenkeel.load_safetensors(path, into=into, budget=budget)
        for name, tensor in state.items():
            assert same(loaded[name], tensor) and same(into[name], tensor)


@pytest.mark.parametrize("at", [0, 3, 19])
def test_a_copy_that_fails_ends_the_load(tmp_path, through_buffers, monkeypatch, at):
    from evenkeel import _load_buffers

    path, _ = many_tensors(tmp_path)
    numbers = iter(range(1000))
    real = _load_buffers._CopyingThreads.copy

    def copy(self, *args):
        if next(numbers) == at:
            raise MemoryError("no room to copy")
        real(self, *args)

    monkeypatch.setattr(_load_buffers._CopyingThreads, "copy", copy)
    budget = evenkeel.Budget("64MiB")
    with pytest.raises(MemoryError, match="no room to copy"):
        evenkeel.load_safetensors(path, budget=budget)
    assert budget.in_use == 0


def test_buffers_are_returned_in_order():
    from evenkeel import _load_buffers

    returned = []
    in_order = _load_buffers._InOrder(lambda: returned.append(len(returned)))
    for number, expected in ((2, 0), (0, 1), (1, 3), (4, 3), (3, 5)):
        in_order.end(number)
        assert len(returned) == expected


def test_pinned_memory_is_whole_pages_and_is_given_back(monkeypatch):
    from evenkeel import _load_buffers

    registered = {}

    class Cudart:
        def cudaHostRegister(self, address, size, flags):  # noqa: N802
            registered[address] = size
            return 0

        def cudaHostUnregister(self, address):  # noqa: N802
            del registered[address]

    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    pinned = _load_buffers._Pinned(1 << 20)
    address = pinned.bytes.data_ptr()
    assert address % mmap.PAGESIZE == 0 and registered == {address: 1 << 20}
    pinned.release()
    pinned.release()
    assert not registered and pinned.bytes.numel() == 0


def one_tensor(path, dtype, shape, data):
    header = json.dumps({"t": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + data)


def test_two_numbers_in_a_byte(tmp_path):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        return
    path = tmp_path / "m.safetensors"
    one_tensor(path, "F4", [2, 4], b"abcd")
    assert evenkeel.load_safetensors(path)["t"].view(torch.uint8).tolist() == [[97, 98], [99, 100]]
    one_tensor(path, "F4", [4, 3], b"abcdef")
    with pytest.raises(ValueError, match="the last axis must be even"):
        evenkeel.load_safetensors(path)


def test_what_is_read_has_the_size_of_its_tensor():
    from evenkeel import _load

    whole = ("t", "F32", (2, 4), 0, 0, 32)
    assert _load._wanted(whole, {}, "safetensors").bytes == 32
    with pytest.raises(ValueError, match="takes 32 bytes of torch.float32, but 36 would be read"):
        _load._wanted((*whole[:-1], 36), {}, "safetensors")


def test_rows_of_shares_come_in_groups(tmp_path, monkeypatch):
    from evenkeel import _core

    state = {"rows": some(torch.uint8, 10_000, 4)}
    path = tmp_path / "m.safetensors"
    save_file(state, path)
    ends = []

    def reader(weights, files, offsets, lengths, addresses, groups, *rest):
        ends.extend(groups.tolist())
        return real(weights, files, offsets, lengths, addresses, groups, *rest)

    real = _core.GroupReader
    monkeypatch.setattr(_core, "GroupReader", reader)
    loaded = evenkeel.load_safetensors(path, slice={"*": (1, 1, 2)}, budget="16MiB")
    assert same(loaded["rows"], state["rows"][:, 2:].contiguous())
    assert ends == [4096, 8192, 10_000]


def test_a_file_that_was_replaced(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"t": torch.arange(10)}, path)
    weights = evenkeel.open(path, budget="8MiB")
    save_file({"t": torch.zeros(10, dtype=torch.int64)}, tmp_path / "other.safetensors")
    (tmp_path / "other.safetensors").rename(path)
    assert weights["t"][:].tolist() == list(range(10))


@pytest.mark.parametrize("processors", [2, 64])
def test_a_file_that_was_deleted(tmp_path, processors, monkeypatch):
    from evenkeel import _load

    path = tmp_path / "m.safetensors"
    save_file({"t": torch.arange(10)}, path)
    with evenkeel.open(path, budget="16MiB") as weights:
        path.unlink()
        monkeypatch.setattr(_load.os, "sched_getaffinity", lambda _: range(processors))
        assert weights.load()["t"].tolist() == list(range(10))


def test_tensors_whose_rows_have_no_bytes(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"none": torch.empty(5, 0), "some": torch.ones(2)}, path)
    with evenkeel.open(path, budget="8MiB") as weights:
        assert "none" in weights and "nothing" not in weights and 3 not in weights
        assert weights["none"].shape == (5, 0)
        assert weights.load()["none"].shape == (5, 0)


def test_memory_stays_within_the_budget(model):
    path, _ = model
    budget = evenkeel.Budget("8MiB")
    with evenkeel.open(path, budget=budget) as weights:
        weights.load()
        assert 0 < budget.in_use <= budget.limit
    assert budget.in_use == 0


def test_devices_that_cannot_be(model):
    path, _ = model
    with pytest.raises(ValueError, match="CPU or to a GPU of CUDA"):
        evenkeel.load_safetensors(path, device="meta")
    with pytest.raises(KeyError, match="no pattern of device= matches"):
        evenkeel.load_safetensors(path, device={"layers.*": "cpu"})
    loaded = evenkeel.load_safetensors(path, device={"layers.*": "cpu", "*": torch.device("cpu")})
    assert loaded["odd"].device.type == "cpu"


def test_files_that_are_not_weights(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"abc")
    with pytest.raises(ValueError, match="the file has 3 bytes"):
        evenkeel.open(path)
    path.write_bytes(struct.pack("<Q", 2) + b"{}" + b"left over")
    with pytest.raises(ValueError, match="the tensors end at byte 10, but the file has 19"):
        evenkeel.open(path)
    with pytest.raises(ValueError, match="shape, offset, cache and page_cache"):
        evenkeel.open(path, shape=(3,))
    other = tmp_path / "x.bin"
    other.write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="neither safetensors nor GGUF"):
        evenkeel.Weights(other)


def test_a_truncated_copy_is_refused(model, tmp_path):
    path, _ = model
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="incomplete"):
        evenkeel.open(cut)


def test_gguf(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 7)
    writer.add_string("general.name", "tiny")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c"])
    floats = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    halves = floats.astype(np.float16)
    blocks = gguf.quants.quantize(floats, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("floats", floats)
    writer.add_tensor("halves", halves)
    writer.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with evenkeel.open(path, budget="8MiB") as weights:
        assert weights.format == "gguf"
        assert weights.metadata["general.name"] == "tiny"
        assert weights.metadata["llama.block_count"] == "7"
        assert weights.tensors["blocks"].type == "Q8_0"
        assert weights.tensors["blocks"].shape == (6, 64)
        assert np.array_equal(weights["floats"][2:4], floats[2:4])
        loaded = weights.load()
        assert np.array_equal(loaded["halves"].numpy(), halves)
        assert np.array_equal(loaded["blocks"].numpy(), blocks)
        with pytest.raises(TypeError, match="Q8_0, for which NumPy has no dtype"):
            weights["blocks"]


def test_every_block_type_of_gguf(tmp_path):
    """The sizes of quantised blocks are those of the format's own library."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    for type_, (numbers, size) in gguf.GGML_QUANT_SIZES.items():
        name = b"t"
        head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
        head += struct.pack("<Q", 1) + name + struct.pack("<IQIQ", 1, numbers * 5, type_, 0)
        head += bytes(-len(head) % 32)
        path.write_bytes(head + bytes(5 * size))
        tensor = evenkeel.Weights(path).tensors["t"]
        assert tensor.bytes == 5 * size, type_.name
        assert tensor.type == type_.name


def test_shares_of_many_rows_are_planned_within_the_budget(tmp_path):
    path = tmp_path / "rows.safetensors"
    rows = some(torch.bfloat16, 1 << 17, 8)
    save_file({"rows": rows}, path)
    with evenkeel.open(path, budget="4MiB") as weights:
        tracemalloc.start()
        try:
            loaded = weights.load(slice={"rows": (1, 1, 2)})
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert most < 2 << 20  # torch's memory is not in it; the plans of all rows are 8 MiB
    assert same(loaded["rows"], rows[:, 4:].contiguous())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slice": (0, 0, 2)}, "slice takes patterns"),
        ({"slice": {"*": 0}}, "slice takes patterns"),
        ({"slice": {"*": (0, 0)}}, "slice takes patterns"),
        ({"slice": {"*": (0, 0, 2.0)}}, "slice takes patterns"),
        ({"into": torch.nn.Linear(2, 2)}, r"pass model.state_dict\(\)"),
        ({"into": {"scalar": 2.5}}, "'scalar' is float, not a tensor"),
        ({"only": 3}, "only takes a pattern"),
        ({"only": [3]}, "only takes a pattern"),
        ({"only": b"scalar"}, "only takes a pattern"),
        ({"engine": None}, "engine must be the name"),
    ],
    ids=str,
)
def test_arguments_of_a_wrong_type_are_named(model, options, words):
    with pytest.raises(TypeError, match=words):
        evenkeel.load_safetensors(model[0], **options)


def test_what_is_no_name_is_not_among_the_tensors(model):
    with evenkeel.open(model[0]) as weights:
        assert weights.get(3) is None and 3 not in weights
        with pytest.raises(KeyError):
            weights[None]


@pytest.mark.parametrize("option", ["name", "column"])
def test_a_name_is_not_ignored(model, option):
    with pytest.raises(ValueError, match="weights are returned as a dict"):
        evenkeel.open(model[0], **{option: "scalar"})


def test_info_says_where_the_tensors_are_described(model):
    with pytest.raises(ValueError, match=r"hint: evenkeel.open\(path\).tensors describes them"):
        evenkeel.info(model[0])
