"""NumPy's own tests of np.memmap, from the NumPy that is installed, run on evenkeel.memmap."""

import importlib.util
import pathlib
import warnings

import numpy as np
import pytest

import evenkeel


def _tests_of_numpy():
    package = pathlib.Path(np.__file__).parent
    core = "_core" if (package / "_core" / "tests").is_dir() else "core"  # NumPy 2 and 1
    path = package / core / "tests" / "test_memmap.py"
    spec = importlib.util.spec_from_file_location("numpy_test_memmap", path)
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():  # marks of NumPy's own
        warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)
        spec.loader.exec_module(module)
    assert module.memmap is np.memmap
    module.memmap = evenkeel.memmap
    return module


_module = _tests_of_numpy()
_tests = {name: test for name, test in vars(_module).items() if name.lower().startswith("test")}
globals().update(_tests)


def test_all_of_them_are_here():
    names = [name for test in _tests.values() for name in vars(test) if name.startswith("test_")]
    assert len(names) >= 19 and "test_memmap_subclass" in names
