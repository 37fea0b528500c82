"""evenkeel.ray.tokenize and TokenSink on a local Ray cluster; a worker is killed in the middle."""

import json
import os
import sys

import pytest
from tokenize_help import made_texts

import evenkeel

try:
    import ray
    import ray.data

    import evenkeel.ray as evenkeel_ray

    missing = None
except ImportError as error:
    missing = error

pytestmark = pytest.mark.skipif(
    missing is not None, reason=f"could not import 'ray.data': {missing}"
)

NAMES = ("train.bin", "train.idx", "val.bin", "val.idx")
GIVEN = {"val_share": 0.1, "format": "megatron"}

# A tokenizer that kills its own process, at its third call, once.
DEADLY = """
import os, signal

calls = 0


def encode(texts):
    global calls
    calls += 1
    if calls == 3 and not os.path.exists(DIED):
        open(DIED, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return [list(text.encode()) for text in texts]


encode.vocabulary, encode.eot = 257, 256
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """A folder that Ray's workers import from."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "deadly.py").write_text(f"DIED = {str(folder / 'died')!r}\n{DEADLY}")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module", autouse=True)
def cluster(modules):
    path = os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        _memory=16 << 30,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield
    ray.shutdown()


@pytest.fixture
def texts():
    return made_texts(6000, words=200)


@pytest.fixture
def files(folder, texts):
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    (folder / "a.jsonl").write_text("".join(lines[:4000]))
    (folder / "b.jsonl").write_text("".join(lines[4000:]))
    return [folder / "a.jsonl", folder / "b.jsonl"]


@pytest.fixture
def wanted(folder, files):
    """What one process makes."""
    os.mkdir("one")
    evenkeel.tokenize(files, folder / "one" / "train.bin", "bytes", workers=0, **GIVEN)
    return contents(folder / "one")


def contents(folder):
    assert sorted(os.listdir(folder)) == sorted([*NAMES, "train.bin.tokenize.json"])
    return [(folder / name).read_bytes() for name in NAMES]


def test_four_workers_give_the_bytes_of_one_process(folder, files, wanted):
    os.mkdir("ray")
    plan = evenkeel.plan(files, "ray/train.bin", "bytes", parts=8, **GIVEN)
    plan.save("m.json")
    report = evenkeel_ray.tokenize(folder / "m.json", budget="128MiB")
    assert report["documents"] == 6000
    assert contents(folder / "ray") == wanted


def test_a_worker_that_is_killed_is_replaced(folder, files, wanted, modules):
    os.mkdir("ray")
    plan = evenkeel.plan(files, "ray/train.bin", "python:deadly:encode", parts=6, **GIVEN)
    evenkeel_ray.tokenize(plan, budget="256MiB")
    assert (modules / "died").exists()
    assert contents(folder / "ray") == wanted


def test_the_sink_writes_rows_in_order(folder, texts, wanted):
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    os.mkdir("sink")
    rows = ray.data.from_items([{"text": text} for text in texts], override_num_blocks=5)
    rows.write_datasink(evenkeel_ray.TokenSink(folder / "sink" / "train.bin", "bytes", **GIVEN))
    assert contents(folder / "sink") == wanted


def test_the_sink_takes_lists_of_tokens(folder):
    lists = [[1, 2, 3], [], [4], [5, 70000]]
    rows = ray.data.from_items([{"ids": ids} for ids in lists], override_num_blocks=1)
    rows.write_datasink(
        evenkeel_ray.TokenSink(folder / "x.npy", column="ids", dtype="uint32", eot=9)
    )
    assert evenkeel.tokens("x.npy")[:].tolist() == [1, 2, 3, 9, 4, 9, 5, 70000, 9]
    with pytest.raises(ValueError, match="pass their dtype and eot"):
        evenkeel_ray.TokenSink("x.npy", column="ids")
