"""evenkeel.shuffle, and the same in parts by a manifest: the same bytes."""

import json
import os

import numpy as np
import pytest
from tokenize_help import made_texts

import evenkeel

SEED = 7


def rows(count=20_000):
    return np.random.default_rng(1).random((count, 9), dtype=np.float32)


def in_parts(inputs, output, parts, order=None, **options):
    """All parts as a cluster would run them: each from the stored manifest."""
    plan = evenkeel.plan_shuffle(inputs, output, parts=parts, seed=SEED, **options)
    plan.save("m.json")
    for step in plan.steps:
        for part in reversed(step):
            evenkeel.Manifest.load("m.json").run(part, budget="16MiB")
    report = evenkeel.Manifest.load("m.json").finish()
    assert os.listdir(".").count(f"{output}.parts") == 0
    return report


@pytest.fixture
def texts(folder):
    lines = made_texts(4000, words=40)
    text = "".join(line.replace("\n", " ") + "\n" for line in lines)
    (folder / "a.txt").write_text(text[: len(text) // 2])  # ends in the middle of a line
    (folder / "b.txt").write_text("")
    (folder / "c.txt").write_text(text[len(text) // 2 :].rstrip("\n"))
    return ["a.txt", "b.txt", "c.txt"]


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_rows(folder, parts):
    np.save("x.npy", rows())
    evenkeel.shuffle("x.npy", "one.npy", seed=SEED)
    report = in_parts("x.npy", "many.npy", parts)
    assert report["items"] == 20_000
    assert (folder / "many.npy").read_bytes() == (folder / "one.npy").read_bytes()
    assert not np.array_equal(np.load("many.npy"), rows())
    assert np.array_equal(np.sort(np.load("many.npy")[:, 0]), np.sort(rows()[:, 0]))


@pytest.mark.parametrize("parts", [1, 5])
def test_lines_of_files_that_end_anywhere(folder, texts, parts):
    evenkeel.shuffle(texts, "one.txt", seed=SEED)
    in_parts(texts, "many.txt", parts, checksums=True)
    assert (folder / "many.txt").read_bytes() == (folder / "one.txt").read_bytes()
    assert (folder / "many.txt.xxh3").exists()


def test_a_line_that_is_longer_than_a_part(folder):
    (folder / "a.txt").write_text("x" * 5000 + "\nb\nc\n" + "y" * 3000)
    evenkeel.shuffle("a.txt", "one.txt", seed=SEED)
    in_parts("a.txt", "many.txt", 9)
    assert (folder / "many.txt").read_bytes() == (folder / "one.txt").read_bytes()


@pytest.mark.parametrize("format", ["megatron", "datatrove", "llm.c", "npy", None])
def test_documents(folder, format):
    draw = np.random.default_rng(2)
    with evenkeel.TokenWriter("in.bin", "megatron", "uint16") as writer:
        for _ in range(3000):
            writer.append(draw.integers(0, 60_000, draw.integers(1, 30)))
            writer.end_document()
    ending = {"datatrove": "ds", "npy": "npy"}.get(format, "bin")
    evenkeel.shuffle("in.idx", f"one.{ending}", seed=SEED, format=format)
    in_parts("in.idx", f"many.{ending}", 4, format=format)
    for path in folder.glob("one.*"):
        other = folder / path.name.replace("one", "many")
        assert other.read_bytes() == path.read_bytes(), path.name


def test_blocks_the_last_of_which_is_shorter(folder):
    np.arange(10_007, dtype=np.uint16).tofile("in.bin")
    given = {"unit": "blocks", "block": 100, "dtype": "uint16"}
    evenkeel.shuffle("in.bin", "one.bin", seed=SEED, **given)
    in_parts("in.bin", "many.bin", 3, **given)
    assert (folder / "many.bin").read_bytes() == (folder / "one.bin").read_bytes()


def test_more_parts_than_items(folder):
    np.save("x.npy", rows(3))
    evenkeel.shuffle("x.npy", "one.npy", seed=SEED)
    plan = evenkeel.plan_shuffle("x.npy", "many.npy", parts=100, seed=SEED)
    assert [len(step) for step in plan.steps] == [3, 3]
    in_parts("x.npy", "many.npy", 100)
    assert (folder / "many.npy").read_bytes() == (folder / "one.npy").read_bytes()


def test_steps_wait_for_each_other(folder, texts):
    plan = evenkeel.plan_shuffle(texts, "many.txt", parts=2)
    assert plan.steps == [range(2), range(2, 4), range(4, 6)]
    plan.run(0)
    with pytest.raises(ValueError, match="1 of 2 parts are not done: 1\nhint: run them, then part"):
        plan.run(2)
    with pytest.raises(ValueError, match="5 of 6 parts are not done"):
        plan.finish()
    for part in plan.missing:
        plan.run(part)
    assert plan.run(3)["resumed"] and not plan.missing
    plan.finish()
    assert plan.finished and not plan.missing
    assert plan.run(0)["resumed"]


def test_a_file_that_changed_is_refused(folder):
    np.save("x.npy", rows(100))
    plan = evenkeel.plan_shuffle("x.npy", "many.npy", parts=2)
    np.save("x.npy", rows(101))
    with pytest.raises(ValueError, match="has changed since the work was planned"):
        plan.run(0)


def test_an_edited_manifest_is_refused(folder):
    np.save("x.npy", rows(100))
    evenkeel.plan_shuffle("x.npy", "many.npy", parts=2).save("m.json")
    stored = json.loads((folder / "m.json").read_text())
    stored["job"]["seed"] = 8
    (folder / "m.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match="was changed since it was created"):
        evenkeel.Manifest.load("m.json")


@pytest.mark.parametrize(
    "text", [b"", b"\x93NUMPY", b"[1]", b'{"evenkeel_manifest": 1, "work": []}']
)
def test_another_file_is_not_a_manifest(folder, text):
    (folder / "m.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"manifest m\.json: not a manifest"):
        evenkeel.Manifest.load("m.json")


def test_a_manifest_does_not_replace_an_input(folder):
    np.save("x.npy", rows(100))
    plan = evenkeel.plan_shuffle("x.npy", "many.npy", parts=2)
    with pytest.raises(ValueError, match="the manifest is also an input"):
        plan.save("./x.npy")
    assert np.array_equal(np.load("x.npy"), rows(100))


def test_parts_go_on_after_a_kill(folder, python):
    """Each of them is killed twice on its way."""
    np.save("x.npy", rows(600_000))  # several buckets for each part that is written
    evenkeel.shuffle("x.npy", "one.npy", seed=SEED)
    plan = evenkeel.plan_shuffle("x.npy", "many.npy", parts=2, seed=SEED, budget="16MiB")
    plan.save("m.json")
    program = """
        import os, signal, sys
        import evenkeel
        calls = 0
        def die(now):
            global calls
            calls += 1
            if calls == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
        m = evenkeel.Manifest.load("m.json")
        m.run(int(sys.argv[1]), budget="16MiB", checkpoint=512 << 10, progress=die)
    """
    for part in range(len(plan)):
        for _ in range(2):
            # Distributing says something at each checkpoint, writing 13 times in each bucket.
            python(program, part, 20 if part in plan.steps[-1] else 8, code=-9)
        made = plan.run(part, budget="16MiB", checkpoint=512 << 10)
        assert made["resumed"], part
    plan.finish()
    assert (folder / "many.npy").read_bytes() == (folder / "one.npy").read_bytes()


def test_an_output_that_another_run_replaced_is_not_finished(folder):
    np.save("x.npy", rows(500))
    in_parts("x.npy", "out.npy", 2)
    wanted = (folder / "out.npy").read_bytes()
    again = evenkeel.plan_shuffle("x.npy", "out.npy", parts=2, seed=SEED)
    assert again.finished and not again.missing
    evenkeel.shuffle("x.npy", "out.npy", seed=SEED + 1)
    assert not again.finished
    in_parts("x.npy", "out.npy", 2)
    assert (folder / "out.npy").read_bytes() == wanted


@pytest.mark.parametrize("step", ["distribute", "write"])
def test_a_part_whose_file_is_lost_is_missing(folder, step):
    np.save("x.npy", rows(500))
    plan = evenkeel.plan_shuffle("x.npy", "out.npy", parts=2, seed=SEED)
    for part in range(len(plan)):
        plan.run(part)
    lost = plan.steps[["distribute", "write"].index(step)][1]
    for path in folder.glob(f"out.npy.parts/*/{lost:05d}.{step}.*"):
        if not path.name.endswith(".json"):
            path.unlink()
    assert plan.missing == [lost]
    plan.run(lost)
    plan.finish()
    evenkeel.shuffle("x.npy", "one.npy", seed=SEED)
    assert (folder / "out.npy").read_bytes() == (folder / "one.npy").read_bytes()


def test_what_cannot_be(folder):
    np.save("x.npy", rows(10))
    with pytest.raises(ValueError, match="parts must be 1 or more; got 0"):
        evenkeel.plan_shuffle("x.npy", "y.npy", parts=0)
    with pytest.raises(ValueError, match="outputs must be files, not URLs"):
        evenkeel.plan_shuffle("x.npy", "s3://bucket/y.npy", parts=2)
    with pytest.raises(ValueError, match="this is an input, too"):
        evenkeel.plan_shuffle("x.npy", "x.npy", parts=2)
    with pytest.raises(ValueError, match="a seed must be from 0"):
        evenkeel.shuffle("x.npy", "y.npy", seed=-1)
    with pytest.raises(IndexError, match="part 4 of a manifest of 4 parts"):
        evenkeel.plan_shuffle("x.npy", "y.npy", parts=2).run(4)
    with pytest.raises(TypeError, match="progress must be a function; got 3"):
        evenkeel.plan_shuffle("x.npy", "y.npy", parts=2).run(0, progress=3)


def test_numbers_are_not_cut_off(folder):
    np.save("x.npy", rows(100))
    for options, words in (
        ({"seed": 1.5}, "seed must be a whole number; got 1.5"),
        ({"seed": None}, "seed must be a whole number; got None"),
        ({"block": 1.5}, "block must be a whole number; got 1.5"),
        ({"shape": (-1, 9.5)}, "an axis of shape must be a whole number; got 9.5"),
        ({"format": 3}, "format must be a string; got 3"),
        ({"progress": 3}, "progress must be a function; got 3"),
    ):
        with pytest.raises(TypeError, match=words):
            evenkeel.shuffle("x.npy", "y.npy", **options)
    with pytest.raises(TypeError, match="parts must be a whole number; got 1.5"):
        evenkeel.plan_shuffle("x.npy", "y.npy", parts=1.5)
    with pytest.raises(ValueError, match="an axis of shape is too long"):
        evenkeel.shuffle("x.npy", "y.npy", shape=(2**70, 9))
    assert not os.path.exists("y.npy")
    assert evenkeel.shuffle("x.npy", "y.npy", seed=np.uint8(7), checksums=np.True_)["items"] == 100
