"""evenkeel.metrics(): what a metrics system reads of this process."""

import gc
import os
import sys
import threading
import weakref

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from remote_help import ObjectServer, npy

import evenkeel


def parsed():
    """{family: (type, unit, [(name, labels, value)])}, by the parser of Prometheus's own client."""
    families = {}
    for family in text_string_to_metric_families(evenkeel.metrics()):
        samples = [(one.name, one.labels, one.value) for one in family.samples]
        families[family.name] = (family.type, family.unit, samples)
    return families


def value(families, family, **labels):
    (found,) = [
        number
        for _, labelled, number in families[family][2]
        if all(labelled.get(name) == text for name, text in labels.items())
    ]
    return found


def number_of(families, path):
    """Of the array that is open with this path."""
    (found,) = [
        labels["array"]
        for _, labels, _ in families["evenkeel_array"][2]
        if labels["path"] == str(path)
    ]
    return found


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "rows.npy"
    np.save(made, np.arange(4 << 20, dtype=np.uint8).reshape(-1, 1024))
    return made


def test_names_types_and_units_are_as_the_format_wants_them(path):
    with evenkeel.open(path, budget="64MiB") as a, evenkeel.Loader(a, batch_size=16) as loader:
        next(iter(loader))
        families = parsed()
    assert len(families) > 25
    for name, (kind, unit, samples) in families.items():
        assert name.startswith("evenkeel_")
        assert kind in ("counter", "gauge", "info")
        assert unit == next((u for u in ("bytes", "seconds") if name.endswith("_" + u)), "")
        suffix = {"counter": "_total", "gauge": "", "info": "_info"}[kind]
        assert all(sample == name + suffix and number >= 0 for sample, _, number in samples)


def test_an_array_has_the_numbers_of_its_stats(path):
    with evenkeel.open(path, budget="2MiB") as a:  # too little: rows are read
        a[np.arange(0, 4000, 7)]
        stats, families = a.stats(), parsed()
        mine = {"array": number_of(families, path)}
        for source in ("disk", "page_cache", "cache", "mapping", "network", "disk_cache"):
            counted = value(families, "evenkeel_array_read_bytes", source=source, **mine)
            assert counted == stats[f"bytes_from_{source}"]
        assert stats["bytes_from_disk"] + stats["bytes_from_page_cache"] > 500 << 10
        assert value(families, "evenkeel_array_requests", **mine) == stats["requests"]
        waited = value(families, "evenkeel_array_read_wait_seconds", **mine)
        assert waited == pytest.approx(stats["wait_ns"] / 1e9)


def test_budgets_are_there_by_what_holds_them(path):
    limit = (3 << 20) + 4711  # a limit that no other budget has
    budget = evenkeel.Budget(limit)
    with evenkeel.open(path, budget=budget):
        families = parsed()
        (number,) = [
            labels["budget"]
            for _, labels, size in families["evenkeel_budget_limit_bytes"][2]
            if size == limit
        ]
        assert value(families, "evenkeel_budget_in_use_bytes", budget=number) == budget.in_use
        assert value(families, "evenkeel_budget_peak_bytes", budget=number) == budget.peak
        held = {
            labels["use"]: size
            for _, labels, size in families["evenkeel_budget_held_bytes"][2]
            if labels["budget"] == number
        }
        assert held == budget.uses() and sum(held.values()) == budget.in_use


def test_two_caches_of_one_budget_are_one_sample(tmp_path):
    """Samples of the same labels would not be valid, and the sum would be wrong."""
    budget = evenkeel.Budget(32 << 20)
    arrays = []
    for name in ("one.npy", "two.npy"):
        np.save(tmp_path / name, np.zeros((4 << 10, 1024), dtype=np.uint8))
        options = {"budget": budget, "engine": "direct", "cache": "2MiB"}
        arrays.append(evenkeel.open(tmp_path / name, **options))
        for number in range(30):  # read often, so that it is kept
            arrays[-1].take(np.random.default_rng(number).integers(0, 300, 400))
    lines = [line.rsplit(" ", 1)[0] for line in evenkeel.metrics().splitlines()]
    samples = [line for line in lines if line.startswith("evenkeel_budget_held_bytes{")]
    assert len(set(samples)) == len(samples)
    assert all(one.stats()["cache_bytes"] > 0 for one in arrays)
    assert sum(budget.uses().values()) == budget.in_use
    for one in arrays:
        one.close()


def test_a_loader_counts_its_batches_and_how_long_they_were_waited_for(path):
    before = parsed()
    with evenkeel.open(path, budget="64MiB") as a, evenkeel.Loader(a, batch_size=64) as loader:
        taken = len(list(loader))
        stats, families = loader.stats(), parsed()
        assert stats["batches"] == taken == 64 and stats["batch_wait_ns"] >= 0
        sample = families["evenkeel_loader"][2][-1][1]
        assert sample["kind"] == "loader" and sample["batch"] == "64 rows of 1,024 bytes"
        mine = {"loader": sample["loader"]}
        assert value(families, "evenkeel_loader_batches", **mine) == taken
        waited = value(families, "evenkeel_loader_wait_seconds", **mine)
        assert waited == pytest.approx(stats["batch_wait_ns"] / 1e9)
    after = parsed()
    assert value(after, "evenkeel_batches") == value(before, "evenkeel_batches") + taken


def test_chunks_are_loaders_of_their_own_kind(path):
    with evenkeel.open(path, budget="2MiB") as a:
        chunks = a.batches(100)
        next(iter(chunks))
        kinds = [labels["kind"] for _, labels, _ in parsed()["evenkeel_loader"][2]]
        assert "chunks" in kinds


def test_nothing_is_kept_alive(path):
    gc.collect()
    a = evenkeel.open(path, budget="2MiB")
    loader = evenkeel.Loader(a, batch_size=17)
    a[0]
    before = parsed()
    (mine,) = [
        labels["loader"]
        for _, labels, _ in before["evenkeel_loader"][2]
        if labels["batch"] == "17 rows of 1,024 bytes"
    ]
    gone = [weakref.ref(a), weakref.ref(loader)]
    del a, loader
    gc.collect()
    assert [one() for one in gone] == [None, None]
    after = parsed()
    paths = [labels["path"] for _, labels, _ in after["evenkeel_array"][2]]
    assert str(path) not in paths
    assert mine not in [labels["loader"] for _, labels, _ in after["evenkeel_loader"][2]]
    # What was read stays in the sums.
    for source in ("disk", "page_cache"):
        read = [value(f, "evenkeel_read_bytes", source=source) for f in (before, after)]
        assert read[1] >= read[0]


def test_any_name_of_a_file_is_a_label(tmp_path):
    name = os.fsencode(tmp_path) + b'/a "quoted" \\ back\nline \xff.bin'
    with open(name, "wb") as file:
        file.write(bytes(4096))
    with evenkeel.open(os.fsdecode(name), dtype="uint8", budget="1MiB"):
        paths = [labels["path"] for _, labels, _ in parsed()["evenkeel_array"][2]]
    assert f'{tmp_path}/a "quoted" \\ back\nline �.bin' in paths


def test_signatures_of_addresses_are_left_out():
    with ObjectServer() as server:
        url = server.put("rows.npy", npy(np.zeros((64, 64), dtype=np.uint8)))
        with evenkeel.open(url + "?token=secret", budget="4MiB") as a:
            a[3]
            text = evenkeel.metrics()
    assert url in text and "secret" not in text


def test_threads_may_ask_while_others_read_and_close(path):
    ended = threading.Event()
    failures = []

    def ask():
        while not ended.is_set():
            if not evenkeel.metrics().endswith("# EOF\n"):
                failures.append("cut off")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(20):
            with evenkeel.open(path, budget="2MiB") as a:
                a[[1, 2000]]
    finally:
        ended.set()
        asking.join()
    assert failures == []


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
