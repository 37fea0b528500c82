"""Type annotations are right, and the examples in docstrings run."""

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import evenkeel

PACKAGE = Path(evenkeel.__file__).resolve().parent
HERE = Path(__file__).parent


def test_mypy_takes_what_is_right_and_finds_a_wrong_use(tmp_path):
    pytest.importorskip("mypy")
    # That of scripts/lint: most of the time goes into other people's types.
    root = HERE.parents[1]
    cache = root / ".cache" / "mypy" if os.access(root, os.W_OK) else tmp_path

    def check(*what):
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *what],
            env={**os.environ, "MYPYPATH": str(HERE)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    checked = check("-p", "evenkeel", "-p", "usage")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import evenkeel\nevenkeel.open('x', budget=1.5)\n")
    checked = check(str(wrong))
    assert checked.returncode == 1 and 'has incompatible type "float"' in checked.stdout


def test_the_stub_is_that_of_the_module(tmp_path):
    """To regenerate: python -m nanobind.stubgen -m evenkeel._core -o python/evenkeel/_core.pyi"""
    pytest.importorskip("nanobind")
    made = tmp_path / "_core.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "evenkeel._core", "-o", str(made)],
        check=True,
    )
    assert made.read_text() == (PACKAGE / "_core.pyi").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "evenkeel",
        "_array",
        "_open",
        "_write",
        "_write_tokens",
        "_batches",
        "_tokens",
        "_rows",
        "_ragged",
        "_profile",
        "_reduce",
        "_core",
        "_tokenize.api",
        "_manifest",
        "_shuffle",
        "_stats",
    ],
)
def test_examples_in_docstrings(name, folder):
    module = importlib.import_module("evenkeel" if name == "evenkeel" else f"evenkeel.{name}")
    if name == "_core":  # a native module's names are not found by themselves
        finder = doctest.DocTestFinder()
        tests = finder.find(module.Budget, "Budget", globs={})
        failed = sum(doctest.DocTestRunner().run(test).failed for test in tests)
        tried = sum(len(test.examples) for test in tests)
    else:
        failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 0


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()


def test_all_public_names_have_a_docstring():
    pytest.importorskip("torch")  # some names are of classes that torch has to know
    for name in evenkeel.__all__:
        assert getattr(evenkeel, name).__doc__, name
