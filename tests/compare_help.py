"""For the tests of compare and demo: checks of reports, and of processes that run."""

from pathlib import Path

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


def check_picture(page, figures):
    """Checks that each engine has a run whose samples reach the printed figures."""
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
        # The kernel's peak also includes growth between two samples.
        assert max(rss) <= result["rss_growth_peak_bytes"] * 1.05 + 2 * MIB
        # Samples are two milliseconds apart, and some may be combined into one.
        assert run["seconds"] >= 0.9 * result["seconds"]


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
