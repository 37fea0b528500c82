"""Zarr arrays whose chunks must be decoded: compressed, cut, transposed, or never written."""

import importlib.util
import json
import pickle
import shutil
import subprocess
import sys
import zlib

import numpy as np
import pytest

import evenkeel
from evenkeel import _core

zarr = pytest.importorskip("zarr")

RNG = np.random.default_rng(0)
WANT = (RNG.random((53, 6)) * 100).astype("int32")


def check(array, want):
    assert array.shape == want.shape and array.dtype == want.dtype
    assert array.engine.startswith("decode (")
    assert np.array_equal(array[...], want)
    assert np.array_equal(array[7:40:3], want[7:40:3])
    rows = RNG.integers(0, len(want), 200)
    assert np.array_equal(array.take(rows), want[rows])
    assert np.array_equal(array[int(rows[0])], want[rows[0]])
    assert np.array_equal(pickle.loads(pickle.dumps(array))[...], want)
    got = np.concatenate([*array.batches(7)])
    assert np.array_equal(got, want)
    for index, batch in array.batches(9, shuffle=True, with_index=True):
        assert np.array_equal(batch, want[index])


def codec_of(name, version):
    if version == 2:
        numcodecs = pytest.importorskip("numcodecs")
        return {
            "zstd": numcodecs.Zstd(level=3),
            "blosc": numcodecs.Blosc(cname="lz4", shuffle=1),
            "blosc zstd": numcodecs.Blosc(cname="zstd", shuffle=2),
            "gzip": numcodecs.GZip(level=1),
            "zlib": numcodecs.Zlib(level=1),
        }[name]
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    return {
        "zstd": ZstdCodec(level=3, checksum=True),
        "blosc": BloscCodec(cname="lz4", shuffle="shuffle"),
        "blosc zstd": BloscCodec(cname="zstd", shuffle="bitshuffle"),
        "gzip": GzipCodec(level=1),
    }[name]


def write(folder, want=WANT, version=3, codec="zstd", chunks=(10, 6), **more):
    made = zarr.create_array(
        folder,
        shape=want.shape,
        chunks=chunks,
        dtype=want.dtype,
        compressors=codec_of(codec, version) if codec else None,
        zarr_format=version,
        **more,
    )
    made[:] = want
    return made


@pytest.mark.parametrize(
    ("version", "codec"),
    [(2, codec) for codec in ("zstd", "blosc", "blosc zstd", "gzip", "zlib")]
    + [(3, codec) for codec in ("zstd", "blosc", "blosc zstd", "gzip")],
)
def test_compressed(tmp_path, version, codec):
    write(tmp_path / "a", version=version, codec=codec)
    check(evenkeel.open(tmp_path / "a", budget="8MiB"), WANT)


@pytest.mark.parametrize("chunks", [(60, 6), (1, 6), (10, 4), (7, 1), (53, 8)])
@pytest.mark.parametrize("version", [2, 3])
def test_chunks_of_any_shape(tmp_path, version, chunks):
    write(tmp_path / "a", version=version, chunks=chunks)
    check(evenkeel.open(tmp_path / "a", budget="8MiB"), WANT)


def test_four_axes_big_endian_and_fortran(tmp_path):
    want = RNG.random((11, 3, 5, 4))
    cut = {"want": want, "chunks": (4, 2, 5, 3)}
    write(tmp_path / "f", version=2, order="F", **cut)
    check(evenkeel.open(tmp_path / "f", budget="8MiB"), want)
    write(tmp_path / "plain", version=2, codec=None, order="F", **cut)
    check(evenkeel.open(tmp_path / "plain", budget="8MiB"), want)
    from zarr.codecs import BytesCodec, TransposeCodec

    order = TransposeCodec(order=(2, 0, 3, 1))
    write(tmp_path / "t", serializer=BytesCodec(endian="big"), filters=[order], **cut)
    check(evenkeel.open(tmp_path / "t", budget="8MiB"), want)


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("inner", [(5, 6), (5, 3)])
def test_shards(tmp_path, location, inner):
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

    serializer = ShardingCodec(
        chunk_shape=inner,
        codecs=[BytesCodec(), ZstdCodec(), Crc32cCodec()],
        index_location=location,
    )
    want = WANT.copy()
    want[20:25] = 0  # a chunk that is not written
    write(tmp_path / "a", want, codec=None, chunks=(20, 6), serializer=serializer)
    check(evenkeel.open(tmp_path / "a", budget="8MiB"), want)


@pytest.mark.parametrize("fill", [-7, 0])
@pytest.mark.parametrize("codec", ["zstd", None])
def test_what_was_never_written_is_the_fill_value(tmp_path, codec, fill):
    made = zarr.create_array(
        tmp_path / "a",
        shape=WANT.shape,
        chunks=(10, 4),
        dtype="int32",
        compressors=codec_of(codec, 3) if codec else None,
        fill_value=fill,
    )
    made[12:15] = WANT[12:15]
    check(evenkeel.open(tmp_path / "a", budget="8MiB"), made[:])


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("float32", float("nan")), ("float64", float("-inf")), ("complex64", 1 + 2j), ("bool", True)],
)
@pytest.mark.parametrize("version", [2, 3])
def test_fill_values(tmp_path, version, dtype, fill):
    made = zarr.create_array(
        tmp_path / "a", shape=(5,), chunks=(2,), dtype=dtype, fill_value=fill, zarr_format=version
    )
    got = evenkeel.open(tmp_path / "a")[:]
    assert got.tobytes() == made[:].tobytes() and got.dtype == made.dtype


@pytest.mark.parametrize("dtype", ["<M8[ns]", ">m8[s]"])
def test_dates_that_were_never_written_are_not_a_time(tmp_path, dtype):
    made = zarr.create_array(
        tmp_path / "a", shape=(5,), chunks=(2,), dtype=dtype, fill_value=None, zarr_format=2
    )
    got = evenkeel.open(tmp_path / "a")[:]
    assert np.isnat(got).all() and np.isnat(made[:]).all() and got.dtype == np.dtype(dtype)


def test_a_loader_and_blocks(tmp_path):
    want = np.arange(4000, dtype="int64").reshape(1000, 4)
    write(tmp_path / "a", want, chunks=(8, 4))
    array = evenkeel.open(tmp_path / "a", budget="16MiB")
    assert array.chunks == (1000, 4)
    loader = evenkeel.Loader({"x": array}, 100, seed=3, epochs=2)
    seen = np.concatenate([batch["x"] for batch in loader])
    assert np.array_equal(np.sort(seen[:1000, 0]), want[:, 0]) and len(seen) == 2000
    loader = evenkeel.Loader(array, 100, order="blocks", window=1000)
    assert loader.blocks_in_use[0] == 128  # whole chunks
    assert np.array_equal(np.sort(np.concatenate([*loader])[:, 0]), want[:, 0])
    loader.load_state_dict(loader.state_dict())
    batches = array.batches(100, shuffle="blocks", window=1000)
    batches.load_state_dict(batches.state_dict())
    assert np.array_equal(np.sort(np.concatenate([*batches])[:, 0]), want[:, 0])


def test_a_chunk_is_decoded_once(tmp_path):
    want = RNG.random((512, 64))
    write(tmp_path / "a", want, chunks=(128, 64))
    array = evenkeel.open(tmp_path / "a", budget="16MiB", cache=False)
    assert np.array_equal(array.take(np.arange(512)[::-1]), want[::-1])
    assert array.stats()["requests"] == 4
    for row in (3, 130, 4, 131):
        assert np.array_equal(array[row], want[row])
    assert array.stats()["requests"] == 4  # they were still in memory


def test_a_child_of_fork_goes_on(tmp_path):
    write(tmp_path / "a")
    program = (
        "import os, sys, numpy, evenkeel\n"
        "a = evenkeel.open(sys.argv[1], budget='8MiB')\n"
        "first = a[:]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if numpy.array_equal(a[:], first) else 1)\n"
        "assert numpy.array_equal(a.take([50, 2]), first[[50, 2]])\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "a"], check=True, timeout=120)


# ---- what is wrong


def chunk_of(folder, version=3):
    return folder / ("c/1/0" if version == 3 else "1.0")


@pytest.mark.parametrize(
    ("codec", "version"), [("zstd", 3), ("blosc", 3), ("gzip", 3), ("zlib", 2), (None, 3)]
)
def test_damaged_chunks(tmp_path, codec, version):
    folder = tmp_path / "a"
    write(folder, version=version, codec=codec, chunks=(10, 3))
    file = chunk_of(folder, version)
    whole = file.read_bytes()
    wrong = [whole[: len(whole) // 2], whole[:-1], b"", b"\0" * 40, RNG.bytes(300)]
    wrong += [whole + b"x"] if codec == "blosc" else []
    for stored in wrong:
        file.write_bytes(stored)
        array = evenkeel.open(folder, budget="8MiB")
        assert np.array_equal(array[:10], WANT[:10])
        with pytest.raises(ValueError, match=r"(?s)c/1/0|1\.0"):
            array[10:20]
    file.write_bytes(whole)
    assert np.array_equal(array[:], WANT)  # the array can still be used


@pytest.mark.parametrize(
    ("codec", "version"), [("zstd", 3), ("blosc", 3), ("gzip", 3), ("zlib", 2), (None, 3)]
)
def test_a_chunk_of_another_size(tmp_path, codec, version):
    """Longer ones and shorter ones, as another array has them."""
    folder = tmp_path / "a"
    write(folder, version=version, codec=codec, chunks=(10, 3))
    for rows in (3, 5000):
        other = tmp_path / f"{rows}"
        zeros = np.zeros((2 * rows, 6), "int32") + 1
        write(other, zeros, version=version, codec=codec, chunks=(rows, 3))
        chunk_of(folder, version).write_bytes(chunk_of(other, version).read_bytes())
        with pytest.raises(ValueError, match=r"120") as error:
            evenkeel.open(folder, budget="8MiB")[:]
        assert chunk_of(folder, version).name in str(error.value)


def test_a_bomb_stays_within_the_budget(tmp_path):
    write(tmp_path / "a", version=2, codec="zlib")
    chunk_of(tmp_path / "a", 2).write_bytes(zlib.compress(bytes(1 << 28), 9)[:60000])
    array = evenkeel.open(tmp_path / "a", budget="8MiB")
    with pytest.raises(ValueError, match="more than 240 bytes"):
        array[:]
    assert array.budget.peak <= 8 << 20


def test_chunks_that_do_not_fit_the_budget(tmp_path):
    write(tmp_path / "a", np.zeros((4, 1 << 20), "int32"), chunks=(4, 1 << 20))
    with pytest.raises(MemoryError, match="decoded chunks|compressed chunks"):
        evenkeel.open(tmp_path / "a", budget="8MiB")
    assert evenkeel.open(tmp_path / "a", budget="128MiB")[2, :3].tolist() == [0, 0, 0]


def test_shards_with_a_wrong_index(tmp_path):
    from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec

    sharding = ShardingCodec(chunk_shape=(5, 6), codecs=[BytesCodec(), ZstdCodec()])
    write(tmp_path / "a", codec=None, chunks=(20, 6), serializer=sharding)
    file = tmp_path / "a" / "c/0/0"
    whole = file.read_bytes()
    for stored, message in (
        (whole[:-6] + b"\1" + whole[-5:], "CRC-32C"),
        (whole[-40:], "too few for its index of 68"),
        (whole[:-68] + with_checksum([(1 << 40, 5)] * 4), "the file has"),
        (whole[:-68] + with_checksum([(0, 3)] * 4), "damaged"),
    ):
        file.write_bytes(stored)
        with pytest.raises(ValueError, match=message):
            evenkeel.open(tmp_path / "a", budget="8MiB")[:]


def with_checksum(places):
    index = np.array(places, dtype="<u8").tobytes()
    return index + _core.crc32c(index).to_bytes(4, "little")


def test_crc32c():
    assert _core.crc32c(b"123456789") == 0xE3069283 and _core.crc32c(b"") == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"filters": [{"id": "delta", "dtype": "<i4"}]}, "filter delta"),
        ({"compressor": {"id": "lzma"}}, "lzma, which is not known"),
        ({"order": "Z"}, "order 'Z'"),
        ({"fill_value": "nonsense"}, "fill value"),
        ({"chunks": [1 << 62, 1 << 62]}, "more bytes than any file"),
        ({"chunks": [10]}, "chunks of shape"),
        ({"shape": [0, 6]}, "no rows"),
        ({"shape": [1 << 64, 6]}, "bad lengths of axes"),
        ({"shape": [1 << 64, 6], "compressor": None}, "bad lengths of axes"),
        ({"shape": ["many", 6]}, "bad Zarr metadata: ValueError"),
        ({"shape": [float("nan"), 6]}, "bad Zarr metadata: ValueError"),
        ({"dtype": "<V0"}, "it holds <V0"),
        ({"dtype": None}, "it holds None"),
        ({"dtype": "(2,)<i4"}, r"it holds \(2,\)<i4"),
        ({"zarr_format": 3}, "zarr_format 3, not 2"),
    ],
)
def test_metadata_of_version_2(tmp_path, change, message):
    write(tmp_path / "a", version=2)
    meta = json.loads((tmp_path / "a" / ".zarray").read_text())
    (tmp_path / "a" / ".zarray").write_text(json.dumps({**meta, **change}))
    with pytest.raises(ValueError, match=message):
        evenkeel.open(tmp_path / "a", budget="8MiB")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunk_key_encoding": {"name": "suffix"}}, "names of the kind 'suffix'"),
        ({"chunk_key_encoding": "fanout"}, "names of the kind 'fanout'"),
        ({"storage_transformers": [{"name": "cipher"}]}, "storage transformer cipher"),
        ({"zarr_format": 4}, "zarr_format 4, not 3"),
        ({"zarr_format": None}, "zarr_format None, not 3"),
        ({"data_type": {"name": "numpy.datetime64", "configuration": {}}}, "numpy.datetime64"),
        ({"chunk_grid": {"name": "rectangular"}}, "rectangular"),
        ({"data_type": {}}, "bad Zarr metadata: KeyError: 'name'"),
        ({"chunk_grid": 7}, "bad Zarr metadata"),
        ({"shape": ["many", 6]}, "bad Zarr metadata: ValueError"),
        ({"masks": {"name": "masks"}}, "its metadata has 'masks'"),
    ],
)
def test_metadata_of_version_3(tmp_path, change, message):
    write(tmp_path / "a")
    change_metadata(tmp_path / "a", change)
    with pytest.raises(ValueError, match=message):
        evenkeel.open(tmp_path / "a", budget="8MiB")


def change_metadata(folder, change):
    meta = json.loads((folder / "zarr.json").read_text())
    (folder / "zarr.json").write_text(json.dumps({**meta, **change}))


def test_parts_of_the_metadata_may_be_names(tmp_path):
    write(tmp_path / "a")
    names = {"codecs": ["bytes", "zstd"], "data_type": {"name": "int32"}}
    ignored = {"masks": {"name": "masks", "must_understand": False}}
    change_metadata(tmp_path / "a", {**names, **ignored, "chunk_key_encoding": "default"})
    check(evenkeel.open(tmp_path / "a", budget="8MiB"), WANT)


def test_an_array_that_is_gone_is_not_the_fill_value(tmp_path):
    write(tmp_path / "a")
    array = evenkeel.open(tmp_path / "a", budget="8MiB")
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="the array is gone"):
        array[3]


@pytest.mark.parametrize("codec", ["zstd", None])
def test_a_link_that_leads_nowhere_is_not_the_fill_value(tmp_path, codec):
    """git-annex stores files as links, whose data is fetched later."""
    write(tmp_path / "a", codec=codec)
    file = chunk_of(tmp_path / "a")
    file.unlink()
    file.symlink_to(tmp_path / "objects" / "XY")
    with pytest.raises(FileNotFoundError, match="c/1/0: the chunk is a link to a file"):
        evenkeel.open(tmp_path / "a", budget="8MiB")[:]


BYTES, ZSTD, CRC = ({"name": name} for name in ("bytes", "zstd", "crc32c"))


@pytest.mark.parametrize(
    ("codecs", "message"),
    [
        ([BYTES, {"name": "zfpy"}], "zfpy, which is not known"),
        ([BYTES, CRC, ZSTD], "zstd after crc32c"),
        ([BYTES, ZSTD, ZSTD], "zstd after zstd"),
        ([ZSTD], "encoded with zstd"),
        ([], "no codec of bytes"),
        ([{"name": "transpose", "configuration": {"order": [0, 0]}}, BYTES], "transposed by"),
        ([{"name": "cast_value"}, BYTES], "cast_value"),
        ([{"name": "bytes", "configuration": {"endian": "middle"}}], "byte order 'middle'"),
        (
            [
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [5, 6],
                        "codecs": [BYTES],
                        "index_codecs": [BYTES],
                        "index_location": "middle",
                    },
                }
            ],
            "indexes of its shards are at 'middle'",
        ),
    ],
)
def test_codecs_of_version_3(tmp_path, codecs, message):
    write(tmp_path / "a")
    change_metadata(tmp_path / "a", {"codecs": codecs})
    with pytest.raises(ValueError, match=message):
        evenkeel.open(tmp_path / "a", budget="8MiB")


def test_engines_that_do_not_decode(tmp_path):
    write(tmp_path / "a")
    for how in ({"engine": "direct"}, {"page_cache": "fill"}):
        with pytest.raises(ValueError, match="cannot decode the compressed chunks"):
            evenkeel.open(tmp_path / "a", **how)
    np.save(tmp_path / "x.npy", WANT)
    with pytest.raises(ValueError, match="reads compressed chunks"):
        evenkeel.open(tmp_path / "x.npy", engine="decode")


def test_numcodecs_need_not_be_imported(tmp_path):
    """Its libraries are loaded, not its modules, which take a tenth of a second."""
    if importlib.util.find_spec("numcodecs") is None:
        pytest.skip("could not import 'numcodecs'")
    write(tmp_path / "a", codec="blosc")
    program = (
        "import sys, evenkeel\n"
        "evenkeel.open(sys.argv[1], budget='8MiB')[:]\n"
        "assert 'numcodecs' not in sys.modules and 'zarr' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "a"], check=True, timeout=120)
