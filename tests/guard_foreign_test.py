"""evenkeel guard on programs of others: their output is the same with and without the guard.

The budget is much smaller than their files, and the tests check that memory was released while they
ran. If possible, they run as a user without privileges.
"""

import hashlib
import importlib.util
import os
import shutil
import sys

import numpy as np
import pytest
from guard_help import MIB, drop_from_cache, guard, plain, write_numbers

FILE_MIB = 40
BUDGET = "8MiB"


@pytest.fixture(scope="module")
def environment(anyone):
    home = anyone.folder / "home"
    home.mkdir()
    anyone.own(home)
    return {
        **os.environ,
        "HOME": str(home),
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


@pytest.fixture(scope="module")
def numbers(anyone):
    return anyone.own(write_numbers(anyone.folder / "numbers.bin", FILE_MIB))


def drop_all(folder):
    """What a program has written, or another has read, is not in the page cache any more."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size >= MIB:
            drop_from_cache(path)


def same_both_ways(user, environment, command, input=None, again=lambda: None):
    """The program's output, which is the same with the guard and without. `again` puts back what it
    has changed."""
    drop_all(user.folder)
    expected = plain(user, *command, env=environment, input=input)
    for _ in range(5):
        again()
        drop_all(user.folder)
        done = guard(user, BUDGET, "--", *command, env=environment, input=input)
        assert done.stdout == expected
        if done.guarded >= 1 and done.released > 8 * MIB:
            return expected
        # The program may end before the guard has run.
    raise AssertionError(done.stderr)


def python(user, environment, source, *args, **kwargs):
    return same_both_ways(user, environment, [sys.executable, "-c", source, *args], **kwargs)


def need_modules(*names):
    """Checks without importing them: that takes seconds, and starts threads in this process."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no {name}")


def need_program(name):
    if not shutil.which(name):
        pytest.skip(f"no {name}")


# ---- NumPy (writes: guard_write_test.py)

NUMPY = """
import hashlib, sys
import numpy as np
data = np.memmap(sys.argv[1], dtype=np.uint64, mode=sys.argv[2])
print(hashlib.sha256(data).hexdigest(), data[::4096].sum(), data[::-1][:9], data.mean())
random = np.random.default_rng(3)
print(data[random.integers(len(data), size=5000)].sum())
"""


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_numpy_memmap(anyone, environment, numbers, mode):
    python(anyone, environment, NUMPY, numbers, mode)


def test_numpy_load_with_mmap_mode(anyone, environment):
    path = anyone.save(
        "array.npy", np.arange(FILE_MIB * MIB // 4, dtype=np.float32).reshape(-1, 64)
    )
    source = (
        "import sys, numpy as np; a = np.load(sys.argv[1], mmap_mode='r'); print(a.sum(0), a.T)"
    )
    python(anyone, environment, source, path)
    path.unlink()


# ---- Arrow

ARROW_MAKE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.feather, pyarrow.parquet
n = {mib} * (1 << 20) // 16
random = np.random.default_rng(1)
table = pa.table({"a": random.integers(1 << 60, size=n), "b": random.random(n)})
pa.feather.write_feather(table, "t.feather", compression="uncompressed")
pa.parquet.write_table(table, "t.parquet", compression="none", use_dictionary=False)
with pa.OSFile("t.arrow", "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
    writer.write_table(table, max_chunksize=1 << 16)
"""
ARROW_READ = """
import sys
import pyarrow as pa, pyarrow.compute as pc, pyarrow.feather, pyarrow.parquet
pa.set_cpu_count(2)
if sys.argv[1] == "feather":
    table = pa.feather.read_table("t.feather", memory_map=True)
elif sys.argv[1] == "parquet":
    table = pa.parquet.read_table("t.parquet", memory_map=True)
else:
    table = pa.ipc.open_file(pa.memory_map("t.arrow")).read_all()
for _ in range(2):
    print(table.num_rows, pc.sum(pc.bit_wise_and(table["a"], 0xFFFF)), pc.max(table["b"]))
print(table.slice(table.num_rows // 2, 3).to_pydict())
print(pc.sum(pc.bit_wise_and(table.take(list(range(0, table.num_rows, 999)))["a"], 0xFFFF)))
"""


@pytest.fixture(scope="module")
def arrow_files(anyone, environment):
    need_modules("pyarrow")
    source = ARROW_MAKE.replace("{mib}", str(FILE_MIB))
    plain(anyone, sys.executable, "-c", source, env=environment)
    yield
    for name in ("t.feather", "t.parquet", "t.arrow"):
        (anyone.folder / name).unlink()


@pytest.mark.parametrize("kind", ["feather", "parquet", "ipc"])
def test_pyarrow_memory_map(anyone, environment, arrow_files, kind):
    python(anyone, environment, ARROW_READ, kind)


# ---- torch, safetensors and Hugging Face datasets

# One program for all, because importing these takes longer than the work.
TORCH_MAKE = """
import datasets, numpy as np, torch
from safetensors.torch import save_file
n = {mib} * (1 << 20) // 8
torch.save({"w": torch.arange(n)}, "t.pt")
save_file({"a": torch.arange(n // 2), "b": torch.arange(n // 2, 0, -1)}, "t.safetensors")
rows = np.random.default_rng(1).integers(50257, size=(n // 1280, 1280))
features = datasets.Features({"ids": datasets.Sequence(datasets.Value("int64"))})
datasets.Dataset.from_dict({"ids": list(rows)}, features=features).save_to_disk("saved")
"""
TORCH = """
import sys
import torch
from safetensors import safe_open
from safetensors.torch import load_file
torch.set_num_threads(1)
words = {mib} * (1 << 20) // 8

def say(t):
    print(t.sum().item(), t[::4097].sum().item(), t[1000:1003].tolist(), t[-3:].tolist())

for shared in (False, True):
    say(torch.from_file(sys.argv[1], shared=shared, size=words, dtype=torch.int64))
storage = torch.UntypedStorage.from_file(sys.argv[1], False, words * 8)
say(torch.tensor([], dtype=torch.int64).set_(storage))
say(torch.load("t.pt", mmap=True, weights_only=True)["w"])
with safe_open("t.safetensors", framework="pt") as file:
    for key in file.keys():
        say(file.get_tensor(key))
        print(file.get_slice(key)[2000:2010].tolist())
for tensor in load_file("t.safetensors").values():
    say(tensor)
"""
DATASETS = """
import datasets, torch
torch.set_num_threads(1)
data = datasets.load_from_disk("saved").with_format("torch")
loader = torch.utils.data.DataLoader(
    data, batch_size=50, shuffle=True, num_workers=2, multiprocessing_context="fork",
    generator=torch.Generator().manual_seed(1))
total = 0
for step, batch in enumerate(loader):
    total = (total * 31 + int(batch["ids"].sum())) % (1 << 61)
print(step, total)
print(data[17]["ids"][:5].tolist(), int(data[:]["ids"].sum()))
"""


def with_size(source):
    return source.replace("{mib}", str(FILE_MIB))


def test_torch_safetensors_and_datasets_through_a_loader_with_workers(anyone, environment, numbers):
    """One program, because importing torch takes longer than the rest."""
    need_modules("torch", "safetensors", "datasets")
    plain(anyone, sys.executable, "-c", with_size(TORCH_MAKE), env=environment)
    python(anyone, environment, with_size(TORCH) + DATASETS, numbers)
    for name in ("t.pt", "t.safetensors"):
        (anyone.folder / name).unlink()
    shutil.rmtree(anyone.folder / "saved")


# ---- SQLite

SQLITE_MAKE = """
import os, random, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
random.seed(1)
db.execute("create table t (id integer primary key, owner integer, v blob, n integer)")
rows = ((i, i % 2, random.randbytes(1500), 0) for i in range({rows}))
db.executemany("insert into t values (?, ?, ?, ?)", rows)
db.execute("create index by_n on t (n, id)")
db.commit()
"""
# Two processes write different rows, and wait for each other's locks.
SQLITE_WRITE = """
import os, random, sqlite3, sys
path, rows = sys.argv[1], {rows}

def work(owner):
    db = sqlite3.connect(path, timeout=240, isolation_level=None)
    assert db.execute(f"pragma mmap_size={1 << 30}").fetchone()[0] == 1 << 30
    draw = random.Random(owner)
    for round in range(60):
        db.execute("begin immediate")
        for _ in range(20):
            id = draw.randrange(rows // 2) * 2 + owner
            (n, v) = db.execute("select n, v from t where id = ?", (id,)).fetchone()
            db.execute("update t set n = ?, v = ? where id = ?", (n + 1, v[::-1] + b"+", id))
        if round % 10 == 0:
            db.execute("select sum(length(v)) from t").fetchone()
        db.execute("commit" if round % 7 else "rollback")
    db.close()

children = []
for owner in (0, 1):
    child = os.fork()
    if child == 0:
        try:
            work(owner)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""
SQLITE_CHECK = """
.mode list
pragma mmap_size=1073741824;
pragma integrity_check;
select count(*), sum(n), sum(length(v)), min(hex(v)) from t;
select id, n, hex(substr(v, 1, 8)) from t where n > 0 order by id;
"""


def test_sqlite_with_mmap_and_two_writers(anyone, environment):
    need_program("sqlite3")
    rows = str(FILE_MIB * MIB // 1600)
    made = anyone.folder / "made.db"
    make = SQLITE_MAKE.replace("{rows}", rows)
    plain(anyone, sys.executable, "-c", make, made, env=environment)
    path = anyone.folder / "t.db"

    def again():
        shutil.copy(made, path)
        anyone.own(path)

    again()
    drop_all(anyone.folder)
    write = [sys.executable, "-c", SQLITE_WRITE.replace("{rows}", rows), path]
    assert plain(anyone, *write, env=environment) == "[0, 0]\n"
    expected = plain(anyone, "sqlite3", path, env=environment, input=SQLITE_CHECK)
    assert expected.splitlines()[1] == "ok"
    again()
    drop_all(anyone.folder)
    done = guard(anyone, BUDGET, "--", *write, env=environment)
    assert done.stdout == "[0, 0]\n"
    assert done.guarded >= 1 and done.released > 8 * MIB, done.stderr
    checked = same_both_ways(anyone, environment, ["sqlite3", path], input=SQLITE_CHECK)
    assert checked == expected
    made.unlink()
    path.unlink()


# ---- ripgrep and git


def test_ripgrep_with_mmap(anyone, environment):
    need_program("rg")
    lines = "".join(f"{i} {hashlib.md5(str(i).encode()).hexdigest()}\n" for i in range(MIB // 32))
    path = anyone.write("lines.txt", (lines.encode() * (FILE_MIB + 1))[: FILE_MIB * MIB])
    for words in (["-c", "a[0-9]f$"], ["--byte-offset", "^1[0-9]* fff"]):
        found = same_both_ways(
            anyone, environment, ["rg", "--mmap", "--no-config", "-j1", *words, path]
        )
        assert found.strip()
    path.unlink()


def test_git_on_a_large_pack(anyone, environment):
    need_program("git")
    repository = anyone.folder / "repository"

    def git(*args):
        return ["git", "-c", "gc.auto=0", "-C", repository, *args]

    repository.mkdir()
    anyone.own(repository)
    plain(anyone, *git("init", "-q"), env=environment)
    for i in range(4):
        name = repository / f"blob{i}"
        name.write_bytes(os.urandom(FILE_MIB * MIB // 4))
        anyone.own(name)
    plain(anyone, *git("add", "."), env=environment)
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    plain(anyone, *git(*author, "commit", "-qm", "blobs"), env=environment)
    plain(anyone, *git("repack", "-adq", "--window=0"), env=environment)
    same_both_ways(anyone, environment, git("fsck", "--full", "--no-progress"))
    # The contents are bytes, so digests are compared.
    command = f"git -C {repository} cat-file --batch-all-objects --batch | sha256sum"
    same_both_ways(anyone, environment, ["sh", "-c", command])
    shutil.rmtree(repository)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
