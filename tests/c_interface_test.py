"""The C interface: examples in C and Rust, and the check of the header."""

import array
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("EVENKEEL_TOOL", ROOT / "build" / "evenkeel")).parent
HEADER = ROOT / "include" / "evenkeel" / "evenkeel.h"


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "train.bin"
    path.write_bytes(array.array("H", [i * 31 % 50257 for i in range(100_000)]).tobytes())
    return path


def checksum(x_and_y):
    """FNV-1a over inputs and targets, as the examples compute it."""
    total = 0xCBF29CE484222325
    for input_token, target in x_and_y:
        for token in (input_token, target):
            total = ((total ^ token) * 0x100000001B3) % 2**64
    return f"{total:016x}"


def batches_of_tool(tokens, steps):
    """(input, target) of the same batches, computed from the stream and `evenkeel explain`."""
    stream = array.array("H", tokens.read_bytes())
    options = "--batch-size 4 --block-size 1024 --order covering --seed 1337".split()
    for step in range(steps):
        command = [BUILD / "evenkeel", "explain", tokens, *options, "--step", str(step), "--json"]
        for row in json.loads(output_of(*command))["rows"]:
            start = row["start"]
            crop = stream[start : start + 1025]
            yield from zip(crop[:-1], crop[1:], strict=True)


def test_example_in_c_sees_the_batches_that_explain_names(tokens):
    expected = checksum(batches_of_tool(tokens, 2))
    said = output_of(BUILD / "examples" / "train_tokens", tokens, "2")
    assert said == f"2 steps, checksum {expected}\n"


def test_example_in_c_tells_what_is_wrong(tmp_path):
    command = [BUILD / "examples" / "train_tokens", tmp_path / "missing.bin"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "missing.bin" in found.stderr and "No such file" in found.stderr


@pytest.mark.parametrize("steps", ["0", "abc", "-1", "3x", "99999999999999999999", ""])
def test_example_in_c_refuses_a_number_of_steps_that_would_not_end(tokens, steps):
    command = [BUILD / "examples" / "train_tokens", tokens, steps]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert found.returncode == 2
    assert "STEPS" in found.stderr


def test_example_in_rust_gives_the_checksum_of_c(tokens, tmp_path):
    if not shutil.which("rustc"):
        pytest.skip("rustc is not installed")
    program = tmp_path / "train_tokens"
    # The pkg-config file names the libraries that a static libevenkeel needs.
    libraries = re.findall(r"-l(\S+)", (BUILD / "cmake" / "evenkeel.pc").read_text())
    flags = [word for name in libraries for word in ("-l", name)]
    source = ROOT / "examples" / "c" / "train_tokens.rs"
    output_of(
        "rustc", "--edition=2021", "-D", "warnings", source, "-o", program, "-L", BUILD, *flags
    )
    expected = output_of(BUILD / "examples" / "train_tokens", tokens, "7")
    assert expected.startswith("7 steps")
    assert output_of(program, tokens, "7") == expected
    for steps in ("0", "abc"):
        command = [program, tokens, steps]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert found.returncode == 2 and "STEPS" in found.stderr


def test_example_of_the_docs_runs(tokens, tmp_path):
    page = (ROOT / "docs" / "c.md").read_text()
    (tmp_path / "page.c").write_text(page.split("```c\n")[1].split("```")[0])
    libraries = re.findall(r"-l\S+", (BUILD / "cmake" / "evenkeel.pc").read_text())
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    flags += [f"-I{ROOT / 'include'}", f"-I{BUILD / 'include'}", f"-L{BUILD}"]
    program = tmp_path / "page"
    output_of("cc", *flags, tmp_path / "page.c", *libraries, "-pthread", "-o", program)
    (tmp_path / "train.bin").symlink_to(tokens)
    found = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.match(r"step 0: \d+ -> \d+\n", found.stdout)
    assert len(found.stdout.splitlines()) == 11  # and the state


def check_abi(header, tmp_path):
    if not shutil.which("abidiff"):
        pytest.skip("abidiff is not installed")
    changed = tmp_path / "evenkeel.h"
    changed.write_text(header)
    command = [ROOT / "scripts" / "check_c_abi", changed]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    return found.returncode == 0, found.stdout


def changed_header(old, new):
    text = HEADER.read_text()
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in evenkeel.h"
    return text.replace(old, new)


def test_abi_is_the_recorded_one(tmp_path):
    compatible, said = check_abi(HEADER.read_text(), tmp_path)
    assert compatible, said


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("uint64_t first, uint64_t count", "uint32_t first, uint64_t count", "evenkeel_array_read"),
        ("  uint64_t drop_last;", "  uint64_t before;\n  uint64_t drop_last;", "before"),
        ("  uint64_t drop_last;", "  uint32_t drop_last;", "drop_last"),
        ("EVENKEEL_END = 1,", "EVENKEEL_END = 10,", "EVENKEEL_END"),
        (
            "EVENKEEL_API void evenkeel_guard_free(evenkeel_guard *guard);",
            "",
            "evenkeel_guard_free",
        ),
    ],
    ids=["argument", "field in the middle", "type of a field", "code", "function"],
)
def test_abi_break_is_noticed(old, new, named, tmp_path):
    compatible, said = check_abi(changed_header(old, new), tmp_path)
    assert not compatible
    assert named in said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("} evenkeel_row_batch;", "  uint64_t more;\n} evenkeel_row_batch;"),
        ("EVENKEEL_API void evenkeel_guard_free(", "EVENKEEL_API int evenkeel_more(void);\n\\g<0>"),
    ],
    ids=["field at the end", "function"],
)
def test_abi_may_grow(old, new, tmp_path):
    compatible, said = check_abi(changed_header(old, new.replace("\\g<0>", old)), tmp_path)
    assert compatible, said
