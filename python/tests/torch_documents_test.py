"""Documents through torch's DataLoader: workers, states, pinned memory."""

import pathlib
from typing import Any

import numpy as np
import pytest
from document_corpora import BUDGET, datatrove

import evenkeel

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.utils.data import DataLoader  # noqa: E402

FIELDS = ("x", "y", "position_ids", "document_ids", "cu_seqlens", "loss_mask")


@pytest.fixture
def options(tmp_path: pathlib.Path) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 90, 300)
    corpus = datatrove(tmp_path, rng.integers(0, 60_000, lengths.sum()), lengths.tolist(), 0)
    (rng.integers(0, 2, lengths.sum())).astype(np.uint8).tofile(tmp_path / "mask.bin")
    return {
        "tokens": evenkeel.tokens(corpus.paths, budget=BUDGET),
        "batch_size": 4,
        "block_size": 64,
        "order": "shuffled",
        "seed": 2,
        "loss_mask": evenkeel.tokens(tmp_path / "mask.bin", budget=BUDGET, dtype="uint8"),
    }


def read(batches: Any) -> list[list[Any]]:
    made = []
    for batch in batches:
        assert isinstance(batch, evenkeel.TokenBatch)
        fields = [getattr(batch, name) for name in FIELDS]
        assert all(isinstance(field, torch.Tensor) for field in fields)
        x, y = batch
        assert x is batch.x and y is batch.y
        made.append([*(field.tolist() for field in fields), batch.max_seqlen])
    return made


@pytest.mark.parametrize("mode", ["mask", "start", "packed", "whole"])
def test_workers_give_the_batches_of_a_loader(options: dict[str, Any], mode: str) -> None:
    with evenkeel.TokenLoader(device="cpu", documents=mode, steps=9, **options) as loader:
        expected = read(loader)
    data = evenkeel.TokenIterableDataset(documents=mode, steps=9, **options)
    for workers in (0, 2):
        assert read(DataLoader(data, batch_size=None, num_workers=workers)) == expected


def test_states_resume_documents_in_workers(options: dict[str, Any]) -> None:
    stateful = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed"
    ).StatefulDataLoader

    def loader() -> Any:
        data = evenkeel.TokenIterableDataset(documents="whole", window=32, steps=10, **options)
        return stateful(data, batch_size=None, num_workers=2)

    whole = read(loader())
    half = loader()
    going = iter(half)
    first = read(next(going) for _ in range(5))
    state = half.state_dict()
    again = loader()
    again.load_state_dict(state)
    assert [*first, *read(again)] == whole


def test_batches_move_with_their_fields(options: dict[str, Any]) -> None:
    with evenkeel.TokenLoader(device="cpu", documents="packed", **options) as loader:
        batch = next(loader)
    moved = batch.to("meta")
    assert moved.x.device.type == moved.cu_seqlens.device.type == "meta"
    assert moved.loss_mask.shape == batch.loss_mask.shape
    assert moved.max_seqlen == batch.max_seqlen
    # A dtype is for tokens. The fields are views of bytes.
    halves = batch.to(torch.float32)
    assert halves.x.dtype == halves.y.dtype == torch.float32
    assert torch.equal(halves.position_ids, batch.position_ids)
    assert torch.equal(halves.loss_mask, batch.loss_mask)
    assert torch.equal(halves.cu_seqlens, batch.cu_seqlens)
    # What DataLoader's thread for pinned memory calls: without a GPU it cannot pin.
    pinned = batch._each(torch.clone)
    assert read([pinned]) == read([batch])
