"""The tool itself, and its commands info and doctor."""

import json
import os
import subprocess

import numpy as np
import pytest
from compare_help import ENGINES, MIB

# ---- the tool itself


def test_version_and_help_go_to_stdout(user):
    assert user.run("--version").stdout.startswith("evenkeel ")
    for command in ["demo", "info", "compare", "doctor"]:
        assert command in user.run("--help").stdout
        help_text = user.run(command, "--help").stdout
        assert "Examples:" in help_text
        assert "--json" in help_text


def test_worker_is_not_advertised(user):
    assert "worker" not in user.run("--help").stdout


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nonsense"],
        ["--nonsense"],
        ["info"],
        ["info", "x", "--nonsense"],
        ["info", "x", "--budget", "64XB"],
        ["info", "x", "--budget", "-1"],
        ["info", "x", "--dtype", "float33"],
        ["info", "x", "--dtype", "float32", "--shape", "3x4"],
        ["info", "x", "--engine", "warp"],
        ["compare", "x", "--engines", "map,warp"],
        ["compare", "x", "--pattern", "zigzag"],
        ["compare", "x", "--cold", "--warm"],
        ["compare", "x", "--seconds", "soon"],
        ["compare", "x", "--seconds", "nan"],
        ["compare", "x", "--chunk", "0"],
        ["compare", "x", "--seed", "-1"],
        ["demo", "--size", "many"],
    ],
)
def test_wrong_calls_exit_2(user, args):
    done = user.run(*args, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("evenkeel: ") or "Usage:" in done.stderr


def test_a_wrong_option_is_named(user):
    assert 'there is no option "--nonsense"' in user.run("--nonsense", code=2).stderr


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["info", "features.npy"],
        ["stats", "features.npy", "--json"],  # more than a buffer of stdout holds
        ["doctor"],
    ],
)
def test_what_could_not_be_printed_is_an_error(user, features, args):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            user.command(*args), cwd=user.folder, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert "evenkeel: write stdout: No space left on device" in done.stderr
    assert "next: " not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(user, features, closed):
    """A file that is opened as descriptor 1 would receive the output without an error."""
    words = user.command("convert", features, "-o", "copy.npy")
    shell = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words],
        cwd=user.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert shell.returncode == 1
    if "2>" not in closed:
        assert "write stdout: Bad file descriptor" in shell.stderr
    assert (user.folder / "copy.npy").read_bytes() == features.read_bytes()


def test_unknown_engine_lists_the_known(user):
    message = user.run("compare", "x", "--engines", "warp", code=2).stderr
    assert all(name in message for name in ENGINES)


# ---- info


def test_info_of_a_folder_whose_state_names_scalars(user):
    """The files of a dataset are Arrow files. A damaged state may name others."""
    folder = user.folder / "strange"
    folder.mkdir()
    np.savez(folder / "a.npz", scalar=np.float32(1), x=np.arange(3))
    np.savez(folder / "b.npz", x=np.arange(3))
    files = [{"filename": name} for name in ("a.npz", "b.npz")]
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    assert "one value" in user.run("info", folder).stdout


def test_info_lists_folders_among_files(user, features):
    """A dataset is a folder of Arrow files; another folder is an error that names it."""
    folder = user.folder / "dataset"
    folder.mkdir()
    np.savez(folder / "a.npz", x=np.zeros((7, 64), "float32"))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.npz"}]}))
    facts = user.json("info", features, folder)
    size = (folder / "a.npz").stat().st_size
    assert (facts["files"][1]["shape"], facts["files"][1]["file_bytes"]) == ([7, 64], size)
    (folder / "state.json").unlink()
    message = user.run("info", features, folder, code=1).stderr
    assert "filesystem error" not in message and "is a directory" in message.lower()


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "complex128", "bool", ">f8", "<i4"])
@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 3, 2)])
def test_info_agrees_with_numpy(user, dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    facts = user.json("info", user.save("a.npy", array))
    assert facts["format"] == "npy"
    assert facts["dtype"] == array.dtype.newbyteorder("=").name
    assert tuple(facts["shape"]) == shape
    assert facts["rows"] == shape[0]
    assert facts["row_bytes"] == array.nbytes // shape[0]
    assert facts["bytes"] == array.nbytes


def test_info_of_raw_files(user):
    path = user.write("raw.f32", np.arange(30, dtype="<f4").tobytes())
    facts = user.json("info", path, "--dtype", "float32", "--shape", "-1,6")
    assert (facts["format"], facts["dtype"], facts["shape"]) == ("raw", "float32", [5, 6])
    facts = user.json("info", path, "--dtype", "u2", "--offset", "8", "--shape", "7")
    assert (facts["dtype"], facts["shape"]) == ("uint16", [7])


def test_info_of_several_files_is_one_array(user):
    for i in range(3):
        user.save(f"part-{i}.npy", np.zeros((10 + i, 4), "f4"))
    facts = user.json("info", "part-*.npy")
    assert facts["shape"] == [33, 4]
    assert len(facts["files"]) == 3


def test_info_of_files_named_one_by_one_lists_them(user):
    one = user.save("one.npy", np.zeros((10, 4), "float32"))
    two = user.save("two.npy", np.zeros((6, 3), "int16"))
    facts = user.json("info", one, two)
    assert [file["file"] for file in facts["files"]] == [str(one), str(two)]
    assert [file["shape"] for file in facts["files"]] == [[10, 4], [6, 3]]
    assert facts["together"] is None
    text = user.run("info", one, two).stdout
    assert "float32" in text and "int16" in text and "not one array" in text
    three = user.save("three.npy", np.zeros((5, 4), "float32"))
    text = user.run("info", one, three).stdout
    assert "10 × 4" in text and "5 × 4" in text and "Read as one array: 15 × 4 float32" in text


def test_a_dash_after_json_is_standard_output(user, features):
    facts = json.loads(user.run("info", features, "--json", "-").stdout)
    assert facts["file"] == str(features)
    facts = json.loads(user.run("info", "--json", "-", features).stdout)
    assert facts["file"] == str(features)


def test_info_says_what_is_cached_and_what_would_be_done(user, features):
    features.read_bytes()
    facts = user.json("info", features, "--budget", "16MiB")
    assert facts["cached_bytes"] >= 64 * MIB
    assert facts["budget_bytes"] == 16 * MIB
    assert facts["engine"] in ENGINES and facts["how"] and facts["why"]
    text = user.run("info", features).stdout
    for name in ["format", "dtype", "shape", "rows", "cached", "budget", "engine"]:
        assert f"\n{name} " in text


def test_info_of_an_unknown_file_still_helps(user):
    path = user.write("mystery.bin", b"\x01\x02\x03\x04" * 100)
    done = user.run("info", path)
    assert "01 02 03 04" in done.stdout
    assert "400 bytes" in done.stdout
    assert "--dtype" in done.stderr
    facts = user.json("info", path)
    assert facts["format"] is None
    assert facts["first_bytes"].startswith("01020304")


@pytest.mark.parametrize(
    "option", [["--shape", "3,3"], ["--offset", "8"], ["--big-endian"], ["--name", "x"]]
)
def test_options_that_a_file_does_not_take_are_not_ignored(user, option):
    path = user.write("mystery.bin", b"\x01\x02\x03\x04" * 100)
    assert "for raw numbers, give dtype" in user.run("info", path, *option, code=1).stderr
    if option[0] != "--name":
        np.savez(user.folder / "two.npz", x=np.arange(3), y=np.zeros(3))
        user.run("info", user.folder / "two.npz", *option, code=1)


# ---- bad input


@pytest.mark.parametrize("command", ["info", "compare"])
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "truncated", "pickle", "odd"])
def test_bad_files_are_errors(user, command, kind):
    args = [command]
    if kind == "missing":
        args += ["missing.npy"]
    elif kind == "folder":
        args += [user.folder]
    elif kind == "empty":
        args += [user.write("empty.npy", b"")]
    elif kind == "truncated":
        whole = user.save("whole.npy", np.zeros(1000)).read_bytes()
        args += [user.write("short.npy", whole[:-8])]
    elif kind == "pickle":
        args += [user.save("object.npy", np.array([{}, None], dtype=object))]
    elif kind == "odd":
        args += [user.write("odd.f32", b"abc"), "--dtype", "float32"]
    done = user.run(*args, code=1)
    assert done.stdout == ""
    assert done.stderr.startswith("evenkeel: ")
    assert "Traceback" not in done.stderr and len(done.stderr) > 30


def test_forbidden_file_is_an_error(user):
    if not user.prefix and os.geteuid() == 0:
        pytest.skip("root may read everything")
    path = user.save("secret.npy", np.zeros(5000))
    path.chmod(0)
    assert "Permission denied" in user.run("info", path, code=1).stderr


def test_budget_too_small_is_refused_with_the_arithmetic(user, features):
    message = user.run("compare", features, "--budget", "1000", code=1).stderr
    assert "1,000" in message or "1000" in message


def test_array_too_short_for_crops_is_refused(user):
    path = user.save("tiny.npy", np.zeros(1000, "f4"))
    message = user.run("compare", path, "--pattern", "crops", "--seconds", "0", code=1).stderr
    assert "1,000 elements" in message and "1,024" in message


# ---- doctor


def test_doctor_looks_at_the_machine_and_the_disk(user, features):
    report = user.json("doctor", user.folder)
    checks = report["system"] + report["disk"]
    names = {check["name"] for check in checks}
    assert {"kernel", "io_uring", "O_DIRECT", "memory", "readahead", "engine"} <= names
    for check in checks:
        assert check["state"] in ("ok", "limited", "missing")
        assert check["found"] and check["effect"]
    text = user.run("doctor", features).stdout
    assert all(f" {name}: " in text for name in names)
    assert not list(user.folder.glob(".evenkeel*"))


def test_doctor_of_nothing_is_an_error(user):
    assert user.run("doctor", user.folder / "nothing", code=1).stderr.startswith("evenkeel: ")


def test_doctor_of_a_folder_that_may_not_be_written_says_so(user):
    if not user.prefix and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    assert "name a file" in user.run("doctor", "/usr", code=1).stderr
