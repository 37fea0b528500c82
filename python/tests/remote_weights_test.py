"""Model weights from servers: the same tensors as from files."""

import json
import pickle

import pytest
from remote_help import ObjectServer

import evenkeel

torch = pytest.importorskip("torch")
save = pytest.importorskip("safetensors.torch").save

SHARDS = [
    {"a": torch.arange(300_000, dtype=torch.float32).reshape(600, 500), "b": torch.ones(7)},
    {"c": torch.arange(9, dtype=torch.bfloat16).reshape(3, 3)},
]
STATE = {**SHARDS[0], **SHARDS[1]}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("EVENKEEL_RETRY_DELAY", "0.001")
    with ObjectServer() as server:
        names = [f"model-{i}.safetensors" for i in (1, 2)]
        for name, shard in zip(names, SHARDS):
            server.put(name, save(shard))
        weight_map = {key: name for name, shard in zip(names, SHARDS) for key in shard}
        index = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
        server.put("model.safetensors.index.json", index)
        yield server


@pytest.mark.parametrize("processors", [2, 64])
def test_shards_are_loaded(server, processors, monkeypatch):
    from evenkeel import _load

    monkeypatch.setattr(_load.os, "sched_getaffinity", lambda _: range(processors))
    loaded = evenkeel.load_safetensors(f"{server.url}/model.safetensors.index.json", budget="32MiB")
    assert set(loaded) == set(STATE)
    assert all(torch.equal(loaded[name], STATE[name]) for name in STATE)


def test_a_slice_fetches_little_more_than_itself(server):
    url = f"{server.url}/model-1.safetensors"
    with evenkeel.open(url, budget="32MiB") as weights:
        assert "model-1.safetensors" in repr(weights)
        server.forget()
        part = weights["a"][100:110]
        assert (part == STATE["a"][100:110].numpy()).all()
    assert 10 * 2000 <= server.bytes_sent < 100_000


def test_a_signed_url(server):
    url = f"{server.url}/model-1.safetensors?X-Amz-Signature=0123"
    with evenkeel.open(url, budget="32MiB") as weights:
        assert (weights["a"][7] == STATE["a"][7].numpy()).all()


def test_pickling_sends_the_url(server):
    url = f"{server.url}/model-1.safetensors"
    with evenkeel.open(url, budget="32MiB") as weights:
        with pickle.loads(pickle.dumps(weights)) as again:
            assert (again["a"][7] == STATE["a"][7].numpy()).all()
    with evenkeel.Weights(f"{url}?X-Amz-Signature=0123", budget="32MiB") as weights:
        with pytest.raises(ValueError, match="has a query, which may hold a signature"):
            pickle.dumps(weights)


def test_a_file_that_is_not_there(server):
    with pytest.raises(FileNotFoundError, match="nothing.safetensors"):
        evenkeel.load_safetensors(f"{server.url}/nothing.safetensors")


def test_a_file_that_changes_is_an_error(server):
    url = f"{server.url}/model-1.safetensors"
    with evenkeel.open(url, budget="32MiB") as weights:
        server.put("model-1.safetensors", save({**SHARDS[0], "b": torch.zeros(7)}))
        with pytest.raises(ValueError, match="changed"):
            weights["a"][:]
