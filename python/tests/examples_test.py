"""The examples, the notebook and the code of docs/python.md and docs/loader.md run."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import evenkeel

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
PAGE = ROOT / "docs" / "python.md"
MIB = 1 << 20


@pytest.fixture
def temporary(folder, monkeypatch):
    """Where examples make their files: what they leave behind is found here."""
    made = folder / "temporary"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))  # torch's own
    yield made
    assert list(made.iterdir()) == []


def run(name, *args, code=0, **environment):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, args)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,  # a rank whose partner failed waits forever
    )
    assert (done.returncode, done.stderr) == (code, ""), done
    return done.stdout


# --- a small GPT


def losses(said):
    return [float(loss) for loss in re.findall(r"^step +\d+  loss ([\d.]+)$", said, re.MULTILINE)]


@pytest.fixture
def text():
    """Enough to learn from, wherever the tests run."""
    path = Path("text.txt")
    path.write_text("".join(f"{n} bottles stand on the wall\n" for n in range(3000)))
    return path


def test_the_gpt_learns_and_marks_its_phases(temporary, folder, text):
    pytest.importorskip("torch")
    marks = folder / "marks"
    marks.touch()
    said = losses(run("train_gpt.py", "--steps", 15, text, EVENKEEL_MARKS=str(marks)))
    assert len(said) == 15 and said[-1] < 0.8 * said[0]
    texts = [line.split(" ", 2)[2] for line in marks.read_text().splitlines()]
    assert texts[:3] == ["tokens", "training", "step 0"] and texts[-1] == "step 14"


@pytest.fixture
def gpt():
    """The program in this process: importing torch takes longer than the training."""
    torch = pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("train_gpt", EXAMPLES / "train_gpt.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)


def test_before_and_after_are_the_same_training(temporary, text, gpt, capsys, monkeypatch):
    said = []
    for way in ("memmap", "xy"):
        monkeypatch.setattr(
            sys, "argv", ["train_gpt.py", "--steps=8", f"--loader={way}", str(text)]
        )
        assert gpt.main() == 0
        said.append(capsys.readouterr().out)
    assert len(losses(said[0])) == 8
    assert said[0] == said[1]


def test_a_loss_that_did_not_fall_is_a_failure(temporary, text, gpt, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["", "--steps=1", str(text)])
    assert gpt.main() == 1


def test_the_gpt_finds_text_everywhere(folder, gpt):
    gpt.LICENSES = folder
    (folder / "License").write_text("Permission is hereby granted.")
    assert gpt.texts_found() == [folder / "License"]
    gpt.LICENSES = folder / "none"
    assert gpt.texts_found() == [EXAMPLES / "train_gpt.py"]


# --- a permuted matrix


@pytest.mark.not_emulated("the memory of the process includes the emulator's")
def test_the_matrix_is_the_same_and_memory_is_not(temporary, folder):
    rows = 60_000  # 37 MiB
    for _ in range(3):  # the kernel may evict pages of the memmap on its own
        said = run(
            "permuted_matrix.py", "--rows", rows, "--budget", "16MiB", "--report", "mem.html"
        )
        assert said.endswith("all loops read the same rows\n")
        memory = {
            name.strip(): float(first) * MIB
            for name, first in re.findall(r"^([^\d\n]+?) {2,}([\d.]+) .*$", said, re.MULTILINE)
        }
        alone = memory.pop("nothing, for comparison")
        before = memory.pop("before: np.memmap")
        if before - alone > 0.8 * rows * 162 * 4:
            break
    assert before - alone > 0.8 * rows * 162 * 4
    assert sorted(memory) == ["after: batches(shuffle=True)", "after: evenkeel.open"]
    for peak in memory.values():
        assert peak - alone < 16 * MIB
    assert Path("mem.html").read_text().count("data:image/svg+xml") == 3


def test_the_matrix_by_the_governed_memmap(temporary):
    said = run("permuted_matrix.py", "--rows", 5000, "--memmap")
    assert "after: evenkeel.memmap" in said and said.endswith("all loops read the same rows\n")


# --- the notebook


@pytest.mark.alone  # a guard works while the cells run
def test_the_notebook_tells_its_story(temporary, folder, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    story = nbformat.read(EXAMPLES / "story.ipynb", as_version=4)
    nbformat.validate(story)
    code = {cell.id: cell for cell in story.cells if cell.cell_type == "code"}
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code.values())

    nbclient.NotebookClient(story, timeout=300, kernel_name="python3").execute()
    outputs = [out.get("data", {}) for cell in code.values() for out in cell.outputs]
    shown = [data["text/html"] for data in outputs if "text/html" in data]
    assert len(shown) == 4 and all("data:image/svg+xml" in picture for picture in shown)
    table = code["all-code"].outputs[0].text
    mapped = {line[:16].strip(): float(line[16:25]) for line in table.splitlines()[1:]}
    assert mapped["np.memmap"] > 150  # of 192 MiB
    # A line of 32 MiB and its slack, and the libraries of Python, which the others map, too.
    assert mapped["evenkeel.memmap"] < 64 + mapped["evenkeel.open"]
    assert mapped["evenkeel.open"] < 100 and mapped["TokenLoader"] < 100


# --- rows, with other libraries


@pytest.mark.parametrize(
    ("example", "library", "rows"),
    [
        ("sklearn", "sklearn", 40_000),
        ("cells", "sklearn", 10_000),
        ("jax", "jax", 40_000),
        ("lightning", "lightning", 40_000),
    ],
)
def test_rows_train_with_other_libraries(temporary, example, library, rows):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"rows_{example}.py"), f"--rows={rows}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "epoch 1" in done.stdout, done


# --- from raw data to a model


def test_raw_text_becomes_a_trained_gpt(temporary, text):
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    said = run("text_to_gpt.py", "--steps", 25, "--vocabulary", 300, text)
    first, last = re.search(r"went from ([\d.]+) to ([\d.]+)$", said.strip()).groups()
    assert float(last) < 0.8 * float(first)


def test_csv_becomes_a_fitted_model(temporary):
    pytest.importorskip("sklearn")
    said = run("csv_to_model.py", "--rows", 8000)
    assert re.search(r"^8,000 rows of 20 features, accuracy 0\.\d+$", said, re.MULTILINE)


def test_ranks_tokenize_in_parts_and_the_last_one_joins_them(folder):
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "b.txt").write_text("three")
    evenkeel.tokenize("?.txt", "wanted.bin", "bytes", workers=0)
    example = ROOT / "examples" / "cluster" / "tokenize_ranks.py"
    for rank, said in ((1, "rank 1 of 2: done\n"), (0, "out.bin: 15 tokens\n")):
        words = ["?.txt", "out.bin", "bytes", "--budget", "96MiB"]
        done = run(example, *words, RANK=str(rank), WORLD_SIZE="2")
        assert done.endswith(said)
    assert (folder / "out.bin").read_bytes() == (folder / "wanted.bin").read_bytes()
    assert not (folder / "out.bin.lock").exists()


def test_ranks_shuffle_in_parts(folder):
    np.save("a.npy", np.arange(30_000.0).reshape(-1, 3))
    evenkeel.shuffle("a.npy", "wanted.npy", seed=4)
    example = ROOT / "examples" / "cluster" / "shuffle_ranks.py"
    words = ["a.npy", "out.npy", "--seed", "4", "--parts", "3", "--budget", "32MiB"]
    other = subprocess.Popen(
        [sys.executable, example, *words], env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"}
    )
    try:
        assert run(example, *words, RANK="0", WORLD_SIZE="2").endswith("out.npy: 10,000 items\n")
        assert other.wait(timeout=600) == 0
    finally:
        other.kill()
        other.wait()
    assert (folder / "out.npy").read_bytes() == (folder / "wanted.npy").read_bytes()


def submitted(folder, script, *words):
    """The output of a Slurm script, and its calls of sbatch, which here runs jobs at once."""
    for name, program in (
        (
            "sbatch",
            '#!/bin/bash\necho "$@" >>said\nfirst=0 last=0\n'
            "while [[ $1 == --* ]]; do\n"
            "  case $1 in --array=*) first=${1#*=}; last=${first#*-}; first=${first%-*} ;; esac\n"
            "  shift\ndone\n"
            "for SLURM_ARRAY_TASK_ID in $(seq $first $last); do\n"
            '  export SLURM_ARRAY_TASK_ID\n  "$@" >&2\ndone\n'
            "echo 17\n",
        ),
        ("evenkeel", f'#!/bin/sh\nexec {sys.executable} -m evenkeel "$@"\n'),
    ):
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "examples" / "cluster" / script, *words],
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "5",  # as inside salloc
            "EVENKEEL_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    return done.stdout.splitlines(), (folder / "said").read_text().splitlines()


def test_the_slurm_script_submits_itself_also_inside_salloc(folder):
    (folder / "a.txt").write_text("seven")
    (folder / "b.txt").write_text("three")
    said, told = submitted(folder, "tokenize.sbatch", "?.txt", "out.bin", "bytes", "2")
    assert said[-1] == "parts: job 17; finish: job 17"
    array, finish = told
    assert "--array=0-1" in array
    assert "--dependency=afterok:17 --kill-on-invalid-dep=yes" in finish
    evenkeel.tokenize("?.txt", "wanted.bin", "bytes", workers=0)
    assert (folder / "out.bin").read_bytes() == (folder / "wanted.bin").read_bytes()


def test_the_slurm_script_of_shuffle_has_an_array_for_each_step(folder):
    (folder / "a.txt").write_text("".join(f"line {i}\n" for i in range(1000)))
    said, told = submitted(folder, "shuffle.sbatch", "a.txt", "out.txt", "2")
    assert said == ["parts 0-1: job 17", "parts 2-3: job 17", "parts 4-5: job 17", "finish: job 17"]
    assert [line.split()[1].startswith("--dependency=afterok:17") for line in told] == [
        False,
        True,
        True,
        False,  # --cpus-per-task is before it
    ]
    evenkeel.shuffle("a.txt", "wanted.txt")
    assert (folder / "out.txt").read_bytes() == (folder / "wanted.txt").read_bytes()


@pytest.mark.parametrize("name", ["text_to_gpt.py", "csv_to_model.py"])
def test_these_are_short(name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 80


# --- the page

BLOCKS = [
    (page, page.read_text()[: found.start(1)].count("\n"), found[1])
    for page in (PAGE, PAGE.with_name("loader.md"))
    for found in re.finditer(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
]
ERRORS = re.findall(r"^\| `(.+?)` \| `(\w+Error)` \|", PAGE.read_text(), re.MULTILINE)


@pytest.fixture
def files(folder):
    """What the page speaks of."""
    features = np.arange(5000 * 162, dtype="float32").reshape(5000, 162)
    np.save("features.npy", features)
    features.tofile("x.f32")
    for name in ("x.npy", "x2.npy"):
        np.save(name, features[:3000, :8])
    np.save("y.npy", np.arange(3000) % 10)
    np.save("values.npy", np.arange(3000))
    np.save("offsets.npy", np.arange(0, 3001, 3))
    for name in ("train.bin", "code.bin", "text.bin"):
        (np.arange(50_000) % 50_257).astype("uint16").tofile(name)


def test_the_page_has_code_and_errors():
    assert len(BLOCKS) > 10 and len(ERRORS) > 10


@pytest.mark.parametrize(
    ("page", "line", "block"), BLOCKS, ids=[f"{page.stem}-{line + 1}" for page, line, _ in BLOCKS]
)
def test_code_on_the_page_runs(files, page, line, block):
    if "torch" in block:
        pytest.importorskip("torch")
    exec(compile("\n" * line + block, str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize(("wrong", "error"), ERRORS, ids=[wrong for wrong, _ in ERRORS])
def test_errors_on_the_page_are_raised(files, wrong, error):
    names = {
        "np": np,
        "evenkeel": evenkeel,
        "a": evenkeel.open("features.npy", budget="2MiB"),
        "train": evenkeel.tokens("train.bin"),
    }
    with pytest.raises(Exception) as raised:  # noqa: B017, the type is compared below
        eval(wrong, names)
    assert raised.type.__name__ == error


@pytest.mark.parametrize("name", ["python.md", "loader.md"])
def test_what_the_page_links_to_is_there(name):
    page = PAGE.with_name(name)
    links = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    assert links and all((page.parent / link).exists() for link in links)


# --- metrics


def test_metrics_are_served(temporary):
    said = run("serve_metrics.py")
    assert re.search(r"^evenkeel_batches_total 79$", said, re.MULTILINE)
    read = re.findall(r'^evenkeel_read_bytes_total\{source="\w+"\} (\d+)$', said, re.MULTILINE)
    assert len(read) == 6 and sum(map(int, read)) >= 79 * 256 * 64 * 4


class Written:
    """In place of torch's SummaryWriter, which needs TensorBoard."""

    def __init__(self, logdir):
        Written.last = self
        self.logdir, self.scalars, self.closed = logdir, {}, False

    def add_scalar(self, name, number, step):
        self.scalars.setdefault(name, []).append((step, number))

    def add_scalars(self, name, numbers, step):
        for one, number in numbers.items():
            self.add_scalar(f"{name}/{one}", number, step)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("writer", [True, False])
def test_loader_wait_stands_beside_step_time(temporary, monkeypatch, capsys, writer):
    pytest.importorskip("torch")
    module = types.SimpleNamespace(SummaryWriter=Written) if writer else None
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)  # None: not installed
    monkeypatch.setattr(sys, "argv", ["tensorboard_wait.py", "--logdir", "runs", "--steps", "12"])
    runpy.run_path(str(EXAMPLES / "tensorboard_wait.py"), run_name="__main__")
    said = capsys.readouterr().out
    if not writer:
        assert "tensorboard is not installed" in said and said.count("waiting for the loader") == 2
        return
    assert (Written.last.logdir, Written.last.closed) == ("runs", True)
    steps = Written.last.scalars["seconds/step"]
    waits = Written.last.scalars["seconds/loader wait"]
    assert [step for step, _ in steps] == [step for step, _ in waits] == list(range(12))
    assert all(0 <= wait <= step for (_, wait), (_, step) in zip(waits, steps, strict=True))
