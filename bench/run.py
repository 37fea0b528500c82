#!/usr/bin/env python3
"""Compares Evenkeel with its peers: the same work on the same data, each in its own process.

    scripts/setup peers && scripts/install_package .venv-peers      the peers, once
    bench/run.py --list                                             scenarios and contestants
    bench/run.py --json results.json                                everything; then: bench/report
    bench/run.py --scenario crops-cold --peer memmap_anew           one peer and Evenkeel

Contestants alternate. Results are checked to be equal. Memory, CPU and disk bytes are the kernel's
figures, read from outside. Files are created in --dir and removed when they are no longer needed.
"""

import argparse
import ast
import contextlib
import json
import os
import pathlib
import platform
import shutil
import statistics
import sys
import time

from side_by_side import data
from side_by_side.cgroup import memory_cgroup
from side_by_side.contestants import NAMES
from side_by_side.measure import Failed, convert, interpreter, measure, versions
from side_by_side.scenarios import DATA, SCENARIOS
from side_by_side.work import Work

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = ("evenkeel", "evenkeel_loader", "evenkeel_exact")


class Contestant:
    """The constants of a contestant's file, read without importing it, because its packages may not
    be installed."""

    def __init__(self, name):
        self.name = name
        path = ROOT / f"bench/side_by_side/contestants/{name}.py"
        self.title, self.packages, self.converts, self.converted = name, (), (), name
        self.cannot, self.works = {}, set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                self.works.add(node.name)
            elif isinstance(node, ast.Assign):
                self._assigned(node)

    def _assigned(self, node):
        names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        self.works.update(names)
        with contextlib.suppress(ValueError):
            value = ast.literal_eval(node.value)
            for name in names:
                if name in ("TITLE", "PACKAGES", "CONVERTS", "CONVERTED", "CANNOT"):
                    setattr(self, name.lower(), value)

    def why_not(self, scenario):
        """Why it cannot do this work; None if it can. "-" means: leave it out silently."""
        if scenario.work in self.cannot:
            return self.cannot[scenario.work]
        if scenario.work not in self.works:
            return "-"
        if self.name == "fio" and (scenario.warm or scenario.first_only):
            return "-"
        smaller = DATA[scenario.data].copied
        if smaller in self.converts and scenario.data not in self.converts:
            return "needs a full copy in another format; measured only with smaller files"
        return None


class Bench:
    def __init__(self, args):
        self.args, self.python = args, args.python or interpreter(ROOT)
        self.contestants = {name: Contestant(name) for name in NAMES}
        packages = sorted({p for c in self.contestants.values() for p in c.packages})
        self.versions = versions(self.python, packages)
        for contestant in self.contestants.values():
            if (python := self.python_of(contestant.name)) != self.python:
                own = versions(python, contestant.packages)
                self.versions.update({name: own[name] or self.versions[name] for name in own})
        self.results, self._ours = {}, set()

    def python_of(self, name):
        """The interpreter of a contestant: that of its own environment, if there is one."""
        own = ROOT / f".venv-peers-{name}/bin/python"
        return own if os.access(own, os.X_OK) else self.python

    # --- the data

    def path(self, scenario):
        one = DATA[scenario.data]
        count = one.small if self.args.small else one.count
        path = self.args.dir / f"{one.name}-{count}.bin"
        if not path.exists():
            self._ours.add(path)
        one.make(path, count)
        return path

    def described(self, scenario):
        one, path = DATA[scenario.data], self.path(scenario)
        count = one.small if self.args.small else one.count
        size = sum(file.stat().st_size for file in data.files_in(path))
        text = f"{size / data.GIB:.3g} GiB" if size >= data.GIB else f"{size / data.MIB:.3g} MiB"
        return one.text.format(count=count, size=text)

    def folder(self, contestant, scenario, work):
        """The folder of the contestant's converted copy, created if needed; "" if it needs none."""
        if scenario.data not in contestant.converts:
            return ""
        folder = self.args.dir / f"{pathlib.Path(work.path).stem}-{contestant.converted}"
        complete = folder / ".complete"
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            self._ours.add(folder)
            data.say(f"converting for {contestant.title}")
            began = time.monotonic()
            work.converted, work.kind = str(folder), scenario.work
            convert(self.python_of(contestant.name), contestant.name, work)
            complete.touch()
            data.say(f"  {time.monotonic() - began:.0f} s")
        return str(folder)

    def remove(self):
        """Removes the files that this run created."""
        for path in self._ours:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self._ours.clear()

    # --- the measuring

    def work(self, scenario):
        work = Work(
            kind=scenario.work,
            path=str(self.path(scenario)),
            converted="",
            seconds=0 if scenario.first_only else self.args.seconds,
            batch=scenario.batch,
            block=scenario.block,
            workers=scenario.workers,
            numbered=scenario.data == "blocks",
            # The data never fits.
            budget=scenario.small_budget if self.args.small else scenario.budget,
        )
        if scenario.middle:
            work.first_batch = work.blocks // 2 // work.batch
        return work

    def run(self, scenario):
        """Runs every contestant in each repeat, so that changes on the machine affect all alike."""
        data.say(f"{scenario.name}: {scenario.title}; {self.described(scenario)}")
        rows, running = {}, {}
        for name in self.args.peers:
            if name in scenario.without and name not in (self.args.peer or ()):
                continue
            contestant = self.contestants[name]
            row = rows[name] = {"title": contestant.title, "runs": [], "reason": None}
            row["reason"] = contestant.why_not(scenario) or self.missing(contestant)
            if row["reason"] == "-":
                del rows[name]
            elif row["reason"] is None:
                running[name] = work = self.work(scenario)
                try:
                    work.converted = self.folder(contestant, scenario, self.work(scenario))
                except Failed as failure:
                    row["reason"] = f"its data could not be converted: {failure}"
                    del running[name]
        for number in range(min(self.args.repeats, scenario.most_repeats)):
            for name, work in list(running.items()):
                try:
                    result = self.once(scenario, name, work)
                except Failed as failure:
                    rows[name]["reason"] = str(failure)
                    del running[name]
                    data.say(f"  {number + 1}  {rows[name]['title']:<32} {failure}")
                    continue
                rows[name]["runs"].append(result)
                data.say(f"  {number + 1}  {rows[name]['title']:<32} {brief(scenario, result)}")
        self.compare(scenario, rows)
        self.results[scenario.name] = {
            "title": scenario.title,
            "data": self.described(scenario),
            "unit": scenario.unit,
            "batch": scenario.batch,
            "block": scenario.block,
            "limit": scenario.limit,
            "first_only": scenario.first_only,
            "workers": scenario.workers,
            "rows": {name: {**row, **summary(row["runs"])} for name, row in rows.items()},
        }

    def once(self, scenario, name, work):
        how = {
            "cold": not scenario.warm,
            "pss": scenario.workers > 0,
            "grace": scenario.grace,
        }
        if scenario.limit is None or name == "fio":
            return measure(self.python_of(name), name, work, **how)
        with memory_cgroup(scenario.limit) as group:
            if group is None:
                raise Failed("cannot create a memory cgroup")
            return measure(self.python_of(name), name, work, group=group, **how)

    def missing(self, contestant):
        if contestant.name == "fio" and not shutil.which("fio"):
            return "not installed"
        absent = [package for package in contestant.packages if not self.versions[package]]
        return f"not installed: {', '.join(absent)}" if absent else None

    def compare(self, scenario, rows):
        """Ends the run if a contestant returned wrong data."""
        digests = {}
        for name, row in rows.items():
            for result in row["runs"]:
                if result["problem"]:
                    sys.exit(f"bench: {scenario.name}: {name} returned {result['problem']}")
                if result["digest"]:
                    digests.setdefault(result["digest"], set()).add(name)
        if len(digests) > 1:
            sys.exit(f"bench: {scenario.name}: different data: {list(digests.values())}")


def summary(runs):
    """Medians of all runs, and the range of speeds."""
    if not runs:
        return {"figures": None}

    def middle(pick):
        values = [pick(run) for run in runs if pick(run) is not None]
        return statistics.median(values) if values else None

    speeds = [run["per_s"] for run in runs]
    return {
        "figures": {
            "per_s": statistics.median(speeds),
            "per_s_low": min(speeds),
            "per_s_high": max(speeds),
            **{
                key: middle(lambda run, key=key: run[key])
                for key in ("first_batch_s", "read_per_wanted", "cpu_s_per_item", "cgroup_peak")
            },
            # For memory, the worst run counts.
            "growth": {
                kind: max(run["growth"][kind] for run in runs) for kind in runs[0]["growth"]
            },
        }
    }


def brief(scenario, result):
    grown = result["growth"]["memory"] / data.MIB
    first = result["first_batch_s"]
    delay = f"first batch {first * 1e3:,.1f} ms, " if first is not None else ""
    speed = "" if scenario.first_only else f"{result['per_s']:>12,.0f} {scenario.unit}/s, "
    return f"{speed}{delay}memory +{grown:,.1f} MiB, read {result['read_per_wanted']:.1f} x"


def print_table(name, result):
    print(f"\n{name}: {result['title']} ({result['data']})")
    unit = result["unit"]
    speed = "" if result["first_only"] else f"{unit}/s"
    line = "  {:<32}{:>13}{:>17}{:>12}{:>9}{:>11}{:>11}{:>11}"
    print(
        line.format("", speed, "spread", "1st batch", "read", "anon MiB", "file MiB", "cache MiB")
    )
    for row in result["rows"].values():
        figures = row["figures"]
        if figures is None:
            print(f"  {row['title']:<32}{row['reason']}")
            continue
        grown, first = figures["growth"], figures["first_batch_s"]
        low, high = figures["per_s_low"], figures["per_s_high"]
        print(
            line.format(
                row["title"],
                "" if result["first_only"] else f"{figures['per_s']:,.0f}",
                "" if result["first_only"] else f"{low:,.0f}-{high:,.0f}",
                "" if first is None else f"{first * 1e3:,.1f} ms",
                f"{figures['read_per_wanted']:.1f} x",
                *(f"{grown[kind] / data.MIB:,.1f}" for kind in ("anon", "file", "cache")),
            )
        )


@contextlib.contextmanager
def readahead(path, kib):
    """Sets the readahead of the device while the context is active. None leaves it unchanged."""
    if kib is None:
        yield
        return
    file, before = data.readahead_file(path), data.readahead_kib(path)
    try:
        file.write_text(str(kib))
    except OSError as error:
        sys.exit(f"bench: --readahead {kib}: {error}")
    try:
        yield
    finally:
        file.write_text(str(before))


def cpu_name():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def machine(folder):
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "kernel": platform.release().split("-")[0],
        "read_ahead_kib": data.readahead_kib(folder),
    }


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, metavar="NAME")
    parser.add_argument(
        "--peer",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help="run only these and Evenkeel; repeatable",
    )
    parser.add_argument(
        "--list", action="store_true", help="list scenarios and contestants, and exit"
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each repeat")
    parser.add_argument("--quick", action="store_true", help="3 repeats of half a second")
    parser.add_argument(
        "--readahead", type=int, metavar="KIB", help="set the readahead during the run"
    )
    parser.add_argument(
        "--small", action="store_true", help="little data and one repeat, to see that it works"
    )
    parser.add_argument("--keep", action="store_true", help="keep the files for the next run")
    parser.add_argument(
        "--dir", type=pathlib.Path, default=ROOT / ".cache/side-by-side", help="a disk, not tmpfs"
    )
    parser.add_argument("--python", type=pathlib.Path, help="the interpreter that has the peers")
    args = parser.parse_args()
    if args.repeats < 1 or args.seconds <= 0:
        parser.error("--repeats must be at least 1 and --seconds more than 0")
    args.peers = [name for name in NAMES if not args.peer or name in (*OURS, *args.peer)]
    args.peers.sort(key=lambda name: (name not in OURS, name))
    if args.quick:
        args.repeats, args.seconds = 3, 0.5
    if args.small:
        args.repeats, args.seconds = 1, 0.2
    return args


def print_list(bench):
    print("scenarios")
    for scenario in SCENARIOS.values():
        print(f"  {scenario.name:<16}{scenario.title}")
    print("contestants")
    for one in bench.contestants.values():
        known = ", ".join(f"{p} {bench.versions[p] or '(not installed)'}" for p in one.packages)
        print(f"  {one.name:<20}{one.title:<32}{known}")


def write(args, bench, described, took):
    if not args.json:
        return
    report = {
        "machine": described,
        "versions": {name: one for name, one in bench.versions.items() if one},
        "repeats": args.repeats,
        "seconds": args.seconds,
        "took_s": took,
        "scenarios": bench.results,
    }
    args.json.write_text(json.dumps(report, indent=1) + "\n")


def main():
    args = options()
    bench = Bench(args)
    if args.list:
        print_list(bench)
        return 0
    args.dir.mkdir(parents=True, exist_ok=True)
    wanted = [one for one in SCENARIOS.values() if not args.scenario or one.name in args.scenario]
    began = time.monotonic()
    with readahead(args.dir, args.readahead):
        described = machine(args.dir)
        data.say(", ".join(f"{key} {value}" for key, value in described.items()))
        try:
            for number, scenario in enumerate(wanted):
                bench.run(scenario)
                # After each scenario, so that an interrupted run keeps its results.
                write(args, bench, described, time.monotonic() - began)
                if not args.keep and scenario.data not in {s.data for s in wanted[number + 1 :]}:
                    bench.remove()
        finally:
            if not args.keep:
                bench.remove()
    for name, result in bench.results.items():
        print_table(name, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
