"""evenkeel compare: figures, pictures, and what it does inside a memory limit."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from compare_help import ENGINES, MIB, check_picture, check_report, children_of
from profile_help import page_data, wait_for


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
    shutil.copyfile(features, path)  # owned by root
    path.chmod(0o644)
    report = user.run(
        "compare", path, "--engines", "direct", "--seconds", "0.1", "--budget", "16MiB", "--json"
    )
    result = json.loads(report.stdout)["results"][0]
    assert result["cache_growth_peak_bytes"] is None
    assert result["within_budget"] is None
    assert result["items"] > 0


def test_compare_reads_the_named_array_of_a_file_that_holds_several(user):
    path = user.folder / "two.npz"
    np.savez(path, small=np.arange(3), large=np.arange(100_000.0).reshape(-1, 10))
    user.own(path)
    report = user.json("compare", path, "--name", "large", "--pattern", "rows", "--seconds", "0.1")
    check_report(report, "rows", ENGINES)


def test_compare_takes_names_that_are_no_utf8(user):
    name = os.fsencode(user.folder) + b"/odd \xff %41.npy"
    with open(name, "wb") as file:
        np.save(file, np.zeros((5000, 3), "f4"))
    user.own(name)
    args = ["--engines", "read", "--pattern", "scan", "--seconds", "0", "--json"]
    done = subprocess.run([*user.command("compare"), name, *args], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["items"] == 5000


# ---- pictures, and inside a memory limit


def test_compare_draws_what_it_prints(user, features):
    pages = [user.folder / "engines.html", user.folder / "engines.svg"]
    args = ["--budget", "16MiB", "--seconds", "0.5", "--cold", "--json"]
    done = user.run("compare", features, *args, "-o", pages[0], "--svg", pages[1])
    figures = json.loads(done.stdout)
    assert figures["memory_limit_bytes"] is None
    check_report(figures, "crops", ENGINES)
    check_picture(page_data(pages[0]), figures)
    picture = pages[1].read_text()
    assert picture.startswith("<svg") and all(f">{name}<" in picture for name in ENGINES)
    for page in pages:
        assert f"picture: {page}" in done.stderr


def test_compare_refuses_a_picture_that_cannot_be_written_before_it_works(user, features):
    for option in ["-o", "--svg"]:
        done = user.run("compare", features, option, "missing/x", "--seconds", "60", code=1)
        assert done.stdout == ""
        assert "missing/x" in done.stderr and "hint: " in done.stderr


def test_compare_does_not_replace_the_data_by_a_picture(user):
    path = user.save("a.npy", np.arange(100_000))
    data = path.read_bytes()
    for option in ["-o", "--svg"]:
        assert "is an input, too" in user.run("compare", path, option, path, code=1).stderr
    assert path.read_bytes() == data


def has_memory_limit(pid):
    """Whether this tool, which has ended, left its cgroup. Killed ones may have left theirs."""
    folders = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")]
    return any((folder / f"evenkeel-{pid}").exists() for folder in folders)


def compare_within(user, features, *args):
    """Waits until the tool has ended and its cgroup is removed. Returns it, and its output."""
    command = user.command("compare", features, *args)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=user.folder
    ) as tool:
        stdout, stderr = tool.communicate(timeout=240)
    wait_for(lambda: not has_memory_limit(tool.pid))
    return subprocess.CompletedProcess(command, tool.returncode, stdout, stderr)


@pytest.mark.parametrize("kind", ["memory", "rss"])
def test_compare_inside_a_limit_cannot_take_more_than_it(user, features, kind):
    limit = 40 * MIB
    args = ["--engines", "map,direct", "--budget", "16MiB", "--cold"]
    growth = f"{kind}_growth_peak_bytes"
    for seconds in (0.5, 2, 8):  # a busy machine needs longer until all of the file is mapped
        free = user.json("compare", features, *args, "--seconds", seconds)["results"][0]
        if free[growth] > limit + 2 * MIB:
            break
    args += ["--seconds", seconds, "--json", "--limit", limit]
    done = compare_within(user, features, *args)
    if done.returncode != 0:  # it must report it, and not run without the limit
        assert "limit memory by a cgroup" in done.stderr and "root" in done.stderr
        assert done.stderr.count("cgroup /sys") == 1 and done.stdout == ""
        if not user.prefix and os.geteuid() == 0:
            pytest.skip("no memory cgroups here")
        return
    assert not user.prefix, "nobody may do this"
    figures = json.loads(done.stdout)
    assert figures["memory_limit_bytes"] == limit
    limited = figures["results"][0]
    assert limited[growth] <= limit + 2 * MIB < free[growth]
    # It reads evicted pages again.
    assert limited["disk_bytes"] > free["disk_bytes"] > 0


def test_an_engine_that_the_limit_kills_is_an_error_of_that_engine(user, features):
    if user.prefix or os.geteuid() != 0:
        pytest.skip("needs root")
    args = ["--engines", "direct", "--seconds", "0.1", "--cold", "--limit", "1MiB", "--json"]
    done = compare_within(user, features, *args, "-o", "killed.html")
    if "cgroup" in done.stderr:
        pytest.skip("no memory cgroups here")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert [failure["engine"] for failure in report["failures"]] == ["direct"]
    assert "signal 9" in done.stderr
    (run,) = page_data(user.folder / "killed.html")["runs"]
    assert run["ended"] == "failed" and "signal 9" in run["notes"][0]


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


def test_a_picture_on_stdout_is_alone(user, features):
    short = ["compare", features, "--engines", "read", "--seconds", "0"]
    done = user.run(*short, "--svg", "-")
    assert done.stdout.startswith("<svg") and done.stdout.endswith("</svg>\n")
    assert "crops/s" in done.stderr
    for more in (["--json"], ["-o", "-"]):
        said = user.run(*short, "--svg", "-", *more, code=1)
        assert said.stdout == "" and "two outputs go to the same file" in said.stderr
