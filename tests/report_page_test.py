"""The report page in a browser: it draws what the JSON says, and asks nobody for anything.

Reports are made up here, so that each test has the one it needs; one test has the tool make them.
"""

import bisect
import csv
import html
import io
import json
import math
import re
import shutil
import tempfile
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: no browser to drive")

MIB = 1 << 20
PAGE = Path(__file__).parent.parent / "src" / "profile" / "page"
COLUMNS = ["seconds", "anon", "file", "shmem", "cache", "pss", "page_tables", "swap", "disk_read"]
COLUMNS += ["major_faults", "minor_faults", "cpu_seconds", "processes"]
STACK = ["anon", "file", "shmem"]
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
    return sum(s[name][i] for name in STACK)


def memory(s, i):
    """ProfileSample::memory, a second time."""
    return max(rss(s, i), s["anon"][i] + s["shmem"][i] + (s["cache"][i] or 0))


def summary(s, budget):
    """Peaks and sums as the library gives them. Slopes are made up: the page only shows them."""
    every = range(len(s["seconds"]))
    known = {name: [value for value in s[name] if value is not None] for name in COLUMNS}
    peaks = {name: max(known[name], default=0) for name in [*STACK, "page_tables", "swap"]}
    peaks |= {name: max(known[name], default=None) for name in ["cache", "pss"]}
    peaks["rss"] = max((rss(s, i) for i in every), default=0)
    peaks["memory"] = max((memory(s, i) for i in every), default=0)
    over = [i for i in every if i and budget is not None and memory(s, i) > budget]
    last = {name: s[name][-1] if every else 0 for name in COLUMNS}
    return {
        "peak_bytes": peaks,
        "slope_bytes_per_minute": {"rss": 12.5 * MIB, "anon": 0.05 * MIB, "memory": None},
        "seconds_over_budget": sum(s["seconds"][i] - s["seconds"][i - 1] for i in over),
        "disk_read_bytes": last["disk_read"],
        "major_faults": last["major_faults"],
        "minor_faults": last["minor_faults"],
        "cpu_seconds": last["cpu_seconds"],
        "most_processes": max(known["processes"], default=0),
    }


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
        "subtitle": "Memory went over the line.",
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
    """The page as the library makes it: placeholders are found before anything is put in."""
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


@pytest.fixture(scope="module")
def browser():
    names = ["chromium", "chromium-browser", "google-chrome"]
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no chromium: no browser to draw the page")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program)
        yield browser
        Viewer.contexts.clear()
        browser.close()


class Viewer:
    """Opens pages, and notes what each of them complains of and asks for."""

    contexts = {}  # of the one browser there is

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
        """Tests share what they have in common: making a context costs more than a page."""
        kind = (width, *options.items())
        if kind not in self.contexts:
            viewport = {"width": width, "height": 800}
            self.contexts[kind] = self.browser.new_context(viewport=viewport, **options)
            self.contexts[kind].set_default_timeout(20000)
        return self.contexts[kind]

    def asked_elsewhere(self):
        return [url for url in self.requests if not url.startswith((self.folder.as_uri(), "data:"))]


@pytest.fixture
def viewer(browser):
    """Whatever a test is about, its pages must be silent and must load nothing."""
    with tempfile.TemporaryDirectory(prefix="evenkeel-page-test-") as folder:
        viewer = Viewer(browser, Path(folder))
        yield viewer
        for page in viewer.pages:
            page.close()
        assert viewer.complaints == []
        assert viewer.asked_elsewhere() == []


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
    """x of seconds or y of bytes, as the page reckons."""
    ask = f"([run, values]) => values.map((v) => evenkeelReport.{function}(run, v))"
    return page.evaluate(ask, [run, values])


def check_line(page, line, seconds, values, run=0):
    """Every value is drawn where it belongs, give or take a pixel."""
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


# ---- what is drawn


def test_stacked_areas_are_the_sums_of_the_samples(viewer):
    report = over_budget()
    page = viewer.open(report)
    s, total = report["runs"][0]["samples"], [0] * 1200
    for series in STACK:
        total = [a + b for a, b in zip(total, s[series], strict=True)]
        check_line(page, upper_edge(page, series), s["seconds"], total)


def test_page_cache_is_a_line_of_its_own_and_pss_comes_when_asked_for(viewer):
    report = over_budget()
    page = viewer.open(report)
    s = report["runs"][0]["samples"]
    (line,) = path_points(page, "cache")
    check_line(page, line, s["seconds"], s["cache"])
    assert page.locator('path[data-series="pss"]').count() == 0
    legend(page, "pss").click()
    (line,) = path_points(page, "pss")
    check_line(page, line, s["seconds"], s["pss"])


def test_scales_agree_with_the_labels_of_the_axes(viewer):
    page = viewer.open(over_budget())
    place = "[t.textContent, +t.getAttribute('x'), +t.getAttribute('y')]"
    labels = page.eval_on_selector_all("svg text", f"all => all.map((t) => {place})")
    y = {text: y for text, _, y in labels if re.fullmatch(r"\d+ (B|MiB)", text)}
    assert list(y) == ["0 B", "128 MiB", "256 MiB", "384 MiB", "512 MiB"]
    expected = [4 + at for at in pixels(page, "y", [k * 128 * MIB for k in range(5)])]
    assert list(y.values()) == pytest.approx(expected, abs=0.1)  # text stands 4 pixels lower
    x = {text: x for text, x, _ in labels if re.fullmatch(r"\d+ s", text)}
    assert abs(x["6 s"] - pixels(page, "x", [6])[0]) < 0.1


def test_read_rate_has_the_area_of_what_was_read(viewer):
    report = over_budget()
    page = viewer.open(report)
    line = upper_edge(page, "read_rate")
    panel = page.evaluate("evenkeelReport.panels(0).find((panel) => panel.key === 'read_rate')")
    per_pixel = panel["most"] / (panel["bottom"] - panel["top"])
    seconds_per_pixel = 1 / (pixels(page, "x", [1])[0] - pixels(page, "x", [0])[0])
    area = sum(
        (x1 - x0) * (panel["bottom"] - (y0 + y1) / 2)
        for (x0, y0), (x1, y1) in zip(line, line[1:], strict=False)
    )
    read = report["runs"][0]["samples"]["disk_read"][-1]
    assert area * per_pixel * seconds_per_pixel == pytest.approx(read, rel=0.01)


def test_many_samples_are_reduced_and_no_spike_is_lost(viewer):
    s = climbing(8192, 600.0)
    s["anon"][5001] = 900 * MIB
    s["cache"][3003] = 1000 * MIB
    page = viewer.open(report_of(run_of(s)))
    panel = page.evaluate("evenkeelReport.panels(0)[0]")
    width = panel["right"] - panel["left"]
    line, (cache,) = upper_edge(page, "anon"), path_points(page, "cache")
    for drawn, i, peak in [(line, 5001, 900), (cache, 3003, 1000)]:
        assert len(drawn) <= 2 * width + 4
        x, y = min(drawn, key=lambda point: point[1])
        assert abs(x - pixels(page, "x", [s["seconds"][i]])[0]) <= 1
        assert abs(y - pixels(page, "y", [peak * MIB])[0]) <= 1
    check_line(page, line, s["seconds"][::100], s["anon"][::100])


def test_toggling_a_series_restacks_and_rescales(viewer):
    report = over_budget()
    page = viewer.open(report)
    s = report["runs"][0]["samples"]
    assert legend(page, "anon").get_attribute("aria-pressed") == "true"
    legend(page, "anon").click()
    assert legend(page, "anon").get_attribute("aria-pressed") == "false"
    assert page.locator('path[data-series="anon"]').count() == 0
    check_line(page, upper_edge(page, "file"), s["seconds"], s["file"])

    top = page.evaluate("evenkeelReport.panels(0)[0].most")
    for series in ["budget", "cache", "file"]:
        legend(page, series).click()
    assert page.evaluate("evenkeelReport.panels(0)[0].most") < top / 10
    check_line(page, upper_edge(page, "shmem"), s["seconds"], s["shmem"])

    for series in ["anon", "file", "cache", "budget"]:
        legend(page, series).click()
    assert page.evaluate("evenkeelReport.panels(0)[0].most") == top
    total = [s["anon"][i] + s["file"][i] for i in range(1200)]
    check_line(page, upper_edge(page, "file"), s["seconds"], total)


def test_overshoot_is_shaded_from_where_memory_crosses_the_budget(viewer):
    report = over_budget()
    page = viewer.open(report)
    s, budget = report["runs"][0]["samples"], report["budget_bytes"]
    first = next(i for i in range(1200) if memory(s, i) > budget)
    (points,) = path_points(page, "over")
    line = pixels(page, "y", [budget])[0]
    assert abs(points[0][0] - pixels(page, "x", [s["seconds"][first]])[0]) <= 1
    assert abs(points[0][1] - line) <= 0.1 and abs(points[-1][1] - line) <= 0.1
    expected = [memory(s, i) for i in range(first, 1200)]
    check_line(page, points[:-1], s["seconds"][first:], expected)
    assert "over by 340 MiB for 10.1 s" in table_row(page, "Budget 256 MiB").inner_text()


def test_a_run_that_dips_below_the_budget_is_shaded_in_parts(viewer):
    s = samples(9, 8.0, anon=lambda t: (300 if round(t * 8) in (2, 3, 6) else 100) * MIB)
    page = viewer.open(report_of(run_of(s, 200 * MIB), budget=200 * MIB))
    spans = [(part[0][0], part[-1][0]) for part in path_points(page, "over")]
    expected = pixels(page, "x", [1.5, 3.5, 5.5, 6.5])
    assert [x for span in spans for x in span] == pytest.approx(expected, abs=1)


def test_within_the_line_nothing_is_shaded_and_words_say_so(viewer):
    s = climbing(cache=None)
    page = viewer.open(report_of(run_of(s, 4 << 30), budget=4 << 30))
    assert page.locator('[data-series="over"]').count() == 0
    y = float(page.locator('line[data-series="budget"]').get_attribute("y1"))
    assert y == pytest.approx(pixels(page, "y", [4 << 30])[0])
    verdict = table_row(page, "Budget 4 GiB").inner_text()
    assert verdict == "within the line (page cache unknown)"


@pytest.mark.parametrize("count", [7, 1000])
def test_labels_of_marks_do_not_collide(viewer, count):
    many = [(12 * i / count, f"step {i} of the many") for i in range(count)]
    page = viewer.open(report_of(run_of(climbing(), marks=marks(MARKS if count == 7 else many))))
    boxes = page.eval_on_selector_all(
        ".mark-label", "all => all.map((t) => t.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) >= 6
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart = a["left"] >= b["right"] or b["left"] >= a["right"]
            assert apart or a["top"] >= b["bottom"] - 4 or b["top"] >= a["bottom"] - 4
    plot = page.locator(".plot").bounding_box()
    assert max(box["right"] for box in boxes) <= plot["x"] + plot["width"]
    lines = re.findall(r"M([\d.]+),([\d.]+)V", page.locator("path.marks").get_attribute("d"))
    assert len(lines) >= len(boxes)
    for x, top in [(float(x) + plot["x"], float(top) + plot["y"]) for x, top in lines]:
        crossed = [b for b in boxes if b["left"] + 2 < x < b["right"] - 2 and top < b["bottom"] - 4]
        assert crossed == []
    assert page.locator("ul.marks li").count() == count


def test_unknown_page_cache_is_a_gap_not_a_zero(viewer):
    s = climbing()
    s["cache"][300:600] = [None] * 300
    page = viewer.open(report_of(run_of(s)))
    before, after = path_points(page, "cache")
    ends = pixels(page, "x", [s["seconds"][299], s["seconds"][600]])
    assert [before[-1][0], after[0][0]] == pytest.approx(ends, abs=0.1)


@pytest.mark.parametrize(
    "seconds, labels",
    [(0.5, {"0.1 s"}), (90, {"20 s"}), (600, {"m:ss", "2:00"}), (9000, {"h:mm", "1:00"})],
)
def test_time_is_written_as_suits_its_length(viewer, seconds, labels):
    page = viewer.open(report_of(run_of(climbing(50, seconds))))
    assert labels <= set(page.locator("svg text").all_text_contents())


# ---- reading values


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


def test_pointing_shows_the_sample_of_that_time(viewer):
    s = climbing(100, 12.0)
    page = viewer.open(report_of(run_of(s, marks=marks(MARKS))))
    for i in [0, 17, 50, 99]:
        point_at(page, s["seconds"][i])
        check_readout(page, s, i)
        x = float(page.locator(".crosshair").get_attribute("x1"))
        assert x == pytest.approx(pixels(page, "x", [s["seconds"][i]])[0], abs=0.1)
        assert page.evaluate("x => evenkeelReport.value_at(0, 'memory', x)", x) == memory(s, i)
    rate = (s["disk_read"][99] - s["disk_read"][98]) / (s["seconds"][99] - s["seconds"][98])
    assert float(shown_values(page)["read_rate"][0]) == pytest.approx(rate)
    assert page.locator(".readout .mark").inner_text() == "after “done”"
    page.mouse.move(5, 5)
    assert page.locator(".readout").is_hidden()


@pytest.mark.parametrize("width", [700, 1200])
def test_the_readout_stays_in_the_chart_and_beside_the_crosshair(viewer, width):
    page = viewer.open(over_budget(), width=width)
    plot = page.locator(".plot").bounding_box()
    for seconds in [0, 3, 5.9, 6.1, 9, 12]:
        point_at(page, seconds)
        box = page.locator(".readout").bounding_box()
        assert box["x"] >= plot["x"] and box["x"] + box["width"] <= plot["x"] + plot["width"]
        x = plot["x"] + pixels(page, "x", [seconds])[0]
        assert x < box["x"] or x > box["x"] + box["width"]


def test_arrow_keys_walk_through_the_samples(viewer):
    s = climbing(100, 12.0)
    page = viewer.open(report_of(run_of(s)))
    page.locator(".plot").focus()
    for key, i in [("Right", 0), ("Right", 1), ("End", 99), ("Left", 98), ("Home", 0)]:
        page.keyboard.press(f"Arrow{key}" if key in ("Left", "Right") else key)
        check_readout(page, s, i)
    page.keyboard.press("Shift+ArrowRight")
    check_readout(page, s, 10)
    slider = page.get_by_role("slider")
    assert float(slider.get_attribute("aria-valuenow")) == s["seconds"][10]
    assert "anonymous" in slider.get_attribute("aria-valuetext")
    page.keyboard.press("Escape")
    assert page.locator(".readout").is_hidden()


def test_a_touch_shows_values_and_leaves_them(viewer):
    s = climbing(100, 12.0)
    page = viewer.open(report_of(run_of(s)), width=360, has_touch=True)
    page.locator(".plot").scroll_into_view_if_needed()
    box = page.locator(".plot").bounding_box()
    page.touchscreen.tap(box["x"] + pixels(page, "x", [s["seconds"][40]])[0], box["y"] + 90)
    check_readout(page, s, 40)


# ---- several runs


def test_several_runs_have_equal_axes_and_one_crosshair_time(viewer):
    report = six_engines()
    page = viewer.open(report)
    assert page.locator(".card h3").all_text_contents() == list(ENGINES)
    for i, run in enumerate(report["runs"]):
        assert pixels(page, "x", [0, 5, 14], i) == pixels(page, "x", [0, 5, 14], 0)
        assert pixels(page, "y", [0, 512 * MIB], i) == pixels(page, "y", [0, 512 * MIB], 0)
        s = run["samples"]
        check_line(page, upper_edge(page, "anon", i), s["seconds"], s["anon"], i)
        facts = page.locator(".card .facts").nth(i).inner_text()
        assert all(f"{value} {name}" in facts for name, value in run["facts"].items())
    assert page.locator('[data-series="over"]').count() == 1
    assert page.locator(".legend").count() == 1

    point_at(page, 1.0, run=1)
    visible = page.locator('.crosshair[visibility="visible"]')
    xs = visible.evaluate_all("all => all.map((line) => +line.getAttribute('x1'))")
    assert xs == pytest.approx([pixels(page, "x", [1.0])[0]] * 6, abs=1)
    assert page.locator(".readout:not([hidden])").count() == 1
    point_at(page, 12.0, run=0)
    assert visible.count() == 2  # map and remap were still running


@pytest.mark.parametrize("width, columns", [(1200, 3), (800, 2), (360, 1)])
def test_cards_stand_in_as_many_columns_as_fit(viewer, width, columns):
    page = viewer.open(six_engines(), width=width)
    left = "all => all.map((card) => card.getBoundingClientRect().left)"
    lefts = page.eval_on_selector_all(".card", left)
    assert len(set(lefts)) == columns


def test_drawings_follow_the_width_of_the_window(viewer):
    report = over_budget()
    page = viewer.open(report, width=1200)
    page.set_viewport_size({"width": 700, "height": 800})
    narrower = page.evaluate("""async () => {
      const right = () => evenkeelReport.panels(0)[0].right;
      for (let k = 0; k < 500 && right() > 700; ++k) await new Promise((go) => setTimeout(go, 10));
      return right();
    }""")
    assert narrower < 700
    s = report["runs"][0]["samples"]
    check_line(page, upper_edge(page, "anon"), s["seconds"], s["anon"])


# ---- words and numbers


def test_table_has_human_sizes_with_exact_bytes(viewer):
    report = over_budget()
    page = viewer.open(report)
    peaks = report["runs"][0]["summary"]["peak_bytes"]
    rows = {"Peak RSS": "rss", "Page cache added": "cache", "Peak page tables": "page_tables"}
    for name, key in rows.items():
        assert table_row(page, name).get_attribute("title") == f"{peaks[key]:,} bytes"
    assert table_row(page, "Peak RSS").inner_text() == f"{peaks['rss'] / MIB:.0f} MiB"
    assert table_row(page, "Slope of RSS").inner_text() == "+12.5 MiB/min"
    assert table_row(page, "Slope of anonymous").inner_text() == "flat"
    assert table_row(page, "Slope of memory").inner_text() == "too short to tell"
    assert table_row(page, "Processes at most").inner_text() == "3"


def test_head_says_what_ran_and_where(viewer):
    report = over_budget()
    report["runs"][0]["facts"] = {"largest process": "88.3 MiB"}
    page = viewer.open(report)
    head = page.locator("header").text_content()
    words = ["Memory of python train.py", "Memory went over the line.", "exit code 0, after 12 s"]
    words += ["python train.py --note 'it'\\''s a long one'", "2026-11-15 11:20:00 UTC"]
    words += [
        "Linux 6.18.0",
        "2 CPUs",
        "23.3 GiB of memory",
        "readahead 8 MiB",
        "every 10 ms",
        "largest process",
        "88.3 MiB",
    ]
    for word in words:
        assert word in head
    assert page.title() == "Memory of python train.py"
    assert page.get_by_role("cell", name="unknown").count() == 1  # cached before, of the file
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map((h) => +h.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))


def test_hostile_text_stays_text(viewer):
    files = [{"path": HOSTILE, "size_bytes": 1, "cached_before_bytes": 0}]
    changes = {"name": HOSTILE, "command": [HOSTILE], "ended": HOSTILE, "notes": [HOSTILE]}
    changes |= {"facts": {HOSTILE: HOSTILE}, "files": files, "marks": marks([(0.5, HOSTILE)])}
    run = run_of(climbing(50, 2.0), **changes)
    for runs in [[run], [run, {**run, "notes": []}]]:
        page = viewer.open(report_of(*runs, title=HOSTILE, subtitle=HOSTILE))
        assert page.title() == HOSTILE
        assert page.locator("h1").inner_text() == HOSTILE
        assert HOSTILE in page.locator("li").last.inner_text()
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
        point_at(page, 1.0)
        assert HOSTILE in page.locator(".readout .mark").first.inner_text()


# ---- downloads


def download(page, name):
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_text()


def test_csv_has_every_sample_and_json_is_the_report(viewer):
    s = climbing(40, 2.0, pss=None)
    report = report_of(run_of(s))
    page = viewer.open(report)
    name, text = download(page, "Download CSV")
    assert name == "python-train.py.csv"
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == COLUMNS
    assert len(rows) == 40
    for i, row in enumerate(rows):
        for column in COLUMNS:
            expected = s[column][i]
            assert (None if row[column] == "" else float(row[column])) == expected
    assert json.loads(download(page, "Download JSON")[1]) == report
    viewer.requests = [url for url in viewer.requests if not url.startswith("blob:")]


def test_each_run_has_a_csv_of_its_own(viewer):
    report = six_engines()
    page = viewer.open(report)
    name, text = download(page, "Download CSV of direct")
    assert name == "direct.csv"
    assert len(text.splitlines()) == 1 + len(report["runs"][4]["samples"]["seconds"])
    viewer.requests = [url for url in viewer.requests if not url.startswith("blob:")]


# ---- whoever reads, and wherever


@pytest.mark.parametrize("report", [over_budget, six_engines])
def test_a_phone_needs_no_sideways_scrolling(viewer, report):
    report = report()
    report["title"] = "a" * 200
    report["runs"][0] |= {"name": "b" * 200, "command": ["c" * 300], "notes": ["d" * 300]}
    report["runs"][0]["files"] = [{"path": "/e" * 200, "size_bytes": 1, "cached_before_bytes": 0}]
    page = viewer.open(report, width=360)
    for seconds in [0.1, 6, 11.9]:
        point_at(page, seconds)
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    light, dark = sorted([luminance(a), luminance(b)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


TEXT_COLOURS = """() => {
  const colours = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("script, noscript")) continue;
    const style = getComputedStyle(parent);
    colours.add(parent.namespaceURI.endsWith("svg") ? style.fill : style.color);
  }
  const series = [...document.querySelectorAll("path[data-series]")].map((path) => {
    const style = getComputedStyle(path);
    return style.fill === "none" ? style.stroke : style.fill;
  });
  return {paper: getComputedStyle(document.body).backgroundColor, text: [...colours],
    series: series.filter((colour) => colour.startsWith("rgb"))};
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_series_are_readable_in_both_themes(viewer, theme):
    page = viewer.open(over_budget(), color_scheme=theme)
    found = page.evaluate(TEXT_COLOURS)
    assert (luminance(found["paper"]) > 0.5) == (theme == "light")
    assert len(found["text"]) >= 3
    for colour in found["text"]:
        assert contrast(colour, found["paper"]) >= 4.5, colour
    assert len(set(found["series"])) >= 5
    for colour in found["series"]:
        assert contrast(colour, found["paper"]) >= 2, colour

    page.locator(".theme").click()
    assert (luminance(page.evaluate(TEXT_COLOURS)["paper"]) > 0.5) == (theme == "dark")


def test_focus_can_be_seen(viewer):
    page = viewer.open(over_budget())
    seen = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        style = "getComputedStyle(document.activeElement)"
        assert page.evaluate(f"{style}.outlineStyle") == "solid"
        assert page.evaluate(f"parseFloat({style}.outlineWidth)") >= 2
        seen.add(page.evaluate("document.activeElement.className"))
    assert {"theme", "plot"} <= seen


def test_without_javascript_the_page_says_where_the_numbers_are(viewer):
    report = over_budget()
    page = viewer.open(report, java_script_enabled=False)
    assert "All numbers are" in page.locator("noscript").inner_text()
    assert json.loads(page.locator("#data").text_content()) == report


def test_the_page_is_forbidden_to_load_anything(viewer):
    page = viewer.open(over_budget())
    blocked = page.evaluate("""async () => {
      const blocked = [];
      const note = (event) => blocked.push(event.effectiveDirective);
      document.addEventListener("securitypolicyviolation", note);
      document.body.append(Object.assign(new Image(), {src: "http://127.0.0.1:9/x.png"}));
      const link = {rel: "stylesheet", href: "http://127.0.0.1:9/x.css"};
      document.head.append(Object.assign(document.createElement("link"), link));
      await fetch("http://127.0.0.1:9/").catch(() => {});
      for (let k = 0; k < 300 && blocked.length < 3; ++k)
        await new Promise((done) => setTimeout(done, 10));
      return blocked;
    }""")
    assert sorted(blocked) == ["connect-src", "img-src", "style-src-elem"]
    assert all("Content Security Policy" in text for text in viewer.complaints)
    viewer.complaints, viewer.requests = [], []


def test_the_parts_of_the_page_cannot_end_the_element_they_are_put_in():
    assert not re.search(r"</script|<!--", (PAGE / "report.js").read_text(), re.I)
    assert "</style" not in (PAGE / "report.css").read_text().lower()


# ---- hardly any data


def test_no_samples_are_said_in_words(viewer):
    empty = run_of(samples(0, 0))
    for runs in [[empty], [empty, run_of(climbing(50, 1.0))]]:
        page = viewer.open(report_of(*runs, budget=MIB))
        assert page.get_by_text("No samples: the program ended before the first look").count() == 1
    assert page.locator('path[data-series="anon"]').count() == 1
    assert page.get_by_text("Read from disk: none").count() == 0
    assert download(page, "Download JSON")[1]
    viewer.requests = [url for url in viewer.requests if not url.startswith("blob:")]


def test_one_sample_is_seen(viewer):
    s = samples(1, 0, anon=3 * MIB, cache=5 * MIB, pss=None)
    page = viewer.open(report_of(run_of(s, 2 * MIB), budget=2 * MIB))
    for series in ["anon", "cache"]:
        xs = [x for x, _ in path_points(page, series)[0]]
        assert max(xs) - min(xs) >= 1
    page.locator(".plot").focus()
    page.keyboard.press("End")
    check_readout(page, s, 0)
    assert shown_values(page)["read_rate"] == ["", "unknown"]
    assert page.get_by_text("Read from disk: none").count() == 1


def test_page_cache_unknown_throughout_is_said_and_not_drawn(viewer):
    page = viewer.open(report_of(run_of(climbing(cache=None))))
    assert legend(page, "cache").is_disabled()
    assert "unknown" in legend(page, "cache").inner_text()
    assert page.locator('path[data-series="cache"]').count() == 0
    assert table_row(page, "Page cache added").inner_text() == "unknown"


def test_no_runs_and_no_budget_make_a_page_too(viewer):
    page = viewer.open(report_of())
    assert page.get_by_text("This report has no runs.").count() == 1
    page = viewer.open(report_of(run_of(climbing())))
    assert legend(page, "budget").count() == 0
    assert page.locator('[data-series="over"]').count() == 0


# ---- the tool


def test_the_tool_writes_this_page_with_the_json_in_it(viewer, user):
    user.run("profile", "-o", "r.html", "--json", "r.json", "--", "sh", "-c", "sleep 0.3")
    report = json.loads((user.folder / "r.json").read_text())
    page = viewer.open_text((user.folder / "r.html").read_text())
    assert json.loads(page.locator("#data").text_content()) == report
    s = report["runs"][0]["samples"]
    assert len(s["seconds"]) >= 2
    check_line(page, upper_edge(page, "anon"), s["seconds"], s["anon"])
    assert page.title() == report["title"]
