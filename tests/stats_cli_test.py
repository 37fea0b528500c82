"""The command evenkeel stats, compared with NumPy."""

import html.parser
import json
import os
import subprocess
import time

import numpy as np
import pytest
from conftest import User
from shuffle_cli_test import killed_at_random, megatron, names


@pytest.fixture
def user(tmp_path):
    """The current user, in a folder for this test."""
    return User("self", tmp_path)


def check(found, numbers, rank_error):
    """Compares the figures of one column with NumPy's."""
    numbers = np.asarray(numbers).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    assert found["count"] == len(finite)
    assert found["nan"] == np.isnan(numbers).sum()
    assert found["positive_infinity"] == np.isposinf(numbers).sum()
    assert found["negative_infinity"] == np.isneginf(numbers).sum()
    assert (found["min"], found["max"]) == (finite.min(), finite.max())
    assert found["mean"] == pytest.approx(finite.mean(), rel=1e-12, abs=1e-12)
    assert found["variance"] == pytest.approx(finite.var(), rel=1e-9, abs=1e-12)
    ordered = np.sort(finite)
    for one in found["quantiles"]:
        # q is between the share of numbers below it and the share up to it, within the error.
        low = np.searchsorted(ordered, one["value"], "left") / len(ordered)
        high = np.searchsorted(ordered, one["value"], "right") / len(ordered)
        assert low - rank_error <= one["q"] <= high + rank_error
    histogram = found["histogram"]
    total = sum(bin["count"] for bin in histogram["bins"])
    assert total + histogram["below"] + histogram["above"] == pytest.approx(len(finite))
    for bin in histogram["bins"]:
        exact = ((finite >= bin["begin"]) & (finite < bin["end"])).mean()
        if bin is not histogram["bins"][-1]:
            assert abs(bin["count"] / len(finite) - exact) <= 2 * rank_error


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "uint64", "bool"])
def test_columns_are_what_numpy_says(user, dtype):
    rng = np.random.default_rng(1)
    count = 60_000 if dtype == "float64" else 5_000
    columns = [rng.normal(5, 2, count), rng.exponential(1, count), rng.integers(0, 10, count)]
    rows = np.stack([*columns, np.full(count, 7)], 1)
    if dtype.startswith("float"):
        rows[::50, 0], rows[1, 1], rows[2:4, 1] = np.nan, np.inf, -np.inf
        rows[:, 2] += 1e6 if dtype == "float64" else 0  # a variance that sums of squares lose
    rows = rows.astype(dtype)
    user.save("a.npy", rows)
    report = user.json("stats", "a.npy", "--budget", "16MiB")
    assert report["items"] == count
    assert report["budget_peak_bytes"] <= report["budget_bytes"]
    # One of a hundred estimates has a larger error than this.
    for column, found in enumerate(report["columns"]):
        check(found, rows[:, column], 2 * report["rank_error"])
    again = user.json("stats", "a.npy", "--budget", "1GiB")
    assert again["columns"] == report["columns"]


def test_every_byte_of_bool_but_zero_is_true(user):
    flags = np.array([255, 0, 1, 2], np.uint8).view(bool)
    user.save("a.npy", flags)
    check(user.json("stats", "a.npy")["columns"][0], flags, 0)


def test_few_numbers_are_exact(user):
    user.save("a.npy", np.random.default_rng(1).permutation(1000))
    report = user.json("stats", "a.npy", "--quantiles", "0,0.1,0.5,0.999,1", "--bins", "10")
    (column,) = report["columns"]
    assert [one["value"] for one in column["quantiles"]] == [0, 99, 499, 998, 999]
    assert {bin["count"] for bin in column["histogram"]["bins"]} == {100}
    assert "exact" in user.run("stats", "a.npy").stdout
    user.save("none.npy", np.full(3, np.nan))
    (column,) = user.json("stats", "none.npy")["columns"]
    assert column == {"count": 0, "nan": 3, "positive_infinity": 0, "negative_infinity": 0}
    assert "3" in user.run("stats", "none.npy").stdout


def test_tokens_and_documents(user):
    lengths = np.random.default_rng(1).integers(1, 400, 300)
    tokens = megatron(user, "corpus", lengths)
    report = user.json("stats", "corpus.idx", "--top", 5)
    assert report["items"] == 300
    assert report["tokens"]["count"] == len(tokens)
    assert report["tokens"]["distinct"] == 300
    assert report["tokens"]["largest"] == 299
    counts = np.bincount(tokens)
    order = np.lexsort((np.arange(300), -counts))[:5]
    wanted = [{"token": int(t), "count": int(counts[t])} for t in order]
    assert report["tokens"]["most_frequent"] == wanted
    check(report["lengths"], lengths, 0)
    user.write("t.bin", np.array([5, 70_000, 5, 1 << 31], np.uint32).tobytes())
    report = user.json("stats", "t.bin", "--tokens", "--dtype", "uint32")
    assert report["tokens"]["most_frequent"][0] == {"token": 5, "count": 2}
    assert report["tokens"]["largest"] == 1 << 31
    assert "lengths" not in report
    # The table for tokens this large exceeds this budget.
    small = user.json("stats", "t.bin", "--tokens", "--dtype", "uint32", "--budget", "4MiB")
    assert small["tokens"]["uncounted"] == 1


def test_lines(user):
    lengths = np.random.default_rng(1).integers(0, 90, 700)
    user.write("a.txt", b"\n".join(b"x" * n for n in lengths))
    report = user.json("stats", "a.txt")
    assert report["items"] == 700
    check(report["lengths"], lengths, 0)


def test_the_page_is_whole_and_has_no_script(user):
    user.save("<b>.npy", np.random.default_rng(1).random((2000, 3)))
    user.run("stats", "<b>.npy", "--html", "page.html")
    page = (user.folder / "page.html").read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;.npy" in page
    assert "<script" not in page
    assert page.count("<svg") == page.count("</svg>") == 3
    open_tags = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "link"):
                open_tags.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Reader().feed(page)
    assert open_tags == []
    assert user.run("stats", "<b>.npy", "--html", "-").stdout.startswith("<!doctype html>")
    both = user.run("stats", "<b>.npy", "--html", "page.html", "--json").stdout
    assert len(json.loads(both)["columns"]) == 3


def test_errors_say_what_to_do(user):
    user.save("a.npy", np.zeros((10, 2), np.complex64))
    assert "no figures of complex64" in user.run("stats", "a.npy", code=1).stderr
    user.save("a.npy", np.zeros((4, 3000), np.uint8))
    message = user.run("stats", "a.npy", "--budget", "8MiB", code=1).stderr
    assert "3,000 columns need" in message
    assert "hint:" in message
    user.run("stats", "a.npy", "--quantiles", "0.5,2", code=2)
    user.run("stats", "a.npy", "--sketch", "2", code=2)
    user.run("stats", "a.npy", "--html", "-", "--json", code=2)
    assert "8 to 1,048,576" in user.run("stats", "a.npy", "--sketch", 1 << 30, code=1).stderr
    assert "No such" in user.run("stats", "a.npy", "--html", "no/page.html", code=1).stderr


def without_run(report):
    return {k: v for k, v in report.items() if k not in ("seconds", "resumed", "budget_peak_bytes")}


@pytest.mark.parametrize("name", ["a.npy", "a.txt", "a.idx"])
def test_killed_and_resumed_gives_the_same_figures(user, name):
    rng = np.random.default_rng(1)
    rows = rng.normal(5, 2, (60_000, 16))
    rows[::50, 0], rows[1, 1] = np.nan, np.inf
    user.save("a.npy", rows)
    user.write("a.txt", b"".join(b"x" * (i * i % 97) + b"\n" for i in range(200_000)))
    megatron(user, "a", rng.integers(1, 300, 40_000))
    stats = ["stats", name, "--budget", "32MiB", "--state", "s", "--checkpoint", "1MiB"]
    wanted = user.json("stats", name, "--budget", "32MiB")
    assert without_run(user.json(*stats)) == without_run(wanted)
    killed = killed_at_random(
        user,
        *stats,
        longest=wanted["seconds"] + 0.05,
        kills=int(os.environ.get("EVENKEEL_KILLS", "4")),
    )
    assert without_run(killed) == without_run(wanted)
    assert "s" not in names(user.folder)


def test_the_state_of_other_files_is_not_resumed(user):
    user.save("a.npy", np.zeros((200_000, 8)))
    user.save("b.npy", np.ones((200_000, 8)))
    stats = ["--budget", "16MiB", "--state", "s", "--checkpoint", "1MiB"]
    while "s" not in names(user.folder):
        tool = subprocess.Popen(user.command("stats", "a.npy", *stats), cwd=user.folder)
        until = time.monotonic() + 60
        while "s" not in names(user.folder) and tool.poll() is None:
            assert time.monotonic() < until
        tool.kill()
        tool.wait()
    assert "has other files" in user.run("stats", "b.npy", *stats, "--resume", code=1).stderr
    state = (user.folder / "s").read_bytes()
    for damaged in (state[:-1], state + b"x", state[: len(state) // 2]):
        user.write("s", damaged)
        assert "is damaged" in user.run("stats", "a.npy", *stats, "--resume", code=1).stderr
    user.write("s", state)
    assert user.json("stats", "a.npy", *stats, "--resume")["resumed"]
    assert not user.json("stats", "a.npy", *stats, "--resume")["resumed"]  # it was done
    user.run("stats", "a.npy", "--resume", code=2)  # without --state
    said = user.run("stats", "a.npy", "--state", "a.npy", code=1).stderr
    assert "is an input, too" in said


def test_figures_do_not_depend_on_the_budget(user):
    user.save("a.npy", np.random.default_rng(1).normal(5, 2, (50_000, 37)))
    small = user.json("stats", "a.npy", "--budget", "8MiB")
    large = user.json("stats", "a.npy", "--budget", "256MiB")
    assert small["columns"] == large["columns"]


def test_a_page_does_not_replace_the_data(user):
    path = user.save("a.npy", np.arange(100))
    data = path.read_bytes()
    assert "is an input, too" in user.run("stats", "a.npy", "--html", "./a.npy", code=1).stderr
    assert path.read_bytes() == data
