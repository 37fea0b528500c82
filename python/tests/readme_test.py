"""The Python code of the README runs unchanged, and rows match their labels."""

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_it_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(3000, dtype="float32")
    np.save("features.npy", np.repeat(rows[:, None], 20, axis=1))
    np.save("labels.npy", rows.astype("int64"))
    (np.arange(200_000) % 50257).astype("uint16").tofile("train.bin")
    steps = []

    def train_on(x, y):
        steps.append(len(x))
        if y.ndim == 1:
            assert (x[:, 0] == y).all()  # each row has its label
        else:
            assert x.shape == (12, 1024) and (x[:, 1:] == y[:, :-1]).all()

    exec(block, {"train_on": train_on})
    assert sum(steps) in (3000, 1200)


def test_there_are_two():
    assert len(BLOCKS) == 2
