"""Reductions of arrays that do not fit in memory give NumPy's results in float64."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel
from evenkeel import _reduce

AXIS_ERROR = getattr(np, "exceptions", np).AxisError  # NumPy before 1.25: np.AxisError
NAMES = ["sum", "mean", "var", "std", "min", "max"]
DTYPES = ["?", "i1", "u2", ">i4", "i8", "u8", "f2", "<f4", ">f4", "f8", ">f8", "c8", ">c16"]


def wanted(data, name, axis, **options):
    """What NumPy gives in float64; extremes and sums of integers in their own type."""
    if name in ("min", "max") or (name == "sum" and data.dtype.kind in "biu"):
        return getattr(data, name)(axis=axis, **options)
    wide = data.astype(np.result_type(data.dtype, np.float64))
    return getattr(wide, name)(axis=axis, **options)


def close(got, want, data):
    assert np.shape(got) == np.shape(want)
    assert np.asarray(got).dtype == np.asarray(want).dtype.newbyteorder("=")
    if np.asarray(want).dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
    else:
        largest = np.abs(data[np.isfinite(data)]).astype("f8").max(initial=0)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13 * largest)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    made = {}
    folder = tmp_path_factory.mktemp("reduce")

    def get(shape, dtype, order):
        key = (shape, dtype, order)
        if key not in made:
            path = folder / f"{len(made)}.npy"
            rng = np.random.default_rng(len(made))
            data = rng.normal(3, 50, shape)
            if np.dtype(dtype).kind == "c":
                data = data + 1j * rng.normal(-2, 5, shape)
            elif np.dtype(dtype).kind in "u?":
                data = np.abs(data)
            data = np.array(data.astype(dtype), order=order)
            np.save(path, data)
            made[key] = evenkeel.open(path, budget="1MiB"), data
        return made[key]

    return get


@settings(deadline=None, max_examples=150)
@given(
    shape=st.sampled_from([(), (1,), (50_001,), (7000, 9), (300, 4, 5), (3, 500)]),
    dtype=st.sampled_from(DTYPES),
    order=st.sampled_from("CF"),
    name=st.sampled_from(NAMES),
    axis=st.sampled_from([None, 0]),
    keepdims=st.booleans(),
)
def test_results_are_numpys(stored, shape, dtype, order, name, axis, keepdims):
    array, data = stored(shape, dtype, order)
    if axis == 0 and not shape:
        with pytest.raises(AXIS_ERROR):
            getattr(array, name)(axis=0)
        return
    got = getattr(array, name)(axis=axis, keepdims=keepdims)
    close(got, wanted(data, name, axis, keepdims=keepdims), data)
    assert array.budget.peak <= array.budget.limit


def test_numpys_functions_call_the_methods(folder):
    data = np.random.default_rng(0).normal(size=(100_000, 10)).astype("f4")
    np.save("a.npy", data)
    a = evenkeel.open("a.npy", budget="1MiB")
    for axis in (None, 0):
        for name in NAMES:
            close(getattr(np, name)(a, axis=axis), wanted(data, name, axis), data)
        close(np.std(a, axis=axis, ddof=1), wanted(data, "std", axis, ddof=1), data)
    assert a.budget.peak <= a.budget.limit
    for wrong in ({"dtype": "f4"}, {"out": np.empty(10)}):
        with pytest.raises(TypeError, match="not supported"):
            np.mean(a, axis=0, **wrong)


def test_numbers_far_from_zero_lose_nothing(folder):
    """A sum of squares minus a square of sums would have no correct digit here."""
    data = 1e9 + np.random.default_rng(0).normal(size=(200_000, 3))
    np.save("a.npy", data)
    a = evenkeel.open("a.npy", budget="1MiB")
    exact = data - 1e9
    np.testing.assert_allclose(a.std(axis=0), exact.std(axis=0), rtol=1e-9)
    np.testing.assert_allclose(a.mean(axis=0) - 1e9, exact.mean(axis=0), atol=2e-7)
    np.save("b.npy", np.full(3_000_001, 0.1))
    b = evenkeel.open("b.npy", budget="1MiB")
    assert b.sum() == pytest.approx(300_000.1, rel=1e-15) and b.std() < 1e-15


def test_drift_does_not_spoil_the_variance(folder):
    data = np.repeat(np.arange(50.0) * 1e6, 4000) + np.tile([0.0, 1.0], 100_000)
    np.save("a.npy", data)
    a = evenkeel.open("a.npy", budget="1MiB")
    assert a.var() == pytest.approx(data.var(), rel=1e-13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_go_through(folder, name, axis, special):
    data = np.ones((40_000, 3), "f4")
    data[20_000, 1] = special
    data[30_000, 1] = np.inf if special == -np.inf else 1
    np.save("a.npy", data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = getattr(evenkeel.open("a.npy", budget="1MiB"), name)(axis=axis)
        want = wanted(data, name, axis)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [None, 0])
def test_nothing_is_as_numpys_nothing(folder, name, axis):
    data = np.empty((0, 3), "f4")
    np.save("a.npy", data)
    a = evenkeel.open("a.npy")
    if name in ("min", "max"):
        with pytest.raises(ValueError) as want:
            getattr(data, name)(axis=axis)
        with pytest.raises(ValueError) as got:
            getattr(a, name)(axis=axis)
        assert str(got.value) == str(want.value)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        got, want = getattr(a, name)(axis=axis), wanted(data, name, axis)
    np.testing.assert_array_equal(got, want)
    assert len(said) % 2 == 0  # the same warnings


def test_no_degrees_of_freedom(folder):
    np.save("a.npy", np.ones((1, 2)))
    a = evenkeel.open("a.npy")
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert np.isnan(a.std(axis=0, ddof=1)).all()
    assert (a.std(axis=0) == 0).all()


def test_integers_wrap_as_numpys(folder):
    data = np.full(100_000, 2**62)
    np.save("a.npy", data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evenkeel.open("a.npy", budget="1MiB").sum() == data.sum()


def test_dates_have_extremes(folder):
    data = np.arange(100_000).astype("M8[s]")
    np.save("a.npy", data)
    a = evenkeel.open("a.npy", budget="1MiB")
    assert (a.min(), a.max()) == (data.min(), data.max())
    with pytest.raises(TypeError, match="no mean"):
        a.mean()


def test_bfloat16(folder):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    data = np.arange(-500, 500).astype(ml_dtypes.bfloat16)
    np.save("a.npy", data)
    a = evenkeel.open("a.npy", dtype="bfloat16")
    wide = data.astype("f8")
    assert (a.mean(), a.sum(), a.min(), a.max()) == (wide.mean(), wide.sum(), -500, 500)
    assert a.std() == pytest.approx(wide.std(), rel=1e-12)


@pytest.mark.parametrize("dtype", ["S3", "f4,f4", "V4"])
def test_what_has_no_sum_is_refused(folder, dtype):
    np.save("a.npy", np.zeros(5, dtype))
    for name in NAMES:
        with pytest.raises(TypeError, match=f"no {name}"):
            getattr(evenkeel.open("a.npy"), name)()


def test_other_axes_are_refused(folder):
    np.save("a.npy", np.zeros((5, 3)))
    a = evenkeel.open("a.npy")
    for axis in (1, -1):
        with pytest.raises(ValueError, match="axis must be 0 or None"):
            a.mean(axis=axis)
    for axis in (2, -3):
        with pytest.raises(AXIS_ERROR):
            a.mean(axis=axis)
    assert a.mean(axis=-2).shape == (3,)


def test_an_axis_out_of_bounds_with_numpy_before_1_25(folder, monkeypatch):
    np.save("a.npy", np.zeros((5, 3)))
    a = evenkeel.open("a.npy")
    monkeypatch.setattr(_reduce, "np", SimpleNamespace(AxisError=AXIS_ERROR))
    with pytest.raises(AXIS_ERROR, match="axis 2 is out of bounds for array of dimension 2"):
        a.sum(axis=2)


def test_rows_that_do_not_fit_are_refused(folder):
    np.save("a.npy", np.zeros((3, 1_000_000)))
    a = evenkeel.open("a.npy", budget="4MiB")
    with pytest.raises(MemoryError):
        a.mean(axis=0)


def test_accumulators_of_complex64_are_complex128(tmp_path):
    rows = np.full((3, 1 << 18), 1 + 2j, "c8")
    np.save(tmp_path / "rows.npy", rows)
    with evenkeel.open(tmp_path / "rows.npy", budget="32MiB", engine="read") as a:
        # Nine of them for each column, of 16 bytes.
        with pytest.raises(MemoryError, match="accumulators need 37,748,736 bytes") as refused:
            a.sum(axis=0)
    enough = re.search(r"raise the budget to (\d+) MiB", str(refused.value))
    with evenkeel.open(tmp_path / "rows.npy", budget=int(enough[1]) << 20, engine="read") as a:
        np.testing.assert_array_equal(a.sum(axis=0), rows.sum(axis=0))
