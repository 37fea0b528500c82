"""scripts/release_check: a release in miniature passes, and each thing that breaks is named. Also
the headers that scripts/wheels takes."""

import gzip
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "release_check"
TAGS = ["cp39-cp39", "cp310-cp310", "cp311-cp311", "cp312-abi3"]
MACHINES = {"x86_64": 62, "aarch64": 183}
COMPONENTS = [
    {"name": "fmt", "licence": "MIT", "in": ["wheel", "deb tool"], "from": "debian:libfmt-dev"},
    {"name": "musl", "licence": "MIT", "in": ["tool"], "from": "zig:libc/musl"},
]
NOTICES = "".join(f"{'=' * 9}\n{part['name']}\n{'=' * 9}\n\nMIT\n" for part in COMPONENTS)
TEXTS = {
    "CMakeLists.txt": "project(evenkeel VERSION 0.7.1 LANGUAGES NONE)\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## [0.7.1] - 2026-02-03\n\n- A line.\n",
    "CITATION.cff": "version: 0.7.1\ndate-released: 2026-02-03\n",
    "CODE_OF_CONDUCT.md": "Be kind.\n",
    "LICENSE": "Apache\n",
    "THIRD_PARTY_NOTICES.txt": NOTICES,
    "pyproject.toml": "[project.urls]\n",
    "packaging/bundled.json": json.dumps({"components": COMPONENTS}),
    "packaging/debian/changelog": "evenkeel (0.7.1-1) unstable; urgency=medium\n",
    "packaging/debian/control": "Package: libevenkeel0.7\n",
    "packaging/debian/libevenkeel0.7.install": "",
    "scripts/wheels": 'PACKAGES = """\n    libfmt-dev libfmt9\n"""\n',
    "build/site/index.html": "",
    "build/site/CHANGELOG.html": "<h2>0.7.1</h2>",
    "dist/evenkeel_0.7.1-1_amd64.deb": "tool",
    "dist/libevenkeel0.7_0.7.1-1_amd64.deb": "library",
    "dist/libevenkeel-dev_0.7.1-1_amd64.deb": "headers",
}


def write_wheel(path, *, without="", version="0.7.1", padding=0):
    names = ["evenkeel/__init__.py", "evenkeel/py.typed", "evenkeel/bin/libevenkeel_guard.so"]
    names.append("evenkeel-0.7.1.data/data/share/man/man1/evenkeel.1")
    about = "evenkeel-0.7.1.dist-info"
    files = dict.fromkeys(names, "")
    files[f"{about}/METADATA"] = f"Name: evenkeel\nVersion: {version}\n"
    for licence in ("LICENSE", "THIRD_PARTY_NOTICES.txt"):
        files[f"{about}/licenses/{licence}"] = TEXTS[licence]
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            if not without or not name.endswith(without):
                wheel.writestr(name, text)
        wheel.writestr("padding", b"\0" * padding)


def write_sdist(path, *more):
    parts = ["PKG-INFO", "CMakeLists.txt", "LICENSE", "pyproject.toml", "include/evenkeel/array.h"]
    with tarfile.open(path, "w:gz") as source:
        for name in [*parts, *more]:
            source.addfile(tarfile.TarInfo(f"evenkeel-0.7.1/{name}"), io.BytesIO())


def program(machine, segment=1):
    """A header of ELF with one segment: PT_LOAD, or PT_INTERP (3)."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 2, machine, 1, 0, 64, 0)
    return head + struct.pack("<IHHHHHH", 0, 64, 56, 1, 0, 0, 0) + struct.pack("<I", segment)


def write_bill(root, *, without=""):
    files, depends = [], []
    for file in sorted((root / "dist").iterdir()):
        if file.suffix in (".gz", ".json"):
            continue
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        files.append(
            {"bom-ref": file.name, "name": file.name, "hashes": [{"content": digest}]},
        )
        inside = [part["name"] for part in COMPONENTS if part["name"] != without]
        depends.append({"ref": file.name, "dependsOn": inside})
    files += [{"bom-ref": part["name"], "name": part["name"]} for part in COMPONENTS]
    bill = {
        "bomFormat": "CycloneDX",
        "metadata": {"component": {"version": "0.7.1"}},
        "components": files,
        "dependencies": depends,
    }
    (root / "dist/evenkeel-0.7.1.cdx.json").write_text(json.dumps(bill))


def wheel_of(root, arch="x86_64", tag=TAGS[0]):
    return root / f"dist/evenkeel-0.7.1-{tag}-manylinux_2_28_{arch}.whl"


@pytest.fixture
def release(tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for arch, machine in MACHINES.items():
        for tag in TAGS:
            write_wheel(wheel_of(tmp_path, arch, tag))
        (tmp_path / f"dist/evenkeel-{arch}").write_bytes(program(machine))
    write_sdist(tmp_path / "dist/evenkeel-0.7.1.tar.gz")
    write_bill(tmp_path)
    return tmp_path


def load(name):
    """A script as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.fixture(scope="module")
def script():
    return load("release_check")


def problems(script, root):
    release = script.Release(root, list(MACHINES))
    found = {name: script.wrong_with(release, name) for name in script.CHECKS}
    return {name: wrong for name, wrong in found.items() if wrong}


def test_a_complete_release_passes(release):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--root", release], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("release_check: 0.7.1 can be released\n")
    assert done.stdout.count(" good\n") == 10


def test_what_is_wrong_is_said_and_fails(release):
    (release / "dist/evenkeel-x86_64").unlink()
    done = subprocess.run(
        [sys.executable, SCRIPT, "--root", release, "tool"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "evenkeel-x86_64: one file expected, found none" in done.stdout
    done = subprocess.run(
        [sys.executable, SCRIPT, "--root", release, "deb"], capture_output=True, text=True
    )
    assert done.stdout.endswith("release_check: deb: good\n")  # and not that all can be released
    done = subprocess.run([sys.executable, SCRIPT, "toll"], capture_output=True, text=True)
    assert done.returncode == 2 and "no check toll" in done.stderr


def replace(name, old, new):
    def change(root):
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return change


def remove(name):
    return lambda root: (root / name).unlink()


def cut_off(name, size):
    def change(root):
        (file,) = root.glob(name)
        file.write_bytes(file.read_bytes()[:size])

    return change


BREAKS = {
    "debian changelog": (
        replace("packaging/debian/changelog", "0.7.1", "0.7.0"), "versions", "says 0.7.0"),
    "citation": (replace("CITATION.cff", "0.7.1", "0.6.0"), "versions", "says 0.6.0"),
    "soname": (
        replace("packaging/debian/control", "l0.7", "l0.6"), "versions", "is libevenkeel0.7"),
    "install file": (
        remove("packaging/debian/libevenkeel0.7.install"), "versions", "libevenkeel0.7.install"),
    "unreleased": (
        replace("CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- More.\n"),
        "changelog", "Unreleased is not empty"),
    "no date": (replace("CHANGELOG.md", " - 2026-02-03", ""), "changelog", "YEAR-MONTH-DAY"),
    "no such day": (replace("CHANGELOG.md", "2026-02-03", "2026-02-30"), "changelog", "no date"),
    "future": (replace("CHANGELOG.md", "2026-02-03", "9999-02-03"), "changelog", "the future"),
    "other day": (replace("CITATION.cff", "2026-02-03", "2026-02-04"), "changelog", "2026-02-04"),
    "address": (
        replace("packaging/debian/control", "Package", "Maintainer: a@b.example\nPackage"),
        "home", "a@b.example"),
    "no url": (replace("pyproject.toml", "[project.urls]", ""), "home", "[project.urls]"),
    "no wheel": (lambda root: wheel_of(root).unlink(), "wheels", "found none"),
    "newer glibc": (
        lambda root: wheel_of(root).rename(str(wheel_of(root)).replace("2_28", "2_36")),
        "wheels", "glibc 2.28"),
    "large": (lambda root: write_wheel(wheel_of(root), padding=7 << 20), "wheels", "more than"),
    "metadata": (lambda root: write_wheel(wheel_of(root), version="1"), "wheels", "metadata"),
    "no guard": (lambda root: write_wheel(wheel_of(root), without=".so"), "wheels", "guard.so"),
    "no notices": (
        lambda root: write_wheel(wheel_of(root), without="NOTICES.txt"), "wheels", "NOTICES"),
    "no sdist": (remove("dist/evenkeel-0.7.1.tar.gz"), "sdist", "found none"),
    "rubbish": (
        lambda root: write_sdist(root / "dist/evenkeel-0.7.1.tar.gz", "build-x/file"),
        "sdist", "leftover"),
    "dynamic": (
        lambda root: (root / "dist/evenkeel-x86_64").write_bytes(program(62, 3)),
        "tool", "dynamic loader"),
    "other machine": (
        lambda root: (root / "dist/evenkeel-aarch64").write_bytes(program(62)),
        "tool", "another machine"),
    "no deb": (remove("dist/libevenkeel-dev_0.7.1-1_amd64.deb"), "deb", "found none"),
    "old deb": (
        lambda root: (root / "dist/evenkeel_0.7.1-1_amd64.deb").rename(
            root / "dist/evenkeel_0.7.0-1_amd64.deb"),
        "deb", "does not have version"),
    "no docs": (remove("build/site/index.html"), "docs", "found none"),
    "old docs": (
        replace("build/site/CHANGELOG.html", "0.7.1", "0.7.0"), "docs", "does not name 0.7.1"),
    "no notice": (
        replace("THIRD_PARTY_NOTICES.txt", "musl", "libc"), "licences", "nothing of musl"),
    "not listed": (
        replace("scripts/wheels", "libfmt9", "libzstd-dev"), "licences", "takes libzstd-dev"),
    "no bill": (remove("dist/evenkeel-0.7.1.cdx.json"), "sbom", "found none"),
    "other bytes": (
        lambda root: (root / "dist/evenkeel_0.7.1-1_amd64.deb").write_text("changed"),
        "sbom", "does not know evenkeel_0.7.1-1_amd64.deb"),
    "cut wheel": (cut_off(f"dist/*{TAGS[0]}*x86_64.whl", 300), "wheels", "x86_64.whl: it cannot"),
    "cut sdist": (cut_off("dist/*.tar.gz", 100), "sdist", "evenkeel-0.7.1.tar.gz: "),
    "empty sdist": (cut_off("dist/*.tar.gz", 0), "sdist", "evenkeel-0.7.1.tar.gz: "),
    "cut tool": (cut_off("dist/evenkeel-x86_64", 40), "tool", "evenkeel-x86_64: it cannot"),
    "cut bill": (cut_off("dist/*.cdx.json", 200), "sbom", "0.7.1.cdx.json: it cannot"),
    "other bill": (
        lambda root: (root / "dist/evenkeel-0.7.1.cdx.json").write_text("[]"),
        "sbom", "0.7.1.cdx.json: it cannot"),
    "lacks": (lambda root: write_bill(root, without="musl"), "sbom", "lacks musl"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_each_check_finds_what_is_broken(script, release, name):
    change, check, words = BREAKS[name]
    change(release)
    found = problems(script, release)
    assert check in found, found
    assert any(words in what for what in found[check]), found
    # What depends on the file's bytes may notice, too; nothing else does.
    assert set(found) <= {check, "sbom", "wheels"}, found


def test_older_than_the_last_commit_counts_as_missing(script, release, monkeypatch):
    monkeypatch.setattr(script.Release, "last_commit", lambda self: 1e12)
    found = problems(script, release)
    for check in ("wheels", "sdist", "tool", "deb", "docs", "sbom"):
        assert any("older than the last commit" in what for what in found[check]), found


def test_the_list_of_components_is_made_of_what_was_compiled(script, release, monkeypatch):
    cache = release / "cache"
    documents = cache / "packages/amd64-1/usr/share/doc/libfmt-dev"
    version = cache / "tools/lib/python3.11/site-packages/ziglang/lib/libc/musl/src/internal"
    for folder in (documents, version):
        folder.mkdir(parents=True)
    with gzip.open(documents / "changelog.Debian.gz", "wt") as file:
        file.write("fmtlib (9.1.0+ds1-2) unstable; urgency=medium\n")
    (version / "version.h").write_text('#define VERSION "1.2.5"\n')
    (release / "dist/evenkeel-0.7.1.cdx.json").unlink()

    sbom = load("sbom")
    for name, value in {"ROOT": release, "CACHE": cache, "DIST": release / "dist"}.items():
        monkeypatch.setattr(sbom, name, value)
    monkeypatch.setattr(sbom, "installed_version", lambda package: "10.1.0-3")
    monkeypatch.setattr(sys, "argv", ["sbom"])
    sbom.main()
    bill = json.loads((release / "dist/evenkeel-0.7.1.cdx.json").read_text())
    depends = {part["ref"]: part.get("dependsOn", []) for part in bill["dependencies"]}
    fmt = "pkg:deb/debian/libfmt-dev@{}?distro=bookworm"
    assert depends[wheel_of(release).name] == [fmt.format("9.1.0%2Bds1-2")]
    assert depends["evenkeel-x86_64"] == ["pkg:generic/musl@1.2.5"]
    assert depends["evenkeel_0.7.1-1_amd64.deb"] == [fmt.format("10.1.0-3")]
    assert problems(script, release) == {}


def test_without_dist_there_is_nothing_to_list(release, monkeypatch):
    sbom = load("sbom")
    monkeypatch.setattr(sbom, "DIST", release / "none")
    monkeypatch.setattr(sys, "argv", ["sbom"])
    with pytest.raises(SystemExit, match="nothing in dist/: run make wheels"):
        sbom.main()


def test_this_checkout_agrees_with_itself(script):
    """What can be said before a release: one version, and licences of all that is inside."""
    release = script.Release(ROOT, list(MACHINES))
    assert list(script.licences(release)) == []
    assert list(script.versions(release)) == []


def test_wheels_take_debians_headers_without_its_stub(tmp_path, monkeypatch):
    """Debian's pyconfig.h only includes another one, which zig would look for in /usr/include."""
    wheels = load("wheels")
    monkeypatch.setattr(wheels, "CACHE", tmp_path / "cache")
    include = tmp_path / "usr/include/python3.11"
    real = tmp_path / "usr/include/x86_64-linux-gnu/python3.11/pyconfig.h"
    for path, text in (
        (include / "Python.h", "#include <pyconfig.h>\n"),
        (include / "pyconfig.h", "#include <x86_64-linux-gnu/python3.11/pyconfig.h>\n"),
        (real, "#define SIZEOF_LONG 8\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for multiarch, wanted in (("x86_64-linux-gnu", "SIZEOF_LONG"), ("", "#include <x86_64")):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\nprintf '%s\\n' '{include}' '{multiarch}'\n")
        python.chmod(0o755)
        copied = wheels.python_headers(python, "cp311")
        assert (copied / "Python.h").read_text() == "#include <pyconfig.h>\n"
        assert wanted in (copied / "pyconfig.h").read_text()
