"""What notebooks show: what is open, what uses the budget, and which engine reads."""

import numpy as np
import pytest

import evenkeel


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((1000, 3), "float32"))
    return path


def cells(shown):
    """The table as a dict, without markup."""
    import html
    import re

    assert shown.count("<table>") == 1 and "<script" not in shown and "<style" not in shown
    pairs = re.findall(r"<tr><td[^>]*><b>(.*?)</b></td><td[^>]*>(.*?)</td></tr>", shown)
    return {name: html.unescape(re.sub("<[^>]*>", "", value)).strip() for name, value in pairs}


def test_array(rows):
    a = evenkeel.open(rows, budget="2MiB")
    shown = cells(a._repr_html_())
    assert shown["shape"] == "(1000, 3)" and shown["dtype"] == "float32"
    assert shown["file"] == "rows.npy"
    assert " of 2 MiB in use" in shown["budget"]
    assert shown["engine"] == a.engine
    a.close()
    assert "closed" in a._repr_html_()


def test_names_of_files_are_escaped(tmp_path):
    path = tmp_path / "<img src=x onerror=alert(1)>.npy"
    np.save(path, np.zeros(3))
    shown = evenkeel.open(path)._repr_html_()
    assert "<img" not in shown and "&lt;img src=x" in shown


def test_many_files_are_counted(tmp_path):
    for i in range(5):
        np.save(tmp_path / f"part-{i}.npy", np.zeros(3))
    shown = cells(evenkeel.open(str(tmp_path / "part-*.npy"))._repr_html_())
    assert shown["5 files"] == "part-0.npy, part-1.npy, part-2.npy and 2 more"


def test_batches(rows):
    batches = evenkeel.open(rows, budget="2MiB").batches(300, shuffle=True, seed=7)
    next(batches)
    shown = cells(batches._repr_html_())
    assert shown["batches"] == "300 rows, shuffled, seed 7, rank 0 of 1"
    assert shown["position"] == "1 of 4, epoch 0"
    batches.close()
    assert cells(batches._repr_html_())["position"] == "closed"


def test_tokens_and_loader(tmp_path):
    path = tmp_path / "train.bin"
    np.zeros(100_000, "uint16").tofile(path)
    train = evenkeel.tokens(path, budget="8MiB")
    assert cells(train._repr_html_())["tokens"].startswith("100,000 of uint16")
    loader = evenkeel.TokenLoader(train, 4, 64, steps=9)
    next(loader)
    shown = cells(loader._repr_html_())
    assert shown["batch"] == "4 x 64 int64" and shown["next step"] == "1 of 9"
    assert shown["budget"].endswith("at the peak") and shown["used by"]
    loader.close()
    assert "closed" in loader._repr_html_()


def test_loader_of_rows(rows, tmp_path):
    np.save(tmp_path / "y.npy", np.arange(1000))
    budget = evenkeel.Budget("8MiB")
    x, y = evenkeel.open(rows, budget=budget), evenkeel.open(tmp_path / "y.npy", budget=budget)
    loader = evenkeel.Loader({"x": x, "y": y}, 100, seed=1)
    next(loader)
    shown = loader._repr_html_()
    assert cells(shown)["batch"] == "100 of 1,000 rows"
    assert cells(shown)["order"] == "shuffled, rank 0 of 1"
    assert cells(shown)["next step"] == "1 of 10"
    assert "(1000, 3) float32" in shown and "(1000,) int64" in shown
    assert "rows.npy" in shown and "y.npy" in shown and x.engine in shown
    assert shown.count("<meter") == 1
    loader.close()
    assert "evenkeel.Loader, closed" in loader._repr_html_()


def test_loader_of_a_mixture_of_rows(rows):
    one = evenkeel.open(rows, budget="8MiB")
    shown = evenkeel.Loader([(one, 0.25), (one, 0.75)], 2)._repr_html_()
    assert "0.25" in shown and "0.75" in shown and shown.count("<meter") == 1
    assert cells(shown)["next step"] == "0"  # it does not end


def test_loader_of_ragged_rows(tmp_path):
    np.save(tmp_path / "v.npy", np.arange(10))
    np.save(tmp_path / "o.npy", np.array([0, 3, 3, 10]))
    files = [evenkeel.open(tmp_path / name, budget="8MiB") for name in ("v.npy", "o.npy")]
    loader = evenkeel.Loader(evenkeel.ragged(*files), 2)
    shown = loader._repr_html_()
    assert cells(shown)["batch"] == "2 of 3 rows" and "v.npy" in shown and "o.npy" in shown
    files[0].close()
    assert "v.npy" in loader._repr_html_()


def test_a_loader_outlives_its_ragged_arrays(tmp_path):
    np.save(tmp_path / "v.npy", np.arange(10))
    np.save(tmp_path / "o.npy", np.array([0, 3, 3, 10]))
    values, offsets = (evenkeel.open(tmp_path / f"{name}.npy", budget="8MiB") for name in "vo")
    ragged = evenkeel.ragged(values, offsets)
    with evenkeel.Loader(ragged, 2) as loader:
        values.close()
        offsets.close()
        assert "3 rows, 10 values" in repr(ragged)
        assert "2 of 3 rows" in repr(loader) and "2 of 3 rows" in loader._repr_html_()
        assert "batches: 2 rows" in loader.describe()


def test_a_mixture_shows_a_shared_budget_once(tmp_path):
    np.zeros(100_000, "uint16").tofile(tmp_path / "a.bin")
    np.zeros(100_000, "uint16").tofile(tmp_path / "b.bin")
    budget = evenkeel.Budget("8MiB")
    sets = [(evenkeel.tokens(tmp_path / name, budget=budget), 1.0) for name in ("a.bin", "b.bin")]
    shown = evenkeel.TokenLoader(sets, 4, 64)._repr_html_()
    assert shown.count("<meter") == 1 and "a.bin" in shown and "b.bin" in shown


def test_budget_says_what_uses_it():
    budget = evenkeel.Budget("1MiB")
    assert budget.uses() == {} and "used by" not in cells(budget._repr_html_())
    held = [budget.reserve(n, what) for n, what in ((1000, "<mine>"), (24, "<mine>"), (8, "other"))]
    assert budget.uses() == {"<mine>": 1024, "other": 8}
    shown = cells(budget._repr_html_())
    assert shown["used by"] == "<mine> 1 KiB, other 8 B"
    del held
    assert budget.uses() == {}
