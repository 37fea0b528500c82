"""Where documents begin: indexes that are made, found and refused."""

import pathlib
from typing import Any

import numpy as np
import pytest
from document_corpora import BUDGET, EOT, eot_file, megatron_pair, open_corpus
from remote_help import ObjectServer

import evenkeel


def starts_by(loader: evenkeel.TokenLoader) -> set[int]:
    with loader:
        return {row["start"] for step in range(40) for row in loader.explain(step)}


def test_an_index_is_made_once_and_again_when_the_file_changes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "train.bin"
    eot_file(path)

    def load(**options: Any) -> set[int]:
        tokens = evenkeel.tokens(path, budget=BUDGET)
        return starts_by(evenkeel.TokenLoader(tokens, 2, 16, documents="start", **options))

    assert all(start % 37 == 0 for start in load(eos=EOT))
    index = tmp_path / f"train.bin.eos{EOT}.documents"
    made = index.stat()
    assert made.st_size == 4096 + 8 * (4000 // 37 + 1)
    load(eos=EOT)
    assert index.stat().st_mtime_ns == made.st_mtime_ns, "it was used again"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["train.bin", index.name]
    # With another token, whose index has another name; and after a change.
    assert all(start % 37 == 36 or start == 0 for start in load(bos=EOT))
    assert index.stat().st_mtime_ns == made.st_mtime_ns, "it was kept"
    assert (tmp_path / f"train.bin.bos{EOT}.documents").exists()
    eot_file(path, every=41)
    assert all(start % 41 == 0 for start in load(eos=EOT))
    # A damaged one is not believed.
    damaged = bytearray(index.read_bytes())
    damaged[30] ^= 1
    index.write_bytes(damaged)
    assert all(start % 41 == 0 for start in load(eos=EOT))
    assert index.read_bytes()[30] == damaged[30] ^ 1
    # Elsewhere.
    index.unlink()
    elsewhere = tmp_path / "indexes" / "here"
    assert all(start % 41 == 0 for start in load(eos=EOT, documents_index=elsewhere))
    assert len(list(elsewhere.iterdir())) == 1
    assert not index.exists()


def test_indexes_of_documents_are_not_tokens(tmp_path: pathlib.Path) -> None:
    for name in ("train_0.bin", "train_1.bin"):
        eot_file(tmp_path / name)
    pattern = str(tmp_path / "train_*")
    with evenkeel.TokenLoader(
        evenkeel.tokens(pattern, budget=BUDGET), 2, 16, documents="packed", eos=EOT
    ) as loader:
        next(loader)
    np.save(tmp_path / "train_1.doc.npy", [0, 7])
    assert len(list(tmp_path.iterdir())) == 5
    tokens = evenkeel.tokens(pattern, budget=BUDGET)
    assert len(tokens) == 8000
    # Documents of the second file are those of its own array now.
    with evenkeel.TokenLoader(tokens, 1, 2000, documents="packed", eos=EOT, window=4) as loader:
        shown = {
            d["document"]
            for s in range(len(tokens) // 2000)
            for d in loader.explain(s)[0]["documents"]
        }
        assert max(shown) <= 4000 // 37 + 1 + 2


def test_mask_by_tokens_makes_no_index(tmp_path: pathlib.Path) -> None:
    eot_file(tmp_path / "train.bin")
    tokens = evenkeel.tokens(tmp_path / "train.bin", budget=BUDGET)
    with evenkeel.TokenLoader(tokens, 2, 16, documents="mask", bos=EOT) as loader:
        next(loader)
    assert [p.name for p in tmp_path.iterdir()] == ["train.bin"]


def test_the_end_in_an_own_array_is_no_document(tmp_path: pathlib.Path) -> None:
    for name, numbers in (("a", [0, 30, 100]), ("b", [0, 50])):
        np.arange(100, dtype=np.uint16).tofile(tmp_path / f"{name}.bin")
        np.save(tmp_path / f"{name}.doc.npy", np.array(numbers, ">i4" if name == "a" else "<i8"))
    paths = [tmp_path / "a.bin", tmp_path / "b.bin"]
    with evenkeel.TokenLoader(
        evenkeel.tokens(paths, budget=BUDGET), 1, 199, documents="mask"
    ) as loader:
        (row,) = loader.explain(0)
    starts = {one["document"]: one["start"] for one in row["documents"]}
    assert starts == {0: 0, 1: 30, 2: 100, 3: 150}
    np.save(tmp_path / "a.doc.npy", np.array([100]))
    with pytest.raises(ValueError, match="it has no documents"):
        evenkeel.TokenLoader(evenkeel.tokens(paths, budget=BUDGET), 1, 99, documents="mask")


def test_documents_of_megatron_may_be_empty_and_have_several_sequences(
    tmp_path: pathlib.Path,
) -> None:
    """As many empty documents as further sequences: bounds 0 to 3 look consecutive."""
    corpus = megatron_pair(tmp_path, np.arange(40), [10, 0, 10, 20], [0, 0, 0, 3, 4])
    with evenkeel.TokenLoader(open_corpus(corpus), 1, 39, documents="mask") as loader:
        (row,) = loader.explain(0)
        assert [one["start"] for one in row["documents"]] == [0, 20]
        assert next(loader).cu_seqlens.tolist() == [0, 20, 39]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0, 50, 40], "document 2 begins at token 40, before the previous one"),
        ([0, 50, 4001], "document 2 begins at token 4001, beyond the 4,000"),
        ([-1, 50], "beyond"),
        ([], "no document"),
    ],
)
def test_wrong_offsets_are_errors(tmp_path: pathlib.Path, numbers: list[int], message: str) -> None:
    np.arange(4000, dtype=np.uint16).tofile(tmp_path / "a.bin")
    np.save(tmp_path / "a.doc.npy", np.array(numbers, np.int64))
    tokens = evenkeel.tokens(tmp_path / "a.bin", budget=BUDGET)
    for mode in ("mask", "start", "packed"):
        with pytest.raises(ValueError, match=message):
            with evenkeel.TokenLoader(tokens, 2, 16, documents=mode) as loader:
                next(loader)


def test_decreasing_offsets_far_apart_are_errors(tmp_path: pathlib.Path) -> None:
    """Each block of the index is in order, but the blocks are not."""
    np.zeros(200_000, np.uint16).tofile(tmp_path / "a.bin")
    starts = np.arange(0, 100_000, 10)
    starts[5120:5632] = np.arange(512)
    np.save(tmp_path / "a.doc.npy", starts)
    tokens = evenkeel.tokens(tmp_path / "a.bin", budget=BUDGET)
    with pytest.raises(ValueError, match=r"decrease|before the previous one"):
        with evenkeel.TokenLoader(tokens, 8, 16, documents="mask", order="shuffled") as loader:
            for _ in range(1000):
                next(loader)


def test_what_is_wrong_is_said(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.bin"
    np.arange(4000, dtype=np.uint16).tofile(path)
    tokens = evenkeel.tokens(path, budget=BUDGET)

    def refused(match: str, **options: Any) -> None:
        with pytest.raises((ValueError, TypeError), match=match):
            evenkeel.TokenLoader(tokens, 2, 16, **options)

    refused("nothing says where documents begin", documents="mask")
    refused("token 50256, at which documents begin, is not among", documents="start", bos=EOT)
    refused("bos and eos exclude each other", documents="start", bos=1, eos=2)
    refused("is not a document mode", documents="cut")
    refused("given without documents", bos=1)
    refused("leftovers must be", documents="start", bos=1, leftovers="keep")
    for mode in ("mask", "start", "packed"):
        refused("token 70,000 cannot be stored as uint16", documents=mode, bos=70_000)
        refused("token -1 cannot be stored as uint16", documents=mode, eos=-1)
    refused("pad is -100, which does not fit", documents="packed", bos=1, pad=-100, dtype="stored")
    for extra in ({"predict_first": False}, {"leftovers": "use"}, {"mixed_windows": 4}, {"pad": 1}):
        refused("given without documents", **extra)
    refused("rows of a batch begins one", documents="mask", bos=1, most_documents=1)
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"], "nothing is left behind"


def test_a_slice_needs_the_documents_of_its_own_files_only(tmp_path: pathlib.Path) -> None:
    for name in ("a", "b", "c"):
        np.arange(1000, dtype=np.uint16).tofile(tmp_path / f"{name}.bin")
    np.save(tmp_path / "a.doc.npy", np.array([0, 30]))
    tokens = evenkeel.tokens(tmp_path / "?.bin", budget=BUDGET)
    with pytest.raises(ValueError, match="nothing says where documents begin"):
        evenkeel.TokenLoader(tokens, 1, 16, documents="packed")
    with evenkeel.TokenLoader(tokens.slice(0, 1000), 1, 16, documents="packed") as loader:
        next(loader)
    with evenkeel.TokenLoader(tokens.slice(1000, 2000), 1, 16, documents="packed", eos=9) as loader:
        next(loader)
    with evenkeel.TokenLoader(tokens.slice(2000), 1, 16, documents="mask", eos=9) as loader:
        next(loader)
    assert [p.name for p in tmp_path.glob("*.documents")] == ["b.bin.eos9.documents"]


def test_an_index_of_an_object_on_a_server_goes_to_a_folder(tmp_path: pathlib.Path) -> None:
    for name in ("a.bin", "b.bin"):
        eot_file(tmp_path / name)
    folder = tmp_path / "indexes"

    def load(server: ObjectServer, query: str = "", **options: Any) -> set[int]:
        urls = [f"{server.url}/{name}{query}" for name in ("a.bin", "b.bin")]
        tokens = evenkeel.tokens(urls, dtype="uint16", budget=BUDGET, cache=False)
        return starts_by(evenkeel.TokenLoader(tokens, 2, 16, documents="start", eos=EOT, **options))

    wanted = starts_by(
        evenkeel.TokenLoader(
            evenkeel.tokens(str(tmp_path / "*.bin"), budget=BUDGET),
            *(2, 16),
            documents="start",
            eos=EOT,
        )
    )
    with ObjectServer() as server:
        for name in ("a.bin", "b.bin"):
            server.put(name, (tmp_path / name).read_bytes())
        with pytest.raises(ValueError, match="documents_index"):
            load(server)
        assert load(server, documents_index=folder) == wanted
        made = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert len(made) == 2
        # A signature is not part of the name.
        assert load(server, "?X-Amz-Signature=1&X-Amz-Date=2", documents_index=folder) == wanted
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == made
        # One index on the server, one in the folder.
        np.save(tmp_path / "b.doc.npy", np.arange(0, 4000, 37, dtype=np.uint64))
        server.put("b.bin.doc.npy", (tmp_path / "b.doc.npy").read_bytes())
        assert load(server, documents_index=folder) == wanted
        # Another version has another index.
        for name in ("a.bin", "b.bin"):
            eot_file(tmp_path / name, every=41)
            server.put(name, (tmp_path / name).read_bytes())
        del server.objects["/b.bin.doc.npy"]
        assert all(start % 4000 % 41 == 0 for start in load(server, documents_index=folder))
