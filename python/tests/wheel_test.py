"""The wheel by itself: built from a source package, in an environment with NumPy alone."""

import fcntl
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).resolve().parents[2]


def run(*command, cwd=None):
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_environment():
    ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    # Each build has a new folder; to a compiler cache they shall look alike, and like the release
    # build: CMake takes c++, where pip would take the compiler that Python was built with.
    alike = {"CCACHE_BASEDIR": tempfile.gettempdir(), "CCACHE_NOHASHDIR": "1"}
    return {"CXX": "c++", **ours, **alike}


def made_once(tmp_path_factory, name, make):
    """The file that `make(folder)` writes. Test workers that run in parallel share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder /= name
        if not folder.exists():
            unfinished = folder.with_suffix(".part")
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    make = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"
    return made_once(
        tmp_path_factory, "sdist", lambda folder: run(sys.executable, "-c", make, folder, cwd=ROOT)
    )


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    def make(folder):
        run(
            sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--quiet",
            "-w", folder, sdist,
        )  # fmt: skip

    return made_once(tmp_path_factory, "wheel", make)


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """The Python of an environment with NumPy, which is taken from ours, and the wheel."""
    import numpy

    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip()
    source = Path(numpy.__file__).parent
    for name in (source, source.parent / "numpy.libs"):
        if name.exists():
            (Path(packages) / name.name).symlink_to(name)
    return python


def test_version_stands_in_one_place(wheel, sdist):
    text = (ROOT / "CMakeLists.txt").read_text()
    version = text.split("project(evenkeel VERSION ")[1].split()[0]
    assert wheel.name.startswith(f"evenkeel-{version}-")
    assert sdist.name == f"evenkeel-{version}.tar.gz"


def test_what_is_in_them(wheel, sdist):
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("py.typed", "_core.pyi", "__main__.py", "bin/evenkeel"):
        assert f"evenkeel/{name}" in names
    assert not [name for name in names if name.startswith(("include", "lib", "share"))]
    (data,) = {name.split("/")[0] for name in names if ".data/" in name}
    for name in ("bash-completion/completions/evenkeel", "man/man1/evenkeel-guard.1"):
        assert f"{data}/data/share/{name}" in names
    for licence in ("LICENSE", "THIRD_PARTY_NOTICES.txt"):
        assert [name for name in names if name.endswith(f".dist-info/licenses/{licence}")]
    tops = {name.split("/")[1] for name in tarfile.open(sdist).getnames()}
    assert {"CMakeLists.txt", "src", "cli", "python"} <= tops
    assert not [name for name in tops if name.startswith("build")]


def test_its_metadata_is_what_an_index_shows(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    headers, _, page = archive.read(name).decode().partition("\n\n")
    assert "Requires-Python: >=3.9" in headers and "Keywords: " in headers
    assert "Classifier: Typing :: Typed" in headers
    # Relative links would not work from the page of another site.
    assert page.startswith("# Evenkeel") and not re.findall(r"\]\((?!https://)", page)


def test_the_module_exports_its_entry_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (module,) = (tmp_path / "evenkeel").glob("_core.*.so")
    exported = run("nm", "-D", "--defined-only", module).split("\n")
    assert [line.split()[-1] for line in exported if line] == ["PyInit__core"]


def test_it_needs_nothing_but_the_languages_own_libraries(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    built = [tmp_path / "evenkeel/bin/evenkeel", *(tmp_path / "evenkeel").glob("_core.*.so")]
    assert len(built) == 2
    for file in built:
        needed = run("readelf", "-d", file).split("Shared library: [")[1:]
        names = {line.split(".so")[0] for line in needed}
        assert names <= {"libc", "libm", "libstdc++", "libgcc_s", "libpthread", "ld-linux-x86-64"}


def test_it_works_with_numpy_alone(fresh, tmp_path):
    program = """
import sys, numpy as np, evenkeel
np.save("a.npy", np.arange(3000.0).reshape(-1, 3))
a = evenkeel.open("a.npy", budget="2MiB")
assert (a[[5, 999], 1] == [16, 2998]).all()
assert sum(map(len, a.batches(7, shuffle=True))) == 1000
with evenkeel.profile() as p:
    evenkeel.mark("x")
p.report("p.html")
assert not {"torch", "ml_dtypes", "tqdm"} & set(sys.modules)
print(evenkeel.__version__)
"""
    said = run(fresh, "-I", "-c", program, cwd=tmp_path)
    assert said.strip() in (ROOT / "CMakeLists.txt").read_text()


@pytest.mark.parametrize("way", ["script", "module"])
def test_the_tool_comes_with_it(fresh, way, tmp_path):
    tool = [fresh, "-m", "evenkeel"] if way == "module" else [fresh.parent / "evenkeel"]
    assert run(*tool, "--version").startswith("evenkeel ")
    run(fresh, "-c", "import numpy; numpy.save('a.npy', numpy.zeros(3))", cwd=tmp_path)
    assert "float64" in run(*tool, "info", "a.npy", cwd=tmp_path)
    failed = subprocess.run(
        [*tool, "nonsense"], env=clean_environment(), capture_output=True, text=True
    )
    assert failed.returncode == 2 and "nonsense" in failed.stderr
