"""evenkeel.tokenize that is killed, and resumed. EVENKEEL_KILLS=200 kills it so many times, at any
moment; without it, this is done once, and three times more at moments that are known."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tokenize_help import made_texts

import evenkeel

KILLS = int(os.environ.get("EVENKEEL_KILLS", "1"))


@pytest.fixture
def corpus(folder):
    texts = made_texts(200, words=300)
    for name, some in (("a.jsonl", 12 * texts[:175]), ("b.jsonl", 4 * texts[25:])):
        (folder / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    return ["a.jsonl", "b.jsonl"]


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "evenkeel", "tokenize", *words], stdout=subprocess.DEVNULL
    )


def test_killed_at_any_moment_and_resumed_it_writes_the_same_bytes(folder, corpus):
    outputs = ["train.bin", "train.idx", "val.bin", "val.idx"]
    words = [*corpus, "-o", "train.bin", "--tokenizer", "bytes", "--format", "megatron"]
    words += ["--val-share", "0.2", "--checkpoint", "64KiB"]
    began = time.monotonic()
    assert start(*words, "--workers=1").wait() == 0
    duration = time.monotonic() - began
    wanted = [(folder / name).read_bytes() for name in [*outputs, "train.bin.tokenize.json"]]
    draw = random.Random(time.time_ns())
    for kill in range(KILLS):
        for name in [*outputs, "train.bin.tokenize.json"]:
            (folder / name).unlink()
        workers = str(draw.choice([0, 1, 2]))
        for _ in range(draw.choice([1, 1, 2, 3]) if KILLS > 1 else 1):
            run = start(*words, "--resume", "--workers", workers)
            try:
                run.wait(draw.uniform(0, 1.1 * duration))
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.wait()
        assert start(*words, "--resume", "--workers", workers).wait() == 0
        made = [(folder / name).read_bytes() for name in [*outputs, "train.bin.tokenize.json"]]
        assert made == wanted, f"kill {kill}"
        assert sorted(os.listdir()) == sorted([*corpus, *outputs, "train.bin.tokenize.json"])


@pytest.mark.parametrize("format", ["megatron", "datatrove", "nanogpt"])
def test_killed_when_the_last_file_got_its_name_it_leaves_nothing(folder, corpus, format):
    name = "t.ds" if format == "datatrove" else "t.bin"
    options = {"format": format, "workers": 0, "checksums": True}
    evenkeel.tokenize(corpus, name, "bytes", **options)
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    lengths = {"megatron": "t.idx.lengths", "datatrove": "t.ds.index"}.get(format, name)
    for left in (f"{name}.partial.state", f"{name}.partial.state.new", f"{lengths}.partial"):
        (folder / left).write_text("left")
    (folder / f"{name}.partial").unlink(missing_ok=True)
    assert evenkeel.tokenize(corpus, name, "bytes", resume=True, **options)["resumed"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == made
    (folder / f"{name}.xxh3").unlink()  # it was killed before these were written
    evenkeel.tokenize(corpus, name, "bytes", resume=True, **options)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == made


# A tokenizer that kills the process that writes when it is called for the DIE-th time.
DEADLY = """
import os, signal, time

calls = 0


def encode(texts):
    global calls
    calls += 1
    if calls == int(os.environ["DIE"]):
        while calls > 1 and not os.path.exists("o.bin.partial.state"):
            time.sleep(0.01)  # the process that writes is busy with the first answer
        os.kill(os.getppid() if os.environ["WORKERS"] == "1" else os.getpid(), signal.SIGKILL)
    return [list(text.encode()) for text in texts]


encode.vocabulary, encode.eot = 257, 256
"""


@pytest.mark.parametrize("workers, calls", [("0", "16"), ("1", "6")])
def test_killed_at_known_moments_it_goes_on_at_its_checkpoint(
    folder, corpus, monkeypatch, workers, calls
):
    (folder / "deadly.py").write_text(DEADLY)
    monkeypatch.setenv("WORKERS", workers)
    evenkeel.tokenize(corpus, "wanted.bin", "bytes", workers=0)
    words = [*corpus, "-o", "o.bin", "--tokenizer", "python:deadly:encode", "--resume"]
    words += ["--checkpoint", "1", "--workers", workers]
    for call in calls:  # before the first checkpoint, and behind it: a MiB has four calls
        monkeypatch.setenv("DIE", call)
        assert start(*words).wait() == -signal.SIGKILL
        assert (folder / "o.bin.partial.state").exists() == (call == "6")
        assert not (folder / "o.bin").exists()
    monkeypatch.setenv("DIE", "0")
    report = subprocess.run(
        [sys.executable, "-m", "evenkeel", "tokenize", *words, "--json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(report.stdout)["resumed"]
    assert (folder / "o.bin").read_bytes() == (folder / "wanted.bin").read_bytes()
    assert not [name for name in os.listdir() if ".partial" in name or name.endswith(".new")]


class Stop(Exception):
    pass


def stop_after(items):
    count = 0

    def progress(now):
        nonlocal count
        count += 1
        if count == items:
            raise Stop

    return progress


@pytest.fixture
def eager(monkeypatch):
    """Progress after every item, and small items."""
    from evenkeel._tokenize import documents, run

    monkeypatch.setattr(documents, "PIECE", 2048)
    monkeypatch.setattr(run._View, "_INTERVAL", 0)


def test_stopped_at_every_item_and_resumed_it_writes_the_same_bytes(folder, corpus, eager):
    given = {"val_share": 0.2, "workers": 0, "checkpoint": 1}
    lines = (folder / "a.jsonl").read_text().splitlines(keepends=True)
    (folder / "a.jsonl").write_text("".join(lines[:40]))
    evenkeel.tokenize("a.jsonl", "train.bin", "bytes", **given)
    wanted = [(folder / name).read_bytes() for name in ("train.bin", "val.bin")]
    stops = 0
    while True:
        stops += 1
        try:
            made = evenkeel.tokenize(
                "a.jsonl", "train.bin", "bytes", resume=stops > 1, progress=stop_after(2), **given
            )
            break
        except Stop:
            assert stops < 50
    assert stops > 3 and made["resumed"]
    assert [(folder / name).read_bytes() for name in ("train.bin", "val.bin")] == wanted
    again = evenkeel.tokenize("a.jsonl", "train.bin", "bytes", resume=True, **given)
    assert again["seconds"] == 0.0 and again["outputs"] == made["outputs"]


def test_killed_while_files_get_their_names(folder, corpus, monkeypatch):
    """The training set is complete, the validation set is not: only that is finished."""
    given = {"val_share": 0.2, "workers": 0}
    evenkeel.tokenize("b.jsonl", "train.bin", "bytes", **given)
    wanted = [(folder / name).read_bytes() for name in ("train.bin", "val.bin")]
    from evenkeel._tokenize import run

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_json", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            evenkeel.tokenize("b.jsonl", "train.bin", "bytes", **given)
    assert (folder / "val.bin.partial.state").exists()
    assert not (folder / "train.bin.partial.state").exists()
    monkeypatch.setattr(run, "Alone", None)  # nothing is tokenized again
    made = evenkeel.tokenize("b.jsonl", "train.bin", "bytes", resume=True, **given)
    assert [output["documents"] > 0 for output in made["outputs"]] == [True, True]
    assert [(folder / name).read_bytes() for name in ("train.bin", "val.bin")] == wanted


def test_other_options_are_not_resumed(folder, corpus, eager):
    given = {"workers": 0, "checkpoint": 1}
    with pytest.raises(Stop):
        evenkeel.tokenize("a.jsonl", "train.bin", "bytes", progress=stop_after(3), **given)
    with pytest.raises(ValueError, match="has other inputs or options\nhint: start again"):
        evenkeel.tokenize("b.jsonl", "train.bin", "bytes", resume=True, **given)
    made = evenkeel.tokenize("b.jsonl", "train.bin", "bytes", workers=0)
    assert not made["resumed"]


def test_a_worker_that_is_killed_is_an_error_with_its_signal(folder):
    (folder / "mine.py").write_text(
        "import os\n\n\ndef die(texts):\n    os.kill(os.getpid(), 9)\n\n\ndie.vocabulary = 5\n"
    )
    (folder / "a.txt").write_text("text")
    run = subprocess.run(
        [sys.executable, "-m", "evenkeel", "tokenize", "a.txt", "-o", "o.bin", "--workers=2"]
        + ["--tokenizer=python:mine:die", "--eot=none"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "a worker process was killed by signal 9 while it had text of" in run.stderr
    assert not [name for name in os.listdir() if name.startswith("o.bin")]
