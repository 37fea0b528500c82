"""The Python code of the tutorials, the how-to and the migration pages runs unchanged."""

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(
    path for name in ("start", "howto", "migrate") for path in (DOCS / name).glob("*.md")
)
PAGES.append(DOCS / "metrics.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_HERE = {"megatron", "data-in-s3"}  # they need a corpus of Megatron, and a bucket
NEED_TORCH = {"model-loads-slowly", "nanogpt"}


def blocks(page):
    return BLOCK.findall(page.read_text()) if page.stem not in NOT_HERE else []


@pytest.mark.parametrize("page", list(filter(blocks, PAGES)), ids=lambda page: page.stem)
def test_it_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_PROCID", "SLURM_NTASKS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    rows = np.arange(5000, dtype="float32")
    np.save("features.npy", np.repeat(rows[:, None], 162, axis=1))
    np.save("labels.npy", rows.astype("int64"))
    np.repeat(rows[:, None], 162, axis=1).tofile("x.f32")
    (np.arange(200_000) % 50257).astype("uint16").tofile("train.bin")
    if page.stem == "model-loads-slowly":
        save = pytest.importorskip("safetensors.numpy").save_file
        save({"lm_head.weight": np.ones((64, 8), "float32")}, "model.safetensors")
    if page.stem in NEED_TORCH:
        pytest.importorskip("torch")
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize("stem", ["litdata", "mosaicml-streaming", "huggingface-datasets"])
def test_tokens_are_saved_as_the_migration_pages_say(stem, tmp_path):
    functions = {}
    for block in blocks(DOCS / "migrate" / f"{stem}.md"):
        exec(block, functions)
    samples = [np.arange(10), np.arange(5)]

    class HubDataset:
        def iter(self, batch_size):
            yield {"input_ids": samples}

    dataset = {
        "litdata": samples,
        "mosaicml-streaming": [{"tokens": sample} for sample in samples],
        "huggingface-datasets": HubDataset(),
    }[stem]
    functions["save_tokens"](dataset, tmp_path / "train.bin")
    saved = np.fromfile(tmp_path / "train.bin", "uint16")
    assert (saved == np.concatenate(samples)).all()
