"""evenkeel.tokenize: what it writes, of what, and that nothing else changes it."""

import gzip
import json
import os
import random

import numpy as np
import pytest
from tokenize_help import PATTERN, made_encoding, made_texts, made_tokenizer

import evenkeel
from evenkeel._tokenize.documents import Splitter, items, read_documents, texts_of
from evenkeel._tokenize.inputs import Input, Span, all_spans, cut, find_inputs


def write_jsonl(path, texts, key="text"):
    path.write_text("".join(json.dumps({"id": i, key: t}) + "\n" for i, t in enumerate(texts)))
    return path


def expected(texts, eot=256):
    return [token for text in texts if text for token in [*text.encode(), eot]]


def tokens_of(path, dtype="uint16"):
    return np.fromfile(path, dtype).tolist()


# ---- inputs


def test_every_kind_of_input_gives_the_same_tokens(folder):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    zstandard = pytest.importorskip("zstandard")
    texts = [*made_texts(300), "", "naïve 😀", "last"]
    texts = [text.replace("\n", " ") for text in texts]
    data = write_jsonl(folder / "a.jsonl", texts).read_bytes()
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(data[:1000]) + gzip.compress(data[1000:]))
    (folder / "c.jsonl.zst").write_bytes(zstandard.compress(data))
    (folder / "d.txt").write_text("\r\n".join(texts))
    (folder / "e.txt.gz").write_bytes(gzip.compress("\n".join(texts).encode()))
    table = pa.table({"id": range(len(texts)), "text": [text or None for text in texts]})
    pq.write_table(table, "f.parquet", row_group_size=50)
    with pa.ipc.new_file("g.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=70)
    dictionary = table.set_column(1, "text", table["text"].dictionary_encode())
    with pa.ipc.new_stream("h.arrow", dictionary.schema) as file:
        file.write_table(dictionary)
    for name in "a.jsonl b.jsonl.gz c.jsonl.zst d.txt e.txt.gz f.parquet g.arrow h.arrow".split():
        made = evenkeel.tokenize(name, "out.bin", "bytes", separator="\n", workers=0)
        assert tokens_of("out.bin") == expected(texts), name
        assert made["documents"] == len(texts) - 1
        assert made["outputs"][0]["tokens"] == made["tokens"] == len(expected(texts))
    evenkeel.tokenize(["a.jsonl", "f.parquet"], "out.bin", "bytes", workers=2)
    assert tokens_of("out.bin") == 2 * expected(texts)


def test_a_text_file_is_one_document_unless_a_separator_is_told(folder):
    texts = ["one\ntwo\n\nthree", "\n\n", "", "four"]
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_text(text)
    made = evenkeel.tokenize("?.txt", "out.bin", "bytes", workers=0)
    assert tokens_of("out.bin") == expected(texts)
    assert (made["documents"], made["empty_documents"]) == (3, 1)
    evenkeel.tokenize("?.txt", "out.bin", "bytes", separator="\n\n", workers=0)
    assert tokens_of("out.bin") == expected(["one\ntwo", "three", "four"])


def documents_of(text, by):
    """Empty ones as well; but nothing begins behind a separator at the end."""
    whole = by.split(text)
    return whole[:-1] if not whole[-1] else whole


@pytest.mark.parametrize(
    "typed, meant", [(r"\n\t", "\n\t"), (r"\\n", r"\n"), (r"\\\n", "\\\n"), (r"\q", r"\q")]
)
def test_a_separator_is_typed_with_escapes(typed, meant):
    from evenkeel._tokenize.command import parser

    assert parser().parse_args(["--separator", typed]).separator == meant


@pytest.mark.parametrize("separator", ["\n", "\n\n", "<|endoftext|>", "--", "ab"])
def test_documents_are_the_same_wherever_a_file_is_cut(folder, separator):
    draw = random.Random(separator)
    by = Splitter(separator)
    for _ in range(60):
        pieces = [separator, separator[:1], separator[-1:], "a", "bb", "é"]
        text = "".join(draw.choice(pieces) for _ in range(draw.randint(0, 40)))
        (folder / "x.txt").write_text(text)
        size = len(text.encode())
        whole = documents_of(text, by)
        cuts = sorted(draw.randint(0, size) for _ in range(draw.randint(0, 6)))
        found = []
        for begin, end in zip([0, *cuts], [*cuts, size]):
            at, block = read_documents("x.txt", begin, end, by, 1 << 20)
            if block is not None:
                assert begin <= at < end
                found += texts_of(block, "x.txt", at, "text", by, "", "error")
        assert found == whole, (text, cuts)


def test_documents_of_compressed_files_are_the_same_however_they_are_read(folder, monkeypatch):
    from evenkeel._tokenize import documents

    draw = random.Random(5)
    for piece in (7, 64, 1000):
        monkeypatch.setattr(documents, "PIECE", piece)
        for separator in ("\n", "\n\n", "ab"):
            text = "".join(draw.choice([separator, "\n", "a", "cc"]) for _ in range(300))
            (folder / "x.txt.gz").write_bytes(gzip.compress(text.encode()))
            by = Splitter(separator)
            inputs = find_inputs("x.txt.gz", None, False)
            found = []
            for _, _, message in items(inputs, all_spans(inputs), (0, 0), by, "", 1 << 20):
                found += texts_of(message[4], "", 0, "text", by, "", "error")
            assert found == documents_of(text, by)


def test_parts_cover_every_input_once():
    draw = random.Random(3)
    for _ in range(300):
        inputs = []
        for i in range(draw.randint(1, 6)):
            size = draw.choice([0, 1, 10, 1000, 123456])
            units = draw.choice([size, 1, 3])
            inputs.append(Input(f"{i}", "text", "", size, "", units))
        count = draw.randint(1, 9)
        parts = cut(inputs, count)
        assert 1 <= len(parts) <= count
        for i, given in enumerate(inputs):
            spans = [s for part in parts for s in part if s.input == i]
            at = 0
            for span in spans:
                assert span.begin == at and span.end > at
                at = span.end
            assert at == given.units
        order = [(s.input, s.begin) for part in parts for s in part]
        assert order == sorted(order)
    even = cut([Input("x", "text", "", 1000, "", 1000)], 4)
    assert even == [[Span(0, i * 250, i * 250 + 250)] for i in range(4)]


# ---- tokenizers


def test_tiktoken_gives_what_encode_ordinary_gives(folder):
    encoding = made_encoding()
    texts = [*made_texts(50), "a <|endoftext|> b", "\ud83d half"]
    write_jsonl(folder / "a.jsonl", texts)
    evenkeel.tokenize("a.jsonl", "out.bin", encoding, workers=0)
    wanted = [t for text in texts for t in [*encoding.encode_ordinary(text), encoding.eot_token]]
    assert tokens_of("out.bin") == wanted
    evenkeel.tokenize("a.jsonl", "out.bin", encoding, workers=0, special="parse")
    assert tokens_of("out.bin").count(encoding.eot_token) == len(texts) + 1
    assert encoding._pat_str == PATTERN


def test_hugging_face_tokenizers_by_object_by_file_and_by_folder(folder):
    tokenizer = made_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    texts = [*made_texts(40), "a <|endoftext|> b"]
    write_jsonl(folder / "a.jsonl", texts)
    plain = made_tokenizer()
    plain.encode_special_tokens = True
    eot = tokenizer.token_to_id("<|endoftext|>")
    wanted = [t for x in texts for t in [*plain.encode(x, add_special_tokens=False).ids, eot]]
    for given in (tokenizer, "tokenizer.json", str(folder), f"hf:{folder}/tokenizer.json"):
        evenkeel.tokenize("a.jsonl", "out.bin", given, workers=0)
        assert tokens_of("out.bin") == wanted


def test_sentencepiece_by_object_and_by_file(folder):
    sentencepiece = pytest.importorskip("sentencepiece")
    texts = made_texts(100)
    (folder / "train.txt").write_text("\n".join(texts))
    sentencepiece.SentencePieceTrainer.train(
        input="train.txt", model_prefix="m", vocab_size=120, minloglevel=2, model_type="bpe"
    )
    write_jsonl(folder / "a.jsonl", [*texts, "  "])
    processor = sentencepiece.SentencePieceProcessor(model_file="m.model")
    wanted = [t for text in texts for t in [*processor.encode(text), processor.eos_id()]]
    for given in ("m.model", processor):
        made = evenkeel.tokenize("a.jsonl", "out.bin", given, workers=0)
        assert tokens_of("out.bin") == wanted
        assert made["empty_documents"] == 1  # two blanks have no tokens


def test_a_tokenizer_of_ones_own(folder):
    (folder / "mine.py").write_text(
        "def upper(texts):\n    return [[ord(c) - 64 for c in t.upper()] for t in texts]\n"
        "upper.vocabulary = 27\nupper.eot = 0\n"
    )
    write_jsonl(folder / "a.jsonl", ["abc", "zz"])
    import sys

    sys.path.insert(0, str(folder))
    try:
        evenkeel.tokenize("a.jsonl", "out.bin", "python:mine:upper", workers=0, dtype="uint8")
    finally:
        sys.path.remove(str(folder))
    assert tokens_of("out.bin", "uint8") == [1, 2, 3, 0, 26, 26, 0]


# ---- outputs


@pytest.mark.parametrize("format", ["nanogpt", "llmc", "megatron", "datatrove", "npy"])
def test_every_format_is_read_again(folder, format):
    texts = made_texts(60)
    write_jsonl(folder / "a.jsonl", texts)
    name = {"datatrove": "out.ds", "npy": "out.npy"}.get(format, "out.bin")
    evenkeel.tokenize("a.jsonl", name, "bytes", format=format, workers=0)
    read = evenkeel.tokens("out.idx" if format == "megatron" else name)
    first = [256] if format == "llmc" else []
    wanted = [*first, *expected(texts)][: len(read)]
    assert len(read) == len(expected(texts)) and read[:].tolist() == wanted
    if format == "datatrove":
        ends = np.fromfile("out.ds.index", "<u8")
        assert np.diff(ends, prepend=0).tolist() == [len(text.encode()) + 1 for text in texts]


def test_the_same_bytes_for_any_number_of_workers_and_parts(folder):
    texts = made_texts(4000)
    write_jsonl(folder / "a.jsonl", texts[:2500])
    write_jsonl(folder / "b.jsonl", texts[2500:])
    (folder / "c.jsonl.gz").write_bytes(gzip.compress((folder / "b.jsonl").read_bytes()))
    files = ["a.jsonl", "b.jsonl", "c.jsonl.gz"]
    made = []
    for workers, budget in ((0, None), (1, "80MiB"), (3, "2GiB")):
        evenkeel.tokenize(
            files, "train.bin", "bytes", val_share=0.1, workers=workers, budget=budget
        )
        made.append([(folder / name).read_bytes() for name in ("train.bin", "val.bin")])
        os.unlink("train.bin")
    for parts in (1, 7):
        plan = evenkeel.plan(files, "train.bin", "bytes", val_share=0.1, parts=parts)
        plan.save("m.json")
        plan = evenkeel.Manifest.load("m.json")
        assert plan.missing == list(range(len(plan)))
        with pytest.raises(ValueError, match="parts are not done: 0"):
            plan.finish()
        for part in random.Random(parts).sample(range(len(plan)), min(len(plan), 3)):
            plan.run(part, workers=0)
        for part in plan.missing:
            plan.run(part, workers=0, budget="80MiB")
        report = plan.finish()
        assert plan.finish() == report and plan.finished
        assert plan.run(0)["resumed"]
        assert sorted(os.listdir()) == sorted(
            [*files, "m.json", "train.bin", "train.bin.tokenize.json", "val.bin"]
        )
        made.append([(folder / name).read_bytes() for name in ("train.bin", "val.bin")])
        os.unlink("train.bin")
    assert all(one == made[0] for one in made)
    assert 0.07 < len(made[0][1]) / len(made[0][0]) < 0.15


def test_validation_is_chosen_by_text_and_seed(folder):
    texts = [f"document {i}" for i in range(2000)]
    sides = []
    for name, given, seed in (("x", texts, 0), ("y", [*texts[::-1], *texts], 0), ("z", texts, 1)):
        write_jsonl(folder / f"{name}.jsonl", given)
        evenkeel.tokenize(f"{name}.jsonl", "{}.bin", "bytes", val_share=0.25, seed=seed, workers=0)
        documents = bytes(np.fromfile("val.bin", "uint16").clip(0, 255).astype("uint8"))
        sides.append({document for document in documents.split(b"\xff") if document})
        assert 400 < len(sides[-1]) < 600
    assert sides[0] == sides[1] != sides[2]


# ---- what is wrong


def test_errors_say_where_and_what_to_do(folder):
    def wrong(error, text, *args, **options):
        with pytest.raises(error, match=text):
            evenkeel.tokenize(*args, **{"workers": 0, **options})

    (folder / "bad.jsonl").write_text('{"text": "a"}\n{"text": "b"\n')
    wrong(ValueError, r"bad.jsonl: the line at byte 14 is not JSON", "bad.jsonl", "o.bin", "bytes")
    (folder / "keys.jsonl").write_text('{"content": "a", "id": 1}\n')
    wrong(ValueError, r"no key 'text'\nhint: .*'content', 'id'", "keys.jsonl", "o.bin", "bytes")
    (folder / "list.jsonl").write_text('{"text": ["a"]}\n')
    wrong(ValueError, "not a string but list", "list.jsonl", "o.bin", "bytes")
    (folder / "latin.txt").write_bytes(b"abc \xe9 def")
    wrong(ValueError, "byte 4 is not UTF-8", "latin.txt", "o.bin", "bytes")
    evenkeel.tokenize("latin.txt", "o.bin", "bytes", invalid="replace", workers=0)
    (folder / "long.txt").write_bytes(b"x" * (9 << 20))
    for separator in (None, "\n"):
        wrong(
            ValueError,
            r"long.txt: the document at byte 0 has more than [\d,]+ bytes.*\n.*--separator",
            "long.txt",
            "o.bin",
            "bytes",
            separator=separator,
            budget="80MiB",
        )
    wrong(MemoryError, "does not hold one worker", "bad.jsonl", "o.bin", "bytes", budget="8MiB")
    wrong(ValueError, "the format is not clear from the name", __file__, "o.bin", "bytes")
    os.mkfifo("pipe.txt")
    wrong(ValueError, "pipe.txt: this is not a regular file", "pipe.txt", "o.bin", "bytes")
    wrong(ValueError, "uint8 does not hold", "bad.jsonl", "o.bin", "bytes", dtype="uint8")
    wrong(ValueError, "could overlap itself", "bad.jsonl", "o.bin", "bytes", separator="aba")
    wrong(
        ValueError,
        "no output for the validation documents",
        "bad.jsonl",
        "o.bin",
        "bytes",
        val_share=0.1,
    )
    wrong(ValueError, "the output is also an input", "bad.jsonl", "./bad.jsonl", "bytes")
    (folder / "o.bin.tokenize.json").write_text("{}")
    wrong(ValueError, "json: the output is also an input", "o.bin*.json", "o.bin", "bytes")
    given = {"val_share": 0.1, "val_output": "bad.jsonl"}
    wrong(ValueError, "the output is also an input", "bad.jsonl", "o.bin", "bytes", **given)
    wrong(
        ValueError, "o.bin: outputs must be files, not URLs", "bad.jsonl", "s3://b/o.bin", "bytes"
    )
    wrong(ValueError, "cannot be parsed by bytes", "bad.jsonl", "o.bin", "bytes", special="parse")
    wrong(FileNotFoundError, "no tokenizer nowhere.model", "bad.jsonl", "o.bin", "nowhere.model")
    wrong(TypeError, "a int is not a known tokenizer", "bad.jsonl", "o.bin", 5)
    wrong(ValueError, "no special token '<x>'", "bad.jsonl", "o.bin", "bytes", eot="<x>")
    assert not [name for name in os.listdir() if "partial" in name]


def test_a_library_that_is_missing_is_named(python):
    said = python(
        """
        import sys
        sys.modules["tiktoken"] = None
        import evenkeel
        try:
            evenkeel.tokenize("x.jsonl", "o.bin", "gpt2")
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install tiktoken" in said


def test_a_manifest_notices_that_its_inputs_changed(folder):
    path = write_jsonl(folder / "a.jsonl", made_texts(20))
    plan = evenkeel.plan("a.jsonl", "o.bin", "bytes", parts=2)
    path.write_text(path.read_text().replace("a", "b"))
    with pytest.raises(ValueError, match="the file has changed since the work was planned"):
        plan.run(0, workers=0)
    plan.save("m.json")
    text = (folder / "m.json").read_text()
    for change in (
        lambda stored: stored["job"].update(eot=7),
        lambda stored: stored.update(scratch=str(folder)),
        lambda stored: stored["parts"].pop(),
        lambda stored: stored.pop("fingerprint"),
    ):
        stored = json.loads(text)
        change(stored)
        (folder / "m.json").write_text(json.dumps(stored))
        with pytest.raises(ValueError, match="the manifest was changed"):
            evenkeel.Manifest.load("m.json")


def test_finishing_removes_what_parts_wrote_and_nothing_else(folder):
    write_jsonl(folder / "a.jsonl", made_texts(20))
    plan = evenkeel.plan("a.jsonl", "o.bin", "bytes", parts=2, scratch="there")
    for part in range(2):
        plan.run(part, workers=0)
    scratch = next((folder / "there").iterdir())
    (scratch / "mine.txt").write_text("mine")
    (scratch / "00007.train.ds").write_text("of no part of this plan")
    plan.finish()
    assert sorted(os.listdir(scratch)) == ["00007.train.ds", "mine.txt"]


def test_arguments_of_a_wrong_type_are_named_and_replace_nothing(folder):
    write_jsonl(folder / "a.jsonl", ["one", "two"])
    (folder / "out.bin").write_bytes(b"precious")
    for inputs, options, words in (
        (None, {}, "inputs must be files or patterns; got None"),
        ("a.jsonl", {"seed": 1.5}, "seed must be a whole number; got 1.5"),
        ("a.jsonl", {"separator": b"|"}, "separator must be a string"),
        ("a.jsonl", {"text_key": None}, "text_key must be a string"),
        ("a.jsonl", {"val_share": "0.1"}, "val_share must be a number"),
        ("a.jsonl", {"eot": 5.5}, "eot must be a whole number; got 5.5"),
        ("a.jsonl", {"workers": 1.5}, "workers must be a whole number; got 1.5"),
        ("a.jsonl", {"progress": 3}, "progress must be a function"),
    ):
        with pytest.raises(TypeError, match=words):
            evenkeel.tokenize(inputs, "out.bin", "bytes", **{"workers": 0, **options})
    assert (folder / "out.bin").read_bytes() == b"precious"
    with pytest.raises(TypeError, match="inputs must be files or patterns"):
        evenkeel.plan(None, "out.bin", "bytes", parts=2)
    with pytest.raises(TypeError, match="parts must be a whole number; got 1.5"):
        evenkeel.plan("a.jsonl", "out.bin", "bytes", parts=1.5)
