"""The report page in a browser: its texts and numbers, and that it makes no requests.

Each test has an artificial report; in one test, the tool writes them.
"""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from report_page_help import (
    COLUMNS,
    HOSTILE,
    MIB,
    PAGE,
    check_line,
    check_readout,
    climbing,
    legend,
    marks,
    over_budget,
    path_points,
    point_at,
    report_of,
    run_of,
    samples,
    shown_values,
    six_engines,
    table_row,
    upper_edge,
)

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
    words = ["Memory of python train.py", "Memory exceeded the budget.", "exit code 0, after 12 s"]
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


# ---- all readers and devices


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
    check_line(page, upper_edge(page, "file"), s["seconds"], s["file"])
    assert page.title() == report["title"]
