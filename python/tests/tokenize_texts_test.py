"""evenkeel.tokenize of texts that are damaged or odd: what is refused, mended and counted."""

import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenize_help import made_encoding, made_texts, made_tokenizer

import evenkeel
from evenkeel._tokenize import pool

BENCH = Path(__file__).resolve().parents[2] / "bench"


def tokenize(name, tokenizer="bytes", **options):
    return evenkeel.tokenize(name, "out.bin", tokenizer, **{"workers": 0, **options})


def lines(texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


# ---- compressed files


def test_zstd_frames_one_after_another_are_one_text(folder):
    zstandard = pytest.importorskip("zstandard")
    data = lines(made_texts(2000))
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    frames = [zstandard.compress(data[:999]), skippable, zstandard.compress(data[999:])]
    (folder / "a.jsonl.zst").write_bytes(b"".join(frames))
    stream = zstandard.ZstdCompressor().compressobj()  # the size is not in the frame
    (folder / "b.jsonl.zst").write_bytes(stream.compress(data) + stream.flush())
    assert [tokenize(f"{name}.jsonl.zst")["documents"] for name in "ab"] == [2000, 2000]


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_compressed_file_that_is_cut_off_or_damaged_is_named(folder, kind):
    zstandard = pytest.importorskip("zstandard")
    texts = lines(made_texts(300))
    data = gzip.compress(texts) if kind == "gz" else zstandard.compress(texts)
    name = f"a.jsonl.{kind}"
    said = rf"a.jsonl.{kind}: the {kind} data is damaged or truncated after byte [\d,]+ of the text"
    middle = len(data) // 2
    for damaged in (
        data[:middle],
        data[:-1],
        data + data[:20],
        data[:middle] + bytes(50) + data[middle + 50 :],
        b"no such data" + data,
    ):
        (folder / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=said):
            tokenize(name)
    (folder / name).write_bytes(data)
    assert tokenize(name)["documents"] == 300


# ---- halves of surrogate pairs, which JSON can hold


def sentencepiece_model(folder):
    sentencepiece = pytest.importorskip("sentencepiece")
    (folder / "train.txt").write_text("\n".join(made_texts(100)))
    sentencepiece.SentencePieceTrainer.train(
        input="train.txt", model_prefix="m", vocab_size=120, minloglevel=2, model_type="bpe"
    )
    return "m.model"


@pytest.mark.parametrize("library", ["bytes", "tiktoken", "tokenizers", "sentencepiece"])
def test_half_a_surrogate_pair_becomes_a_replacement_character(folder, library):
    tokenizer = {
        "bytes": lambda: "bytes",
        "tiktoken": made_encoding,
        "tokenizers": made_tokenizer,
        "sentencepiece": lambda: sentencepiece_model(folder),
    }[library]()
    (folder / "half.jsonl").write_bytes(lines(["sea \ud83d shell", "\U0001f600 sea"]))
    (folder / "mended.jsonl").write_bytes(lines(["sea \ufffd shell", "\U0001f600 sea"]))
    made = []
    for name in ("half.jsonl", "mended.jsonl"):
        tokenize(name, tokenizer)
        made.append((folder / "out.bin").read_bytes())
    assert made[0] == made[1] != b""


def test_special_tokens_are_not_parsed_by_libraries_that_cannot(folder):
    (folder / "a.txt").write_text("text")
    with pytest.raises(ValueError, match="cannot be parsed by sentencepiece"):
        tokenize("a.txt", sentencepiece_model(folder), special="parse")


# ---- what is counted


@pytest.mark.parametrize(
    "text, separator, documents, empty",
    [("a\nb\n", "\n", 2, 0), ("\na\n\n\nb", "\n", 2, 3), ("a\n\n\n\nb\n\n", "\n\n", 2, 0)],
)
def test_empty_documents_are_counted_alike_however_a_file_is_stored(
    folder, text, separator, documents, empty
):
    (folder / "a.txt").write_text(text)
    (folder / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    plan = evenkeel.plan("a.txt", "parts.bin", "bytes", separator=separator, parts=len(text))
    for part in range(len(plan)):
        plan.run(part, workers=0)
    reports = [tokenize(name, separator=separator) for name in ("a.txt", "b.txt.gz")]
    for made in (*reports, plan.finish()):
        assert (made["documents"], made["empty_documents"]) == (documents, empty)


# ---- the machinery


def test_a_worker_ends_when_its_parent_ends_in_the_middle_of_a_message(folder):
    (folder / "a.txt").write_text("text")
    from evenkeel._tokenize.api import make_job
    from evenkeel._tokenize.sink import _DEFAULTS

    job, _ = make_job("a.txt", "out.bin", tokenizer="bytes", text_key="text", **_DEFAULTS)
    message = pickle.dumps(("files", ["a.txt"] * 1000), protocol=5)
    given = pickle.dumps(sys.path) + pickle.dumps((job, 1 << 20)) + message[: len(message) // 2]
    done = subprocess.run([sys.executable, "-c", pool._START], input=given, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_no_script_of_the_benchmarks_hides_a_module_of_python():
    known = getattr(sys, "stdlib_module_names", {"tokenize"})  # Python 3.9 has no list
    assert not {path.stem for path in BENCH.glob("*.py")} & set(known)


# ---- evenkeel.ray.TokenSink, without Ray


class Context:
    task_idx = 0


def write_rows(output, rows, column="ids", **options):
    arrow = pytest.importorskip("pyarrow")
    from evenkeel._tokenize.sink import make_sink

    class Block:
        def __init__(self, table):
            self.table = table

        def to_arrow(self):
            return self.table

    class Library:
        Datasink = object

        class BlockAccessor:
            for_block = Block

    given = {"tokenizer": None, "column": column, "scratch": None, "options": options}
    sink = make_sink(Library, lambda name: Library, output, **given)
    sink.on_write_start()
    try:
        done = sink.write([arrow.table({}), arrow.table({"ids": rows})], Context)
    except Exception as error:
        sink.on_write_failed(error)
        raise
    sink.on_write_complete([done])


@pytest.mark.parametrize("dtype, most", [("uint8", 255), ("int16", 32767), ("int32", 2**31 - 1)])
def test_the_sink_refuses_tokens_that_its_dtype_does_not_hold(folder, dtype, most):
    options = {"dtype": dtype, "eot": None}
    write_rows("x.bin", [[1, most], [], [2]], **options)
    assert np.fromfile("x.bin", dtype).tolist() == [1, most, 2]
    for token in (most + 1, -1):
        with pytest.raises(ValueError, match=f"token {token} does not fit {dtype}"):
            write_rows("y.bin", [[1, token]], **options)
    with pytest.raises(ValueError, match=f"token {most + 1} does not fit {dtype}"):
        write_rows("y.bin", [[1]], dtype=dtype, eot=most + 1)
    assert sorted(path.name for path in folder.iterdir()) == ["x.bin", "x.bin.tokenize.json"]


def test_the_sink_names_the_columns_there_are(folder):
    with pytest.raises(ValueError, match="no column 'tokens'\nhint: column=; the dataset has 'ids"):
        write_rows("x.bin", [[1]], column="tokens", dtype="uint16", eot=None)
