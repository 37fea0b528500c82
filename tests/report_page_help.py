"""For the tests of the report page: artificial reports, and a browser that opens them."""

import bisect
import html
import json
import math
import re
from pathlib import Path

MIB = 1 << 20
PAGE = Path(__file__).parent.parent / "src" / "profile" / "page"
COLUMNS = ["seconds", "anon", "file", "shmem", "cache", "pss", "page_tables", "swap", "duplicate"]
COLUMNS += ["disk_read", "major_faults", "minor_faults", "cache_measured", "pss_measured"]
COLUMNS += ["cpu_seconds", "processes"]
STACK = ["file", "anon", "shmem"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)></script>\"'&{{data}}"


# ---- reports


def samples(count, seconds, **columns):
    """Columns of samples; each is a constant, or a function of a time that goes from 0 to 1."""
    result = {name: [] for name in COLUMNS}
    for i in range(count):
        t = i / (count - 1) if count > 1 else 0.0
        for name in COLUMNS:
            value = columns.get(name, 0)
            value = value(t) if callable(value) else value
            result[name].append(int(value) if isinstance(value, float) else value)
        result["seconds"][-1] = round(seconds * t, 6)
        result["cpu_seconds"][-1] = round(0.4 * seconds * t, 6)
    return result


def rss(s, i):
    return sum(s[name][i] for name in [*STACK, "duplicate"])


def memory(s, i):
    """The same as ProfileSample::memory."""
    return s["anon"][i] + s["shmem"][i] + max(s["file"][i], s["cache"][i] or 0)


def summary(s, budget):
    """Peaks and sums as the library computes them. Slopes are arbitrary; the page shows them."""
    every = range(len(s["seconds"]))
    known = {name: [value for value in s[name] if value is not None] for name in COLUMNS}
    peaks = {name: max(known[name], default=0) for name in [*STACK, "page_tables", "swap"]}
    peaks |= {name: max(known[name], default=None) for name in ["cache", "pss"]}
    peaks["rss"] = max((rss(s, i) for i in every), default=0)
    peaks["memory"] = max((memory(s, i) for i in every), default=0)
    own = [s["anon"][i] + s["shmem"][i] + s["page_tables"][i] for i in every]
    peaks["unreclaimable"] = max(own, default=0)
    over = [i for i in every if i and budget is not None and memory(s, i) > budget]
    last = {name: s[name][-1] if every else 0 for name in COLUMNS}
    return {
        "peak_bytes": peaks,
        "slope_bytes_per_minute": {"rss": 12.5 * MIB, "anon": 0.05 * MIB, "memory": None},
        "trend": "climbed 500 MiB in the first 6.1 s, then flat",
        "file_at_peak_bytes": peaks["file"],
        "limits": limits(peaks) if every else [],
        "seconds_over_budget": sum(s["seconds"][i] - s["seconds"][i - 1] for i in over),
        "disk_read_bytes": last["disk_read"],
        "major_faults": last["major_faults"],
        "minor_faults": last["minor_faults"],
        "cpu_seconds": last["cpu_seconds"],
        "most_processes": max(known["processes"], default=0),
    }


def limits(peaks):
    """The texts of the library about limits, which the page only shows."""
    kinds = {"RSS limit": "rss", "cgroup limit": "unreclaimable", "node eviction": "memory"}
    return [
        {
            "name": name,
            "examples": "where such limits are set",
            "bytes": peaks[kind],
            "effect": f"ends the job below {peaks[kind]} bytes",
        }
        for name, kind in kinds.items()
    ]


def run_of(s, budget=None, **changes):
    return {
        "name": "python train.py",
        "command": ["python", "train.py", "--note", "it's a long one"],
        "started": "2026-11-15T11:20:00Z",
        "seconds": s["seconds"][-1] if s["seconds"] else 0.004,
        "interval_seconds": 0.01,
        "ended": "exit code 0",
        "own_cpu_seconds": 0.05,
        "notes": ["PSS was read once a second: it costs more than the rest together."],
        "facts": {},
        "files": [{"path": "data/train.bin", "size_bytes": 4 << 30, "cached_before_bytes": None}],
        "marks": [],
        "summary": summary(s, budget),
        "samples": s,
        **changes,
    }


def report_of(*runs, budget=None, **changes):
    machine = {"kernel": "Linux 6.18.0", "cpus": 2, "memory_bytes": 25_000_000_000}
    return {
        "evenkeel": "0.1.0",
        "title": "Memory of python train.py",
        "subtitle": "Memory exceeded the budget.",
        "growth": False,
        "budget_bytes": budget,
        "machine": {**machine, "readahead_bytes": 8 * MIB},
        "runs": list(runs),
        **changes,
    }


def climbing(count=1200, seconds=12.0, **changes):
    """A memmap read at random: mapped files climb, the page cache climbs ahead of them."""
    columns = {
        "anon": lambda t: (38 + 30 * min(1, t * 8) + 2 * math.sin(40 * t)) * MIB,
        "file": lambda t: (14 + 470 * (1 - math.exp(-2.2 * t))) * MIB,
        "shmem": lambda t: (8.0 if t > 0.25 else 0.0) * MIB,
        "cache": lambda t: 560 * (1 - math.exp(-2.6 * t)) * MIB,
        "pss": lambda t: (40 + 440 * (1 - math.exp(-2.2 * t))) * MIB,
        "page_tables": lambda t: (300 + 900 * t) * 1024,
        "disk_read": lambda t: 5200 * (1 - math.exp(-2.4 * t)) * MIB,
        "major_faults": lambda t: 9000 * (1 - math.exp(-2.4 * t)),
        "minor_faults": lambda t: 60000 * t,
        "processes": lambda t: 3 if 0.3 < t < 0.9 else 1,
    }
    return samples(count, seconds, **{**columns, **changes})


MARKS = [(0.4, "load"), (1.1, "epoch 1"), (1.6, "first checkpoint written"), (1.9, "warm-up ends")]
MARKS += [(6.2, "epoch 2"), (6.5, "evaluation on the held-out set begins"), (11.8, "done")]


def marks(pairs):
    return [{"seconds": seconds, "text": text} for seconds, text in pairs]


def over_budget():
    budget = 256 * MIB
    return report_of(run_of(climbing(), budget, marks=marks(MARKS)), budget=budget)


def saw(t):
    return 20 + 30 * (t * 40 % 1)


ENGINES = {  # seconds, then MiB of RssAnon, RssFile and page cache, then GiB read
    "map": (14.1, 4, lambda t: 512 * (1 - (1 - t) ** 2), lambda t: 560 * (1 - (1 - t) ** 2), 9.1),
    "remap": (12.2, 4, lambda t: saw(t) / 2, saw, 9.0),
    "advise": (9.8, 4, saw, lambda t: saw(t) + 4, 4.0),
    "read": (8.3, 12, lambda t: 2, lambda t: 16 + 4 * math.sin(90 * t), 2.1),
    "direct": (1.4, 4, lambda t: 2, lambda t: 0, 0.6),
    "auto": (1.5, 4, lambda t: 2, lambda t: 0, 0.6),
}


def engine_run(name, budget):
    seconds, anon, file, cache, read = ENGINES[name]
    s = samples(
        int(seconds * 100),
        seconds,
        anon=lambda t: anon * MIB * min(1.0, t * 20),
        file=lambda t: float(file(t) * MIB),
        cache=lambda t: float(cache(t) * MIB),
        pss=None,
        page_tables=80 * 1024,
        disk_read=lambda t: read * 1024 * MIB * t,
        major_faults=lambda t: 900 * read * t,
        processes=1,
    )
    facts = {"rows/s": f"{int(400000 / seconds):,}", "read": f"{read} GiB"}
    return run_of(s, budget, name=name, command=[], facts=facts, notes=[])


def six_engines():
    """map climbs far over the line; direct stays flat at 6 MiB."""
    budget = 64 * MIB
    runs = [engine_run(name, budget) for name in ENGINES]
    subtitle = "direct kept under the line and was the fastest; map took 564 MiB."
    return report_of(*runs, budget=budget, growth=True, title="Six engines", subtitle=subtitle)


def page_of(report):
    """The page as the library makes it: all placeholders are found before any is replaced."""
    filling = {
        "title": html.escape(report["title"]),
        "css": (PAGE / "report.css").read_text(),
        "js": (PAGE / "report.js").read_text(),
        "data": json.dumps(report).replace("<", "\\u003c"),
    }
    parts = re.split(r"\{\{(\w+)\}\}", (PAGE / "report.html").read_text())
    assert sorted(parts[1::2]) == sorted(filling)
    return "".join(filling[part] if i % 2 else part for i, part in enumerate(parts))


# ---- the browser


class Viewer:
    """Opens pages, and records their errors and requests."""

    contexts = {}  # by browser, width and other options

    def __init__(self, browser, folder):
        self.browser, self.folder = browser, folder
        self.complaints, self.requests, self.pages = [], [], []

    def open(self, report, width=1200, **options):
        return self.open_text(page_of(report), width, **options)

    def open_text(self, text, width=1200, **options):
        path = self.folder / f"{len(self.pages)}.html"
        path.write_text(text)
        page = self.context(width, **options).new_page()
        self.pages.append(page)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self.note_dialog)
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        return page

    def note_dialog(self, dialog):
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def context(self, width, **options):
        """Tests with the same options share a context, which takes longer to make than a page."""
        kind = (self.browser, width, *options.items())
        if kind not in self.contexts:
            viewport = {"width": width, "height": 800}
            self.contexts[kind] = self.browser.new_context(viewport=viewport, **options)
            self.contexts[kind].set_default_timeout(20000)
        return self.contexts[kind]

    def asked_elsewhere(self):
        return [url for url in self.requests if not url.startswith((self.folder.as_uri(), "data:"))]


def path_points(page, series, run=0):
    """A drawn series as lists of points, one for each part of its path."""
    path = page.locator(f'path[data-series="{series}"][data-run="{run}"]')
    parts = path.get_attribute("d").replace("Z", "").split("M")[1:]
    return [[tuple(map(float, p.split(","))) for p in part.split("L")] for part in parts]


def upper_edge(page, series, run=0):
    """An area is drawn along its upper edge from left to right, and back along its lower one."""
    (points,) = path_points(page, series, run)
    end = max(range(len(points)), key=lambda i: (points[i][0], -i))
    return points[: end + 1]


def height_at(line, xs, x):
    """The least and greatest y of a line within half a pixel of x. xs: of its points."""
    near = slice(bisect.bisect_left(xs, x - 0.5), bisect.bisect_right(xs, x + 0.5))
    ys = [y for _, y in line[near]]
    right = min(max(bisect.bisect_left(xs, x), 1), len(line) - 1)
    (x0, y0), (x1, y1) = line[right - 1], line[right]
    ys.append(y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return min(ys), max(ys)


def pixels(page, function, values, run=0):
    """x of seconds or y of bytes, as the page computes them."""
    ask = f"([run, values]) => values.map((v) => evenkeelReport.{function}(run, v))"
    return page.evaluate(ask, [run, values])


def check_line(page, line, seconds, values, run=0):
    """Checks that every value is drawn at its place, within a pixel."""
    at, expected = pixels(page, "x", seconds, run), pixels(page, "y", values, run)
    xs = [x for x, _ in line]
    for x, y in zip(at, expected, strict=True):
        low, high = height_at(line, xs, x)
        assert low - 1 <= y <= high + 1, f"at x {x}: drawn {low} to {high}, expected {y}"


def legend(page, series):
    return page.locator(f'.legend button[data-series="{series}"]')


def table_row(page, name):
    row = page.locator("tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))
    return row.locator("td")


def shown_values(page):
    read = "all => Object.fromEntries(all.map((d) => [d.dataset.key, [d.value, d.textContent]]))"
    return page.eval_on_selector_all(".readout:not([hidden]) data", read)


def point_at(page, seconds, run=0):
    plot = page.locator(".plot").nth(run)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + pixels(page, "x", [seconds], run)[0], box["y"] + 90)


def check_readout(page, s, i):
    shown = shown_values(page)
    for name in ["anon", "file", "shmem", "cache", "pss", "disk_read", "major_faults", "processes"]:
        expected = "" if s[name][i] is None else str(s[name][i])
        assert shown[name][0] == expected, name
    assert shown["rss"][0] == str(rss(s, i))
    assert shown["memory"][0] == str(memory(s, i))
