"""bench/gpu_documents.py, with a tiny model on the CPU."""

import json
import pathlib
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

BENCH = pathlib.Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return __import__("gpu_documents")


def test_the_benchmark_trains_from_packed_documents(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--device cpu --layers 1 --width 16 --batch 2 --rows 128 --gib 0.002 --budget 16MiB"
    argv = ["gpu_documents.py", *options.split(), "--seconds", "0.01", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(bench, "VOCABULARY", 256)
    bench.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["loaded_tokens_per_s"] > 0
    assert figures["budget_peak_bytes"] <= 16 << 20
    assert figures["padding"] < 0.02


def test_attention_stays_within_documents(bench: Any) -> None:
    ids = torch.tensor(np.repeat([0, 1, 2, -1], [50, 30, 40, 8]))[None]
    at = torch.arange(128)
    allowed = bench.mask_of(ids).mask_mod(0, 0, at[:, None], at[None, :])
    expected = np.tril(np.equal.outer(ids[0].numpy(), ids[0].numpy()))
    np.testing.assert_array_equal(allowed, expected)
    np.testing.assert_array_equal(bench.dense_mask_of(ids)[0, 0], expected)
