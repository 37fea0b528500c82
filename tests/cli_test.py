"""The tool as a user meets it."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

MIB = 1 << 20
ENGINES = ["map", "remap", "advise", "read", "direct", "auto"]
RESULT_FIELDS = {
    "engine": str,
    "items": int,
    "seconds": float,
    "items_per_s": float,
    "wanted_bytes": int,
    "disk_bytes": int,
    "rss_growth_peak_bytes": int,
    "anon_growth_peak_bytes": int,
    "cache_growth_peak_bytes": int,
    "within_budget": bool,
    "checksum": str,
}


@pytest.fixture(scope="module")
def features(user):
    """64 MiB of rows that look random, on the disk."""
    rows = np.random.default_rng(7).random((MIB // 4, 64), dtype=np.float32)
    path = user.save("features.npy", rows)
    with open(path) as file:
        os.fsync(file.fileno())
    return path


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


def test_unknown_engine_lists_the_known(user):
    message = user.run("compare", "x", "--engines", "warp", code=2).stderr
    assert all(name in message for name in ENGINES)


# ---- info


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


# ---- compare


def check_report(report, pattern, engines):
    assert report["pattern"] == pattern
    assert report["failures"] == []
    assert [result["engine"] for result in report["results"]] == engines
    for result in report["results"]:
        for name, kind in RESULT_FIELDS.items():
            assert isinstance(result[name], kind), (name, result)
        assert result["items"] > 0 and result["wanted_bytes"] > 0
        assert result["items_per_s"] == pytest.approx(result["items"] / result["seconds"])
    assert len({result["checksum"] for result in report["results"]}) == 1
    assert all(result["checksum_items"] > 0 for result in report["results"])


@pytest.mark.alone
@pytest.mark.parametrize("pattern", ["crops", "rows", "scan"])
def test_compare_keeps_the_budget_and_agrees(user, features, pattern):
    report = user.json(
        *["compare", features, "--pattern", pattern, "--budget", "16MiB"],
        *["--seconds", "0.5", "--cold"],
    )
    assert report["file"] == str(features)
    assert report["budget_bytes"] == 16 * MIB
    assert report["cold"] is True
    assert report["readahead_kb"] is None or report["readahead_kb"] >= 0
    check_report(report, pattern, ENGINES)
    for result in report["results"]:
        if result["engine"] == "map":
            continue
        assert result["within_budget"] is True, result
        assert result["rss_growth_peak_bytes"] <= 16 * MIB
        memory = result["anon_growth_peak_bytes"] + result["cache_growth_peak_bytes"]
        assert result["memory_growth_peak_bytes"] <= min(16 * MIB, memory)


def odd_array(user, kind):
    rng = np.random.default_rng(3)
    if kind == "fortran":
        return [user.save("fortran.npy", np.asfortranarray(rng.random((3000, 700))))]
    if kind == "big-endian":
        return [user.save("big.npy", rng.random(100_000).astype(">f8"))]
    if kind == "records":
        records = np.zeros(100_000, dtype=[("a", "<i4"), ("b", "u1", (8,))])
        records["a"] = np.arange(len(records))
        return [user.save("records.npy", records)]
    if kind == "wide":
        return [user.save("wide.npy", rng.integers(0, 255, (20, 3 * MIB), dtype=np.uint8))]
    if kind == "few":
        return [user.save("few.npy", rng.random((7, 500)))]
    return [user.save(f"several-{i}.npy", rng.random((9000 + i, 7))) for i in range(3)]


@pytest.mark.parametrize("pattern", ["crops", "rows", "scan"])
@pytest.mark.parametrize("kind", ["fortran", "big-endian", "records", "wide", "few", "several"])
def test_engines_agree_on_odd_arrays(user, kind, pattern):
    args = ["--pattern", pattern, "--budget", "16MiB", "--seconds", "0.1"]
    check_report(user.json("compare", *odd_array(user, kind), *args), pattern, ENGINES)


@pytest.mark.alone
def test_compare_says_no_where_the_line_is_crossed(user, features):
    report = user.json(
        "compare", features, "--engines", "map", "--budget", "16MiB", "--seconds", "1", "--warm"
    )
    assert report["results"][0]["rss_growth_peak_bytes"] > 16 * MIB
    assert report["results"][0]["within_budget"] is False


def test_compare_is_deterministic_from_the_seed(user, features):
    def checksum(seed):
        args = ["--engines", "read", "--seconds", "0", "--pattern", "rows", "--seed", seed]
        return user.json("compare", features, *args)["results"][0]["checksum"]

    assert checksum(5) == checksum(5)
    assert checksum(5) != checksum(6)


def test_compare_prints_a_table_and_the_next_command(user, features):
    done = user.run("compare", features, "--engines", "map,direct", "--seconds", "0.1")
    head = next(line for line in done.stdout.splitlines() if line.startswith("engine"))
    for word in ["crops/s", "× map", "disk/wanted", "memory growth", "RSS growth", "within budget"]:
        assert word in head
    assert "\ndirect " in done.stdout and "\nmap " in done.stdout
    assert "next: evenkeel" in done.stderr
    assert "\r" not in done.stderr  # progress is for terminals


def test_compare_of_strangers_files_says_what_it_cannot_know(user, features):
    if not user.prefix:
        pytest.skip("needs a user who does not own the file")
    path = user.folder / "theirs.npy"
    shutil.copyfile(features, path)  # root's
    path.chmod(0o644)
    report = user.run(
        "compare", path, "--engines", "direct", "--seconds", "0.1", "--budget", "16MiB", "--json"
    )
    result = json.loads(report.stdout)["results"][0]
    assert result["cache_growth_peak_bytes"] is None
    assert result["within_budget"] is None
    assert result["items"] > 0


def test_compare_takes_names_that_are_no_utf8(user):
    name = os.fsencode(user.folder) + b"/odd \xff %41.npy"
    with open(name, "wb") as file:
        np.save(file, np.zeros((5000, 3), "f4"))
    user.own(name)
    args = ["--engines", "read", "--pattern", "scan", "--seconds", "0", "--json"]
    done = subprocess.run([*user.command("compare"), name, *args], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["items"] == 5000


# ---- compare: pictures, and inside a memory limit


def page_report(path):
    """The JSON in a page, up to where a browser ends the script."""
    text = path.read_text()
    begin = text.index(">", text.index('<script type="application/json" id="data"')) + 1
    return json.loads(text[begin : text.index("</script", begin)])


def check_picture(page, figures):
    """A run for each engine, whose samples reach what was printed."""
    assert page["growth"] is True
    assert page["budget_bytes"] == figures["budget_bytes"]
    assert [run["name"] for run in page["runs"]] == [r["engine"] for r in figures["results"]]
    for run, result in zip(page["runs"], figures["results"], strict=True):
        assert run["ended"] == "worked"
        samples = run["samples"]
        assert {len(column) for column in samples.values()} == {len(samples["seconds"])}
        assert samples["seconds"] == sorted(samples["seconds"])
        for column in ("anon", "cache"):
            printed = result[f"{column}_growth_peak_bytes"]
            assert max(samples[column]) == pytest.approx(printed, rel=0.05, abs=2 * MIB)
        rss = map(sum, zip(*(samples[name] for name in ("anon", "file", "shmem")), strict=True))
        # The kernel's own mark also knows of what came and went between two samples.
        assert max(rss) <= result["rss_growth_peak_bytes"] * 1.05 + 2 * MIB
        # Two milliseconds apart, or a few of those made one.
        assert run["seconds"] >= 0.9 * result["seconds"]


def test_compare_draws_what_it_prints(user, features):
    pages = [user.folder / "engines.html", user.folder / "engines.svg"]
    args = ["--budget", "16MiB", "--seconds", "0.5", "--cold", "--json"]
    done = user.run("compare", features, *args, "-o", pages[0], "--svg", pages[1])
    figures = json.loads(done.stdout)
    assert figures["memory_limit_bytes"] is None
    check_report(figures, "crops", ENGINES)
    check_picture(page_report(pages[0]), figures)
    picture = pages[1].read_text()
    assert picture.startswith("<svg") and all(f">{name}<" in picture for name in ENGINES)
    for page in pages:
        assert f"picture: {page}" in done.stderr


def test_compare_refuses_a_picture_that_cannot_be_written_before_it_works(user, features):
    for option in ["-o", "--svg"]:
        done = user.run("compare", features, option, "missing/x", "--seconds", "60", code=1)
        assert done.stdout == ""
        assert "missing/x" in done.stderr and "hint: " in done.stderr


def memory_limits_left():
    return [
        *Path("/sys/fs/cgroup").glob("evenkeel-[0-9]*"),
        *Path("/sys/fs/cgroup/memory").glob("evenkeel-[0-9]*"),
    ]


@pytest.mark.alone
def test_compare_inside_a_limit_cannot_take_more_than_it(user, features):
    limit = 40 * MIB
    args = ["--engines", "map,direct", "--budget", "16MiB", "--seconds", "0.5", "--cold", "--json"]
    done = subprocess.run(
        user.command("compare", features, *args, "--limit", limit),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert not memory_limits_left()
    if done.returncode != 0:  # never without a word, and never without the limit
        assert "limit memory by a cgroup" in done.stderr and "root" in done.stderr
        assert done.stderr.count("cgroup /sys") == 1 and done.stdout == ""
        if not user.prefix and os.geteuid() == 0:
            pytest.skip("no memory cgroups here")
        return
    assert not user.prefix, "nobody may do this"
    figures = json.loads(done.stdout)
    assert figures["memory_limit_bytes"] == limit
    free = user.json("compare", features, *args[:-1])
    for kind in ("memory", "rss"):
        kept, other = (
            report["results"][0][f"{kind}_growth_peak_bytes"] for report in (figures, free)
        )
        assert kept <= limit + 2 * MIB < other
    # It reads again what it had to give up.
    assert figures["results"][0]["disk_bytes"] > free["results"][0]["disk_bytes"] > 0


def test_an_engine_that_the_limit_kills_is_an_error_of_that_engine(user, features):
    if user.prefix or os.geteuid() != 0:
        pytest.skip("needs root")
    args = ["--engines", "direct", "--seconds", "0.1", "--cold", "--limit", "1MiB", "--json"]
    done = user.run("compare", features, *args, "-o", "killed.html", code=1)
    if "cgroup" in done.stderr:
        pytest.skip("no memory cgroups here")
    report = json.loads(done.stdout)
    assert [failure["engine"] for failure in report["failures"]] == ["direct"]
    assert "signal 9" in done.stderr
    (run,) = page_report(user.folder / "killed.html")["runs"]
    assert run["ended"] == "failed" and "signal 9" in run["notes"][0]
    assert not memory_limits_left()


def children_of(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if f"\nPPid:\t{pid}\n" in text:
            found.append(int(status.parent.name))
    return found


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("waited in vain")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_compare_leaves_no_child(user, features, how):
    tool = subprocess.Popen(
        user.command("compare", features, "--seconds", "100", "--engines", "read"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children = wait_for(lambda: children_of(tool.pid))
    tool.send_signal(how)
    assert tool.wait(timeout=120) == (-how if how == signal.SIGKILL else 128 + how)
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


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
    assert user.run("doctor", "/nonexistent", code=1).stderr.startswith("evenkeel: ")


def test_doctor_of_a_folder_that_may_not_be_written_says_so(user):
    if not user.prefix and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    assert "name a file" in user.run("doctor", "/usr", code=1).stderr


# ---- demo


def demo_files(user):
    return list(user.folder.glob("evenkeel-demo-*.f32"))


@pytest.mark.alone
def test_demo_tells_the_story_and_cleans_up(user):
    report = user.json(
        "demo", "--size", "24MiB", "--budget", "4MiB", "--seconds", "0.1", "--dir", user.folder
    )
    assert report["size_bytes"] <= 24 * MIB
    assert [run["pattern"] for run in report["runs"]] == ["rows", "crops"]
    for run in report["runs"]:
        check_report(run, run["pattern"], ENGINES)
    assert not demo_files(user)


def test_demo_keeps_its_file_when_asked(user):
    done = user.run(
        *["demo", "--size", "4MiB", "--budget", "2MiB", "--seconds", "0"],
        *["--dir", user.folder, "--keep"],
    )
    (kept,) = demo_files(user)
    assert kept.stat().st_size % (162 * 4) == 0
    assert "Of the engines that keep to the budget" in done.stdout
    assert str(kept) in done.stderr
    kept.unlink()


def memory_cgroups(pid):
    folders = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
    return [path for folder in folders if (path := folder / f"evenkeel-{pid}").exists()]


def test_a_demo_that_is_killed_leaves_no_cgroup(user):
    if user.prefix or os.geteuid() != 0:
        pytest.skip("needs a user who may make memory cgroups")
    args = ["demo", "--size", "24MiB", "--budget", "4MiB", "--limit", "64MiB", "--seconds", "30"]
    demo = subprocess.Popen(
        user.command(*args, "--dir", user.folder, "-o", "killed.html"),
        cwd=user.folder,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(lambda: memory_cgroups(demo.pid) or demo.poll() is not None)
        if demo.poll() is not None:
            pytest.skip(f"no memory cgroups here: {demo.stderr.read()}")
    finally:
        demo.kill()
        demo.wait()
        demo.stderr.close()
    wait_for(lambda: not memory_cgroups(demo.pid))
    for left in demo_files(user):
        left.unlink()


def test_demo_refuses_what_the_disk_cannot_hold(user):
    message = user.run("demo", "--size", "8TiB", "--dir", user.folder, code=1).stderr
    assert "free" in message and "8 TiB" in message
    assert not demo_files(user)


TINY_DEMO = ["--size", "24MiB", "--budget", "4MiB", "--seconds", "0.1"]


@pytest.mark.alone
def test_demo_draws_what_it_prints(user):
    page = user.folder / "demo.html"
    args = [*TINY_DEMO, "--dir", user.folder, "--json", "-o", page, "--svg", "demo.svg"]
    figures = json.loads(user.run("demo", *args).stdout)
    shown = next(run for run in figures["runs"] if run["pattern"] == "crops")
    check_picture(page_report(page), shown)
    assert (user.folder / "demo.svg").read_text().startswith("<svg")
    if user.prefix:  # no limit that was not asked for
        assert shown["memory_limit_bytes"] is None
    else:
        assert shown["memory_limit_bytes"] in (None, 16 * MIB)
    none = json.loads(user.run("demo", *args, "--limit", "0").stdout)
    assert all(run["memory_limit_bytes"] is None for run in none["runs"])


def test_demo_refuses_a_limit_that_cannot_be_had(user):
    if not user.prefix:
        pytest.skip("root may limit memory")
    done = user.run("demo", *TINY_DEMO, "--limit", "64MiB", "--dir", user.folder, code=1)
    assert done.stdout == "" and "limit memory by a cgroup" in done.stderr
    assert "hint: " in done.stderr and not demo_files(user)


def test_demo_refuses_a_page_that_cannot_be_written_before_it_works(user):
    done = user.run("demo", "--dir", user.folder, "-o", "missing/x.html", code=1)
    assert done.stdout == "" and "missing/x.html" in done.stderr
    assert not demo_files(user)


def test_demo_puts_its_page_where_it_can_and_says_where(user, monkeypatch):
    def page_of(folder):
        args = [*user.command("demo", *TINY_DEMO[:-1], "0", "--dir", user.folder)]
        done = subprocess.run(args, cwd=folder, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        (line,) = (line for line in done.stderr.splitlines() if line.startswith("picture: "))
        return Path(folder) / line.removeprefix("picture: ")

    here = page_of(user.folder)
    assert here == user.folder / "evenkeel-demo.html"
    assert len(page_report(here)["runs"]) == len(ENGINES)
    if not user.prefix and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    monkeypatch.setenv("TMPDIR", str(user.folder))
    elsewhere = page_of("/usr")
    assert elsewhere.parent == user.folder and elsewhere.name.startswith("evenkeel-demo-")
    assert len(page_report(elsewhere)["runs"]) == len(ENGINES)
    elsewhere.unlink()


@pytest.mark.parametrize("when", ["writing", "comparing"])
def test_interrupted_demo_leaves_no_file(user, when):
    tool = subprocess.Popen(
        user.command("demo", "--size", "256MiB", "--seconds", "30", "--dir", user.folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: demo_files(user))
    if when == "comparing":
        wait_for(lambda: children_of(tool.pid))
    tool.send_signal(signal.SIGINT)
    assert tool.wait(timeout=120) == 128 + signal.SIGINT
    assert not demo_files(user)
