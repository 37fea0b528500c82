"""evenkeel.stats: the figures of the command, in Python."""

import json
import os
import subprocess

import numpy as np
import pytest

import evenkeel

TOOL = os.environ.get("EVENKEEL_TOOL")


@pytest.fixture
def files(folder):
    draw = np.random.default_rng(1)
    rows = draw.normal(5, 2, (5000, 3)).astype(np.float32)
    rows[7] = np.nan, np.inf, -np.inf
    np.save("x.npy", rows)
    (folder / "a.txt").write_text("".join("x" * (i % 50) + "\n" for i in range(3000)))
    with evenkeel.TokenWriter("t.bin", "megatron", "uint16") as writer:
        for length in draw.integers(1, 40, 2000):
            writer.append(draw.integers(0, 300, length))
            writer.end_document()
    return rows


@pytest.mark.skipif(TOOL is None, reason="the tool is not built")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.npy", {"bins": 7, "quantiles": [0.1, 0.5]}),
        ("a.txt", {}),
        ("t.idx", {"top": 3}),
        ("t.bin", {"dtype": "uint16", "tokens": True, "sketch": 64}),
    ],
)
def test_figures_are_those_of_the_command(files, name, options):
    found = evenkeel.stats(name, budget="64MiB", **options)
    words = []
    for option, value in options.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words += [f"--{option}"] if value is True else [f"--{option}", text]
    done = subprocess.run(
        [TOOL, "stats", name, "--json", "--budget", "64MiB", *words],
        capture_output=True,
        check=True,
    )
    told = json.loads(done.stdout)
    for figures in (found, told):
        del figures["seconds"], figures["budget_peak_bytes"]
    assert json.loads(json.dumps(found)) == told
    assert list(found) == list(told)


def test_columns(files):
    found = evenkeel.stats("x.npy")["columns"]
    for column, rows in zip(found, files.T.astype(np.float64)):
        finite = rows[np.isfinite(rows)]
        assert column["count"] == len(finite) == 4999
        assert column["mean"] == pytest.approx(finite.mean())
        assert column["variance"] == pytest.approx(finite.var())
    assert [column["nan"] for column in found] == [1, 0, 0]


def test_what_cannot_be(files):
    with pytest.raises(ValueError, match="a histogram of 10,001 bars\nhint: 1 to 10,000"):
        evenkeel.stats("x.npy", bins=10_001)
    with pytest.raises(ValueError, match="a histogram of 0 bars"):
        evenkeel.stats("x.npy", bins=0)
    with pytest.raises(ValueError, match="a sketch of 4 numbers"):
        evenkeel.stats("x.npy", sketch=4)
    with pytest.raises(ValueError, match="quantiles must be from 0 to 1; got 2"):
        evenkeel.stats("x.npy", quantiles=[2])
    with pytest.raises(MemoryError, match="columns need"):
        evenkeel.stats("x.npy", bins=10_000, budget="4MiB", dtype=None, sketch=1 << 16)
    with pytest.raises(FileNotFoundError):
        evenkeel.stats("none.npy")


def test_arguments_of_a_wrong_type_are_named(files):
    for options, words in (
        ({"bins": 1.5}, "bins must be a whole number; got 1.5"),
        ({"quantiles": 0.5}, "quantiles must be numbers from 0 to 1"),
        ({"unit": 3}, "unit must be a string"),
        ({"block": "4"}, "block must be a whole number"),
        ({"progress": 3}, "progress must be a function"),
    ):
        with pytest.raises(TypeError, match=words):
            evenkeel.stats("x.npy", budget="64MiB", **options)
    with pytest.raises(ValueError, match="top must be 0 or more"):
        evenkeel.stats("x.npy", budget="64MiB", top=-1)
    assert evenkeel.stats("x.npy", budget="64MiB", bins=np.int8(7), resume=0)["items"] == 5000
