"""evenkeel tokenize: the part that is in the tool."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

TOOL = os.environ.get("EVENKEEL_TOOL", "build/evenkeel")


def run(*words, code=0, **environment):
    done = subprocess.run(
        [os.path.abspath(TOOL) if os.sep in TOOL else TOOL, "tokenize", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "EVENKEEL_PYTHON": sys.executable, **environment},
    )
    assert done.returncode == code, done
    return done


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("one\ntwo\n")
    return path


def test_the_tool_hands_its_words_to_python(text, tmp_path):
    pytest.importorskip("evenkeel")
    out = tmp_path / "out file.bin"
    words = [text, "-o", out, "--tokenizer=bytes", "--separator", "\\n", "--workers=0", "--json"]
    report = json.loads(run(*words).stdout)
    assert report["documents"] == 2
    assert bytes(np.fromfile(out, "uint16").clip(0, 255).astype("uint8")) == b"one\xfftwo\xff"
    said = run(text, "-o", out, "--tokenizer=bytes", "--workers=0").stdout
    assert re.match(rf"{re.escape(str(out))}: 1 document, 9 tokens of uint16\n", said)


def decoded(path):
    """The texts in a file of tokens that are bytes. Token 256 ends each text."""
    tokens = np.fromfile(path, "uint16").tolist()
    texts = "".join("\0" if token == 256 else chr(token) for token in tokens)
    return texts.encode("latin-1").decode().split("\0")[:-1]


def test_what_a_file_is_and_where_its_text_lies_can_be_said(tmp_path):
    pytest.importorskip("evenkeel")
    path, out = tmp_path / "notes.txt", tmp_path / "o.bin"
    path.write_text('{"body": "one", "text": 1}\n{"body": "two"}\n')
    given = [path, "-o", out, "--tokenizer=bytes", "--workers=0"]
    run(*given, "--input-format=jsonl", "--text-key=body")
    assert decoded(out) == ["one", "two"]
    run(*given)  # by its name, one document of text
    assert decoded(out) == [path.read_text()]
    said = run(*given, "--input-format=json", code=1).stderr
    assert "must be one of text, jsonl, parquet, arrow; got 'json'" in said


def test_bytes_that_are_no_text_are_an_error_or_replaced(tmp_path):
    pytest.importorskip("evenkeel")
    path, out = tmp_path / "latin.txt", tmp_path / "o.bin"
    path.write_bytes(b"caf\xe9\n")
    given = [path, "-o", out, "--tokenizer=bytes", "--workers=0"]
    said = run(*given, code=1).stderr
    assert "byte 3 is not UTF-8" in said and "hint: --invalid replace" in said
    assert not out.exists()
    run(*given, "--invalid=replace")
    assert decoded(out) == ["caf\ufffd\n"]
    said = run(*given, "--invalid=ignore", code=1).stderr
    assert 'invalid must be "error" or "replace"; got \'ignore\'' in said
    said = run(*given, "--special=keep", code=1).stderr
    assert 'special must be "text" or "parse"; got \'keep\'' in said


def test_documents_for_validation_go_to_the_file_that_is_named(tmp_path):
    pytest.importorskip("evenkeel")
    path, out, val = (tmp_path / name for name in ("n.txt", "o.bin", "v.bin"))
    texts = [f"number {i}" for i in range(200)]
    path.write_text("".join(text + "\n" for text in texts))
    given = [path, "-o", out, "--tokenizer=bytes", "--workers=0", "--separator=\\n"]
    run(*given, "--val-share=0.25", "--val-output", val)
    assert sorted(decoded(out) + decoded(val)) == sorted(texts)
    assert 20 <= len(decoded(val)) <= 80
    said = run(*given, "--val-output", val, code=1).stderr
    assert "val_output needs val_share" in said


def test_parts_and_finish(text, tmp_path):
    pytest.importorskip("evenkeel")
    manifest = tmp_path / "m.json"
    out = tmp_path / "out.bin"
    given = [text, "-o", out, "--tokenizer=bytes", "--separator=\\n"]
    said = run(*given, "--manifest", manifest, "--parts=2", "--workers=3", code=1).stderr
    assert (
        "--manifest --parts cannot be given together with --workers\nhint: this command only"
        in said
    )
    assert "2 parts" in run(*given, "--manifest", manifest, "--parts=2").stdout
    said = run("--manifest", manifest, "--part=0", "-o", out, "--dtype=int64", code=1).stderr
    assert "--part cannot be given together with --output, --dtype\nhint: the manifest" in said
    said = run("--manifest", manifest, "--finish", "--part=0", code=1).stderr
    assert "--finish cannot be given together with --part\n" in said
    for part in (1, 0):
        run("--manifest", manifest, "--part", part, "--workers=0")
    assert "8 tokens" in run("--manifest", manifest, "--finish", "--resume").stdout
    made = out.read_bytes()
    run(*given, "--workers=0")
    assert out.read_bytes() == made
    assert (
        "part 2 of a manifest of 2 parts" in run("--manifest", manifest, "--part=2", code=1).stderr
    )


def test_errors_are_said_and_have_a_code(text, tmp_path):
    pytest.importorskip("evenkeel")
    said = run(text, code=1).stderr
    assert said.startswith("evenkeel: tokenize: needs files, --output and --tokenizer\nhint: ")
    said = run(tmp_path / "none.jsonl", "-o", "x.bin", "--tokenizer=bytes", code=1).stderr
    assert said.startswith("evenkeel: ") and "none.jsonl" in said and "Traceback" not in said
    said = run(text, "--workers", "many", code=2).stderr
    assert "usage: evenkeel tokenize --help" in said


def test_errors_of_files_are_those_of_the_tool(text, tmp_path):
    pytest.importorskip("evenkeel")
    words = ["-o", tmp_path / "out.bin", "--tokenizer=bytes"]
    said = run(tmp_path / "missing.txt", *words, code=1).stderr
    assert said == (
        f"evenkeel: open {tmp_path}/missing.txt: No such file or directory\n"
        "hint: check the spelling and the working directory\n"
    )
    said = run("--manifest", tmp_path / "no.json", "--part=0", code=1).stderr
    assert said == f"evenkeel: {tmp_path}/no.json: No such file or directory\n"


def test_what_could_not_be_printed_is_an_error(text, tmp_path):
    pytest.importorskip("evenkeel")
    words = [text, "-o", tmp_path / "out.bin", "--tokenizer=bytes", "--workers=0"]
    for where, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {where}', "sh", TOOL, "tokenize", *map(str, words)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "EVENKEEL_PYTHON": sys.executable},
        )
        assert (done.returncode, done.stderr) == (1, f"evenkeel: write stdout: {why}\n")


def test_without_python_or_the_package_it_says_what_to_install(text):
    said = run(text, code=1, EVENKEEL_PYTHON="/nowhere/python").stderr
    assert "/nowhere/python cannot be started" in said and "install Python and Evenkeel's" in said
    assert "pip install" not in said  # on PyPI, the name belongs to another project
    said = run(text, code=1, PYTHONPATH="", EVENKEEL_PYTHON=bare_python(text.parent)).stderr
    assert "needs the Python package" in said and "install Evenkeel's wheel there" in said
    assert "pip install" not in said


def bare_python(folder):
    """A Python that has no packages."""
    path = folder / "bare"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_progress_has_a_share_a_speed_and_the_time_left(capsys):
    command = pytest.importorskip("evenkeel._tokenize.command")
    now = {"done": 1 << 20, "total": 4 << 20, "tokens": 1234, "documents": 5}
    command._show({**now, "bytes_per_second": 1 << 20, "seconds_left": 3.0})
    assert capsys.readouterr().err.endswith(" 25 %  1,234 tokens, 1.0 MiB/s, 3 s left")


def test_the_tool_and_python_have_the_same_options():
    command = pytest.importorskip("evenkeel._tokenize.command")
    words = set(re.findall(r"(?<![\w-])(--[a-z-]+)", run("--help").stdout.split("Examples:")[0]))
    known = {
        name
        for action in command.parser()._actions
        for name in action.option_strings
        if name.startswith("--")
    }
    assert words - {"--help"} == known - {"--help"}
