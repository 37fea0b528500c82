"""npz, FITS, NIfTI and HDF5, written by NumPy, astropy, nibabel, h5py and anndata."""

import pickle

import numpy as np
import pytest

import evenkeel
from evenkeel._containers import members

RNG = np.random.default_rng(0)


def check(array, want):
    assert array.shape == want.shape and array.dtype == want.dtype.newbyteorder("=")
    assert np.array_equal(array[...], want)
    rows = RNG.permutation(len(want))
    assert np.array_equal(array.take(rows), want[rows])
    again = pickle.loads(pickle.dumps(array))
    assert np.array_equal(again[...], want) and again.format == array.format


# ---- npz


def test_npz(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {
        "x": RNG.random((50, 7)).astype("float32"),
        "f": np.asfortranarray(RNG.random((9, 4))),
        "big": np.arange(20, dtype=">i4"),
        "when": np.arange(5).astype("datetime64[s]"),
        "pairs": np.zeros(6, dtype=[("a", "<i2"), ("b", "<f8")]),
    }
    np.savez(path, **arrays)
    for name in ("x", "f", "big"):
        check(evenkeel.open(path, name=name, budget="8MiB"), arrays[name])
    assert evenkeel.open(path, name="x.npy").format == "npz"
    for name in ("when", "pairs"):
        got = evenkeel.open(path, name=name)
        assert got.dtype == arrays[name].dtype and np.array_equal(got[...], arrays[name])
    with pytest.raises(ValueError, match=r"which array\? it holds x \(float32\), f"):
        evenkeel.open(path)
    with pytest.raises(ValueError, match="there is no array .y."):
        evenkeel.open(path, name="y")
    np.savez(path, größe=arrays["x"], f=arrays["f"])  # names as users must type them
    with pytest.raises(ValueError, match=r"it holds größe \(float32\), f"):
        evenkeel.open(path)


def test_npz_of_one_needs_no_name(tmp_path):
    np.savez(tmp_path / "a.npz", np.arange(10))
    check(evenkeel.open(tmp_path / "a.npz"), np.arange(10))


def test_npz_compressed_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(10))
    with pytest.raises(ValueError, match="compressed; save it with numpy.savez"):
        evenkeel.open(tmp_path / "a.npz", name="x")


def test_npz_damaged(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(100), y=np.arange(3))
    whole = (tmp_path / "a.npz").read_bytes()
    for cut in range(4, len(whole), 37):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="bad ZIP archive|no NPY|truncated"):
            evenkeel.open(tmp_path / "cut.npz", name="x")


def test_npz_in_zip64(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            np.save(member, np.arange(7.0))
    check(evenkeel.open(tmp_path / "a.npz", name="x"), np.arange(7.0))


def test_npz_with_an_object_array_is_listed(tmp_path):
    odd = np.array([{}, 1], dtype=object)
    np.savez(tmp_path / "a.npz", x=np.arange(10), odd=odd, y=np.arange(3.0))
    found = {member.name: member for member in members(tmp_path / "a.npz")}
    assert found["x"].shape == (10,) and not found["x"].refused and not found["y"].refused
    assert "Python objects" in found["odd"].refused
    with pytest.raises(ValueError, match=r"which array\? it holds x \(int64\), odd, y"):
        evenkeel.open(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="Python objects"):
        evenkeel.open(tmp_path / "a.npz", name="odd")
    check(evenkeel.open(tmp_path / "a.npz", name="y"), np.arange(3.0))


# ---- FITS


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "float32", "float64"])
def test_fits(tmp_path, dtype):
    fits = pytest.importorskip("astropy.io.fits")
    image = (RNG.random((6, 5, 4)) * 100).astype(dtype)
    other = np.arange(12, dtype="float32").reshape(3, 4)
    units = [fits.PrimaryHDU(image), fits.ImageHDU(other, name="SECOND")]
    fits.HDUList(units).writeto(tmp_path / "a.fits")
    check(evenkeel.open(tmp_path / "a.fits", name="0"), image)
    check(evenkeel.open(tmp_path / "a.fits", name="SECOND"), other)
    check(evenkeel.open(tmp_path / "a.fits", name="1"), other)
    with pytest.raises(ValueError, match="which array"):
        evenkeel.open(tmp_path / "a.fits")


def test_fits_scaled_and_tables(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    table = fits.BinTableHDU.from_columns([fits.Column("a", "J", array=np.arange(5))])
    fits.HDUList([fits.PrimaryHDU(np.arange(9, dtype="uint16")), table]).writeto(
        tmp_path / "a.fits"
    )
    with pytest.raises(ValueError, match="BZERO is 32768(.|\n)*dtype='>i2'") as error:
        evenkeel.open(tmp_path / "a.fits", name="0")
    offset = int(str(error.value).rsplit("offset=", 1)[1])
    raw = evenkeel.open(tmp_path / "a.fits", dtype=">i2", shape=(9,), offset=offset)
    assert np.array_equal(raw[:].astype(int) + 32768, np.arange(9))
    with pytest.raises(ValueError, match="a table, not an image"):
        evenkeel.open(tmp_path / "a.fits", name="1")
    compressed = fits.CompImageHDU(np.zeros((64, 64), dtype="int16"))
    fits.HDUList([fits.PrimaryHDU(), compressed]).writeto(tmp_path / "c.fits")
    with pytest.raises(ValueError, match="compressed"):
        evenkeel.open(tmp_path / "c.fits", name="1")
    holes = fits.PrimaryHDU(np.arange(9, dtype="int16"))
    holes.header["BLANK"] = 3
    holes.writeto(tmp_path / "b.fits")
    with pytest.raises(ValueError, match=r"3 \(BLANK\) stands for values that are missing"):
        evenkeel.open(tmp_path / "b.fits")


def test_fits_truncated(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    fits.PrimaryHDU(np.zeros((100, 100))).writeto(tmp_path / "a.fits")
    whole = (tmp_path / "a.fits").read_bytes()
    (tmp_path / "a.fits").write_bytes(whole[:5000])
    with pytest.raises(ValueError, match="ends beyond the file"):
        evenkeel.open(tmp_path / "a.fits")


# ---- NIfTI


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex64"])
def test_nifti(tmp_path, version, big, dtype):
    nib = pytest.importorskip("nibabel")
    kind = nib.Nifti1Image if version == 1 else nib.Nifti2Image
    data = (RNG.random((5, 4, 3, 2)) * 100).astype(dtype)
    header = kind.header_class(endianness=">" if big else "<")
    header.set_data_dtype(np.dtype(dtype).newbyteorder(">" if big else "<"))
    nib.save(kind(data, np.eye(4), header), tmp_path / "a.nii")
    array = evenkeel.open(tmp_path / "a.nii", budget="4MiB")
    stored = np.asarray(nib.load(tmp_path / "a.nii").dataobj)
    check(array, np.ascontiguousarray(stored.T).astype(dtype))
    assert array.format == "nifti"


def test_nifti_scaled(tmp_path):
    nib = pytest.importorskip("nibabel")
    image = nib.Nifti1Image(RNG.random((4, 4, 4)), np.eye(4))
    image.set_data_dtype(np.int16)
    nib.save(image, tmp_path / "a.nii")
    with pytest.raises(ValueError, match="stored numbers times"):
        evenkeel.open(tmp_path / "a.nii")
    image = nib.Nifti1Image(np.zeros((4, 4, 4), np.int16), np.eye(4))
    image.header.set_slope_inter(1e-7, 0.5)
    nib.save(image, tmp_path / "b.nii")
    with pytest.raises(ValueError, match="stored numbers times 1e-07 plus 0.5"):
        evenkeel.open(tmp_path / "b.nii")


# ---- HDF5

h5py = pytest.importorskip("h5py")


def test_hdf5_contiguous_and_chunked(tmp_path):
    path = tmp_path / "a.h5"
    x = RNG.random((103, 6, 2))
    with h5py.File(path, "w") as file:
        file["plain"] = x.astype("float32")
        file.create_dataset("group/chunked", data=x, chunks=(10, 6, 2))
        file.create_dataset("big", data=np.arange(50, dtype=">i4"), chunks=(7,))
        file.create_dataset("scalar", data=3.0)
        file["pairs"] = np.zeros(6, dtype=[("a", "<i2"), ("b", "<f8")])
    check(evenkeel.open(path, name="plain", budget="8MiB"), x.astype("float32"))
    check(evenkeel.open(path, name="group/chunked", budget="8MiB"), x)
    check(evenkeel.open(path, name="big"), np.arange(50, dtype=">i4"))
    assert evenkeel.open(path, name="pairs").dtype.names == ("a", "b")
    with pytest.raises(ValueError, match=r"which array\? it holds big, group/chunked, pairs"):
        evenkeel.open(path)
    with pytest.raises(ValueError, match="there is no array .nothing."):
        evenkeel.open(path, name="nothing")


def test_hdf5_damaged(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["broken"] = np.arange(500)
        file["x"] = np.arange(1000)
        place = file["x"].id.get_offset()
    whole = path.read_bytes()
    cut = whole[: place + 100]
    odd = whole.replace(b"TREE", b"BUSH")
    for stored in (cut, odd):
        path.write_bytes(stored)
        for name in (None, "x"):
            with pytest.raises(ValueError, match=rf"open {path}: h5py cannot read it"):
                evenkeel.open(path, name=name)
        with pytest.raises(ValueError, match=rf"open {path}: h5py cannot read it"):
            members(path)


def test_hdf5_types_without_a_dtype_do_not_hide_the_others(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10)
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((4,)))
    found = {member.name: member.refused for member in members(path)}
    assert found["x"] == "" and "h5py cannot read it" in found["time"]
    check(evenkeel.open(path, name="x"), np.arange(10))
    with pytest.raises(ValueError, match=rf"open {path}: h5py cannot read it"):
        evenkeel.open(path, name="time")


@pytest.mark.parametrize("size", [512, 1024, 2048])
def test_hdf5_user_block(tmp_path, size):
    path = tmp_path / "a.mat"  # MATLAB's files have one of 512 bytes
    with h5py.File(path, "w", userblock_size=size) as file:
        file["x"] = np.arange(1000)
        file.create_dataset("y", data=np.arange(1000), chunks=(64,))
    for name in ("x", "y"):
        check(evenkeel.open(path, name=name, budget="8MiB"), np.arange(1000))
    np.save(tmp_path / "a.npy", np.frombuffer(path.read_bytes(), dtype="uint8"))
    assert evenkeel.open(tmp_path / "a.npy").format == "npy"


def test_hdf5_chunks_in_any_order(tmp_path):
    path, want = tmp_path / "a.h5", RNG.random((100, 3))
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("x", (100, 3), "f8", chunks=(10, 3), maxshape=(None, 3))
        for start in (50, 0, 90, 20, 10, 70, 30, 40, 80, 60):
            data[start : start + 10] = want[start : start + 10]
    check(evenkeel.open(path, budget="8MiB"), want)
    a = evenkeel.open(path, engine="direct", budget="8MiB")
    assert np.array_equal(np.concatenate(list(a.batches(7))), want)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f.create_dataset("x", data=np.zeros(99), compression="gzip"), "compressed"),
        (lambda f: f.create_dataset("x", data=np.zeros((8, 8)), chunks=(4, 4)), "cut the rows"),
        (lambda f: f.create_dataset("x", (99,), "f8", chunks=(9,)), "0 of 11 chunks"),
        (lambda f: f.create_dataset("x", (99,), "f8"), "never written"),
        (lambda f: f.create_dataset("x", data=["a", "b"]), "not numbers"),
    ],
)
def test_hdf5_refused(tmp_path, make, message):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        make(file)
    with pytest.raises(ValueError, match=message):
        evenkeel.open(tmp_path / "a.h5", name="x")


def test_hdf5_links(tmp_path):
    path, other = tmp_path / "a.h5", tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["x"] = np.arange(100)
        file["group/x"] = np.arange(100)
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(500)[::-1]
        file["inner"] = h5py.SoftLink("/x")
        file["dangling"] = h5py.SoftLink("/nothing")
        file["out"] = h5py.ExternalLink("other.h5", "x")
        file["folder"] = h5py.ExternalLink("other.h5", "/group")
        file["round"] = h5py.SoftLink("/folder/x")
    assert evenkeel.open(path, name="inner")[0] == 499
    for name in ("out", "folder/x", "round"):
        with pytest.raises(ValueError, match="link to another file"):
            evenkeel.open(path, name=name)
    for name in ("dangling", "x/y", "nothing"):
        with pytest.raises(ValueError, match="there is no array"):
            evenkeel.open(path, name=name)


def sparse_group(file, name, **members):
    group = file.create_group(name)
    group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (2, 5)
    parts = {
        "data": np.arange(3, dtype="f4"),
        "indices": np.array([0, 4, 1]),
        "indptr": np.array([0, 2, 3]),
    }
    for key, value in {**parts, **members}.items():
        group[key] = value


def test_hdf5_sparse_matrix_within_one_file_and_budget(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["indices"] = np.array([4, 3, 2])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        sparse_group(file, "X")
        sparse_group(file, "Y", indices=h5py.ExternalLink("other.h5", "indices"))
    rows = evenkeel.open(tmp_path / "a.h5", name="X", budget="3MiB")
    assert rows.shape == (2, 5)
    one = evenkeel.open(tmp_path / "a.h5", name="X/data", budget="3MiB")
    assert rows.arrays[0].budget.in_use >= 3 * one.budget.in_use  # one budget, three arrays
    with pytest.raises(ValueError, match="link to another file"):
        evenkeel.open(tmp_path / "a.h5", name="Y")


def test_hdf5_types_that_h5py_converts(tmp_path):
    bfloat = h5py.h5t.IEEE_F32LE.copy()
    bfloat.set_fields(15, 7, 8, 0, 7)
    bfloat.set_precision(16)
    bfloat.set_size(2)
    bfloat.set_ebias(127)
    short = h5py.h5t.STD_I32LE.copy()
    short.set_precision(20)
    types = {"bfloat": bfloat, "short": short}
    types["text"] = h5py.h5t.FORTRAN_S1.copy()  # padded with spaces
    types["text"].set_size(6)
    types["array"] = h5py.h5t.array_create(h5py.h5t.IEEE_F32LE, (3,))
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 4)
    record.insert(b"a", 0, short)
    types["record"] = record
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, kind in types.items():
            space = h5py.h5s.create_simple((4,))
            h5py.h5d.create(file.id, name.encode(), kind, space)
            file[name][...] = np.zeros(4, dtype=file[name].dtype)
        file["flags"] = np.array([True, False])
        file["pairs"] = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", ">i2"), ("b", "<f8")])
        file["z"] = np.array([1 + 2j, 3], dtype="complex64")
        file["half"] = np.arange(5, dtype="float16")
        file["kind"] = np.array([1, 0], dtype=h5py.enum_dtype({"a": 0, "b": 1}, "<i4"))
    for name in types:
        with pytest.raises(ValueError, match="stored in another way"):
            evenkeel.open(path, name=name)
    for name in ("flags", "pairs", "z", "half", "kind"):
        with h5py.File(path) as file:
            want = file[name][...]
        assert np.array_equal(evenkeel.open(path, name=name)[:], want)


def test_h5ad_sparse_matrix(tmp_path):
    anndata = pytest.importorskip("anndata")
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(60, 20, density=0.2, format="csr", dtype="float32", random_state=0)
    anndata.AnnData(matrix).write_h5ad(tmp_path / "a.h5ad")
    rows = evenkeel.open(tmp_path / "a.h5ad", name="X", budget="16MiB")
    assert rows.shape == (60, 20)
    got = [batch.toarray() for batch in evenkeel.Loader(rows, 7, order="sequential")]
    assert np.array_equal(np.concatenate(got), matrix.toarray())


def test_h5py_missing_names_the_command(tmp_path, monkeypatch):
    import sys

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(3)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match="pip install h5py"):
        evenkeel.open(tmp_path / "a.h5", name="x")
