"""Weights by name, from the tool, and in transformers."""

import json
import subprocess
import sys

import numpy as np
import pytest

import evenkeel

safetensors = pytest.importorskip("safetensors.numpy")


def test_tensors_without_elements(tmp_path):
    tensors = {"a": np.zeros((5, 0), "float32"), "b": np.zeros((0, 5), "int8"), "c": np.arange(3.0)}
    safetensors.save_file(tensors, tmp_path / "m.safetensors")
    with evenkeel.open(tmp_path / "m.safetensors") as weights:
        for name, want in tensors.items():
            got = weights[name]
            assert got.shape == want.shape and got.dtype == want.dtype
            assert np.array_equal(got[...], want)


@pytest.mark.parametrize("index", [False, True])
def test_info_lists_tensors(tmp_path, index):
    safetensors.save_file({"layer.weight": np.zeros((3, 4), "float16")}, tmp_path / "m.safetensors")
    path = tmp_path / "m.safetensors"
    if index:
        path = tmp_path / "model.safetensors.index.json"
        path.write_text(json.dumps({"weight_map": {"layer.weight": "m.safetensors"}}))
    said = subprocess.run(
        [sys.executable, "-m", "evenkeel", "info", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "layer.weight" in said.stdout and "F16" in said.stdout and "3 × 4" in said.stdout
    said = subprocess.run(
        [sys.executable, "-m", "evenkeel", "info", str(path), "--json"],
        capture_output=True,
        check=True,
    )
    found = json.loads(said.stdout)
    assert found["format"] == "safetensors" and found["bytes"] == 24
    tensor = found["tensors"][0]
    assert (tensor["dtype"], tensor["shape"], tensor["bytes"]) == ("F16", [3, 4], 24)


def test_info_lists_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 4)), y=np.arange(5))
    path = str(tmp_path / "a.npz")
    said = subprocess.run(
        [sys.executable, "-m", "evenkeel", "info", path], capture_output=True, text=True, check=True
    )
    assert "float64" in said.stdout and "3 × 4" in said.stdout
    said = subprocess.run(
        [sys.executable, "-m", "evenkeel", "info", path, "--json"], capture_output=True, check=True
    )
    assert [array["name"] for array in json.loads(said.stdout)["arrays"]] == ["x", "y"]
    said = subprocess.run(
        [sys.executable, "-m", "evenkeel", "info", path, "--name", "y"],
        capture_output=True,
        text=True,
    )
    assert "npz" in said.stdout and "int64" in said.stdout


def test_transformers(tmp_path):
    """The recipe of docs/weights.md."""
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    torch = pytest.importorskip("torch")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=32)
    torch.manual_seed(0)
    saved = transformers.GPT2LMHeadModel(config).eval()
    saved.save_pretrained(tmp_path / "model")
    folder = str(tmp_path / "model")
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.load_state_dict(evenkeel.load_safetensors(folder), assign=True, strict=False)
    model.tie_weights()
    assert not any(tensor.is_meta for tensor in model.state_dict().values())
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        assert torch.equal(model.eval()(tokens).logits, saved(tokens).logits)
