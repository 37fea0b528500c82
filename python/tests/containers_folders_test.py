"""Zarr, MosaicML and litData folders, written by their own libraries."""

import importlib.util
import json
import os
import pickle

import numpy as np
import pytest

import evenkeel

RNG = np.random.default_rng(0)
WANT = RNG.random((53, 4)).astype("float32")


def check(array, want):
    assert array.shape == want.shape and array.dtype == want.dtype
    assert np.array_equal(array[...], want)
    rows = RNG.permutation(len(want))
    assert np.array_equal(array.take(rows), want[rows])
    assert np.array_equal(pickle.loads(pickle.dumps(array))[...], want)


zarr = pytest.importorskip("zarr")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("chunk", [53, 10, 60])
def test_zarr(tmp_path, version, chunk):
    made = zarr.create_array(
        tmp_path / "a.zarr",
        shape=WANT.shape,
        chunks=(chunk, 4),
        dtype="float32",
        compressors=None,
        zarr_format=version,
    )
    made[:] = WANT
    check(evenkeel.open(tmp_path / "a.zarr", budget="8MiB"), WANT)


@pytest.mark.parametrize("location", ["start", "end"])
def test_zarr_shards(tmp_path, location):
    from zarr.codecs import BytesCodec, ShardingCodec

    serializer = ShardingCodec(chunk_shape=(5, 4), codecs=[BytesCodec()], index_location=location)
    made = zarr.create_array(
        tmp_path / "a.zarr",
        shape=WANT.shape,
        chunks=(20, 4),
        dtype="float32",
        compressors=None,
        serializer=serializer,
        zarr_format=3,
    )
    made[:] = WANT
    check(evenkeel.open(tmp_path / "a.zarr", budget="8MiB"), WANT)


def test_zarr_groups(tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=3)
    for name in ("x", "deep/y"):
        made = group.create_array(name, shape=(9,), chunks=(4,), dtype="int64", compressors=None)
        made[:] = np.arange(9)
    check(evenkeel.open(tmp_path / "g.zarr", name="deep/y"), np.arange(9))
    check(evenkeel.open(tmp_path / "g.zarr" / "x"), np.arange(9))
    with pytest.raises(ValueError, match=r"which array\? it holds (x, deep/y|deep/y, x)"):
        evenkeel.open(tmp_path / "g.zarr")
    with pytest.raises(ValueError, match="there is no array"):
        evenkeel.open(tmp_path / "g.zarr", name="z")
    for name in ("../g.zarr/x", "deep/../x", "/"):
        with pytest.raises(ValueError, match="not the name of an array"):
            evenkeel.open(tmp_path / "g.zarr", name=name)


def test_zarr_damaged(tmp_path):
    made = zarr.create_array(
        tmp_path / "a.zarr", shape=(9,), chunks=(9,), dtype="int64", compressors=None, zarr_format=3
    )
    made[:] = 1
    chunk = tmp_path / "a.zarr" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(ValueError, match="the file has 71 bytes"):
        evenkeel.open(tmp_path / "a.zarr")
    for text in ("[]", "{}", '{"node_type": "array"}', "nonsense"):
        (tmp_path / "a.zarr" / "zarr.json").write_text(text)
        with pytest.raises(ValueError):
            evenkeel.open(tmp_path / "a.zarr")


# ---- MDS


def mds_writer():
    # An import that fails takes seconds, and is not remembered.
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("could not import 'streaming': it needs torchvision")
    return pytest.importorskip("streaming", exc_type=ImportError).MDSWriter


def write_mds(folder, columns, rows, **options):
    with mds_writer()(out=str(folder), columns=columns, **options) as out:
        for row in rows:
            out.write(row)


def test_mds(tmp_path):
    rows = [
        {"x": RNG.random((3, 2)).astype("float32"), "label": int(i), "w": np.float64(i / 2)}
        for i in range(40)
    ]
    columns = {"x": "ndarray:float32:3,2", "label": "int", "w": "float64"}
    write_mds(tmp_path / "m", columns, rows, size_limit=700)
    array = evenkeel.open(tmp_path / "m", budget="8MiB")
    assert len(array.paths) > 1 and array.format == "mds"
    got = array[:]
    assert np.array_equal(got["x"], np.stack([row["x"] for row in rows]))
    assert got["label"].tolist() == list(range(40)) and got["w"][3] == 1.5
    assert np.array_equal(array.take([39, 0, 7])["label"], [39, 0, 7])
    seen = [label for batch in evenkeel.Loader(array, 7) for label in batch["label"]]
    assert sorted(seen) == list(range(40))
    with pytest.raises(ValueError, match=r'rows\["label"\]'):
        evenkeel.open(tmp_path / "m", column="label")


def test_mds_bytes_of_one_length(tmp_path):
    tokens = RNG.integers(0, 50000, (20, 16)).astype("int64")
    write_mds(tmp_path / "m", {"tokens": "bytes"}, [{"tokens": row.tobytes()} for row in tokens])
    got = evenkeel.open(tmp_path / "m")[:]["tokens"]
    assert np.array_equal(got.copy().view("int64").reshape(20, 16), tokens)


@pytest.mark.parametrize(
    ("columns", "rows", "options", "message"),
    [
        ({"t": "str"}, [{"t": "ab"}] * 3, {}, "column 't' holds str"),
        ({"t": "bytes"}, [{"t": b"ab"}, {"t": b"abc"}], {}, "different lengths"),
        ({"a": "int"}, [{"a": 1}] * 3, {"compression": "gz"}, "compressed"),
    ],
)
def test_mds_refused(tmp_path, columns, rows, options, message):
    write_mds(tmp_path / "m", columns, rows, **options)
    with pytest.raises(ValueError, match=message):
        evenkeel.open(tmp_path / "m")


def test_mds_stays_in_its_folder(tmp_path):
    write_mds(tmp_path / "m", {"a": "int"}, [{"a": 1}] * 3)
    index = json.loads((tmp_path / "m" / "index.json").read_text())
    index["shards"][0]["raw_data"]["basename"] = "../secret"
    (tmp_path / "m" / "index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="not the name of a file in this folder"):
        evenkeel.open(tmp_path / "m")


def test_mds_damaged(tmp_path):
    write_mds(tmp_path / "m", {"a": "int"}, [{"a": 1}] * 3)
    shard = next((tmp_path / "m").glob("*.mds"))
    whole = shard.read_bytes()
    for cut in (0, 3, 8, 19, len(whole) - 1):
        shard.write_bytes(whole[:cut])
        with pytest.raises(ValueError):
            evenkeel.open(tmp_path / "m")
    for index in ({}, {"shards": []}, {"shards": [{}]}, {"shards": 5}):
        (tmp_path / "m" / "index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError):
            evenkeel.open(tmp_path / "m")


def test_mds_by_hand(tmp_path):
    """As the format is described: for machines without its library."""
    rows = [np.arange(i, i + 4, dtype="<i4") for i in range(5)]
    start = 4 * (len(rows) + 2)
    offsets = [start + 16 * i for i in range(len(rows) + 1)]
    head = np.array([len(rows), *offsets], dtype="<u4").tobytes()
    (tmp_path / "shard.00000.mds").write_bytes(head + b"".join(row.tobytes() for row in rows))
    shard = {
        "column_names": ["x"],
        "column_encodings": ["ndarray:int32:4"],
        "column_sizes": [16],
        "compression": None,
        "format": "mds",
        "raw_data": {"basename": "shard.00000.mds", "bytes": offsets[-1], "hashes": {}},
        "samples": len(rows),
        "zip_data": None,
    }
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    assert np.array_equal(evenkeel.open(tmp_path)[:]["x"], rows)


def test_numbers_in_an_index_that_are_none(tmp_path):
    (tmp_path / "c.bin").write_bytes(bytes(99))
    shard = {
        "column_names": ["x"],
        "column_encodings": ["ndarray:int32:four"],
        "column_sizes": [16],
        "format": "mds",
        "raw_data": {"basename": "c.bin"},
        "samples": "many",
    }
    chunk = {"filename": "c.bin", "chunk_size": "many", "dim": 3}
    config = {"data_format": ["no_header_tensor:15"]}
    for index in ({"shards": [shard]}, {"chunks": [chunk], "config": config}):
        (tmp_path / "index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match=rf"open {tmp_path}: bad index.json"):
            evenkeel.open(tmp_path)


# ---- litData


def test_litdata_items_are_refused(tmp_path):
    writer = pytest.importorskip("litdata.streaming.writer", exc_type=ImportError)
    os.makedirs(tmp_path / "l")
    out = writer.BinaryWriter(str(tmp_path / "l"), chunk_size=8)
    for i in range(30):
        out.add_item(i, {"a": i, "b": i / 4})
    out.done()
    out.merge()
    with pytest.raises(ValueError, match="only chunks of tokens can be read"):
        evenkeel.open(tmp_path / "l")


def test_litdata_tokens(tmp_path):
    torch = pytest.importorskip("torch")
    writer = pytest.importorskip("litdata.streaming.writer", exc_type=ImportError)
    items = pytest.importorskip("litdata.streaming.item_loader", exc_type=ImportError)
    os.makedirs(tmp_path / "l")
    out = writer.BinaryWriter(
        str(tmp_path / "l"), chunk_bytes=600, item_loader=items.TokensLoader(block_size=8)
    )
    tokens = [torch.arange(i, i + 50, dtype=torch.int32) for i in range(6)]
    for i, item in enumerate(tokens):
        out.add_item(i, item)
    out.done()
    out.merge()
    got = evenkeel.open(tmp_path / "l")
    assert got.dtype == np.int32 and len(got.paths) > 1
    assert np.array_equal(got[:], torch.cat(tokens).numpy())
