"""`evenkeel compare URL`: the ways to read an object on a server, side by side."""

import json
import os
import subprocess

import numpy as np
import pytest
from remote_help import ObjectServer, npy

TOOL = os.environ.get("EVENKEEL_TOOL")
pytestmark = pytest.mark.skipif(TOOL is None, reason="the tool is not built")

ROWS = np.random.default_rng(3).integers(0, 1 << 30, (2000, 256), dtype=np.int32)  # 2 MB
FLAT = np.arange(200_000, dtype=np.uint16)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("EVENKEEL_RETRY_DELAY", "0.001")
    with ObjectServer() as made:
        made.put("rows.npy", npy(ROWS))
        made.put("flat.npy", npy(FLAT))
        yield made


def tool(*words, code=0):
    done = subprocess.run(
        [TOOL, "compare", *map(str, words)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == code, done.stderr
    return done


def compare(*words):
    """Results by way. Ways of the same order have read the same."""
    report = json.loads(tool(*words, "--budget", "16MiB", "--seconds", "0.2", "--json").stdout)
    assert report["failures"] == []
    results = {result["way"]: result for result in report["results"]}
    for name, result in results.items():
        assert result["items"] > 0 and result["checksum_items"] > 0, name
        assert result["items_per_s"] == pytest.approx(result["items"] / result["seconds"])
        assert result["within_budget"] is True, result
        exact, blocks = results["single"], results.get("blocks")
        same = blocks if name.startswith("blocks") else exact
        assert result["checksum"] == same["checksum"], name
    return report, results


@pytest.mark.not_emulated("the memory of the process includes the emulator's")
def test_rows_are_read_in_every_way(server, tmp_path):
    url = f"{server.url}/rows.npy"
    report, results = compare(url, "--cache", f"{tmp_path}/ek:64MiB")
    assert report["file"] == url and report["pattern"] == "rows"
    assert list(results) == ["single", "parallel", "blocks", "parallel+cache", "blocks+cache"]
    single = results["single"]
    assert single["requests"] == single["items"]
    assert single["bytes_from_network"] == single["wanted_bytes"]
    assert results["parallel"]["requests"] < results["parallel"]["items"]  # merged
    assert results["blocks+cache"]["bytes_from_disk_cache"] > 0
    assert all(results[name]["bytes_from_disk_cache"] == 0 for name in ("single", "blocks"))
    # Now the cache holds the data.
    server.forget()
    _, results = compare(url, "--cache", f"{tmp_path}/ek:64MiB")
    assert results["parallel+cache"]["bytes_from_network"] == 0


def test_crops_and_scans(server):
    report, results = compare(f"{server.url}/flat.npy")
    assert report["pattern"] == "crops" and list(results) == ["single", "parallel"]
    assert results["single"]["wanted_bytes"] == results["single"]["items"] * 2048
    report, results = compare(f"{server.url}/rows.npy", "--pattern", "scan")
    assert list(results) == ["single", "parallel"]


def test_late_servers_are_why_many_requests_are_made(server):
    """With 20 ms to an answer, one request after the other makes at most 50 a second."""
    answer = server.respond

    def late(*request):
        server.released.wait(0.02)
        return answer(*request)

    server.respond = late
    _, results = compare(f"{server.url}/rows.npy")
    assert results["single"]["items_per_s"] <= 50
    assert results["parallel"]["items_per_s"] > 3 * results["single"]["items_per_s"]


def test_people_get_a_table_and_no_secret(server):
    words = ["rows/s", "× single", "requests/item", "fetched/wanted", "\nblocks ", "checksum"]
    for query in ("", "?secret=1"):
        url = f"{server.url}/rows.npy{query}"
        done = tool(url, "--seconds", "0.1", "--budget", "16MiB")
        for word in words:
            assert word in done.stdout, word
        assert (f"next: evenkeel doctor {url}" in done.stderr) == (not query)
        assert "secret" not in done.stdout + done.stderr


def test_what_makes_no_sense_is_refused(server, tmp_path):
    url = f"{server.url}/rows.npy"
    for words in (["--cold"], ["--engines", "map"], ["-o", tmp_path / "x.html"]):
        assert "is for files, not for URLs" in tool(url, *words, code=1).stderr
    np.save(tmp_path / "rows.npy", ROWS)
    done = tool(tmp_path / "rows.npy", "--cache", f"{tmp_path}/ek:64MiB", code=1)
    assert "--cache is for URLs" in done.stderr
    assert "404" in tool(f"{server.url}/none.npy", code=1).stderr


def test_an_object_that_changes_is_an_error_of_its_way(server):
    server.fault = lambda number: "changed" if number == 40 else None
    done = tool(f"{server.url}/rows.npy", "--seconds", "1", "--json", code=1)
    assert "changed since it was opened" in json.loads(done.stdout)["failures"][0]["error"]
