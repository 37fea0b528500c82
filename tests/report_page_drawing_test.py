"""The report page in a browser: what it draws, and the values that it shows under the pointer.

Each test has an artificial report.
"""

import re

import pytest
from report_page_help import (
    ENGINES,
    MARKS,
    MIB,
    STACK,
    check_line,
    check_readout,
    climbing,
    legend,
    marks,
    memory,
    over_budget,
    path_points,
    pixels,
    point_at,
    report_of,
    run_of,
    samples,
    shown_values,
    six_engines,
    summary,
    table_row,
    upper_edge,
)

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
    s["file"][5001] = 900 * MIB
    s["cache"][3003] = 1000 * MIB
    page = viewer.open(report_of(run_of(s)))
    panel = page.evaluate("evenkeelReport.panels(0)[0]")
    width = panel["right"] - panel["left"]
    line, (cache,) = upper_edge(page, "file"), path_points(page, "cache")
    for drawn, i, peak in [(line, 5001, 900), (cache, 3003, 1000)]:
        assert len(drawn) <= 2 * width + 4
        x, y = min(drawn, key=lambda point: point[1])
        assert abs(x - pixels(page, "x", [s["seconds"][i]])[0]) <= 1
        assert abs(y - pixels(page, "y", [peak * MIB])[0]) <= 1
    check_line(page, line, s["seconds"][::100], s["file"][::100])


def test_toggling_a_series_restacks_and_rescales(viewer):
    report = over_budget()
    page = viewer.open(report)
    s = report["runs"][0]["samples"]
    assert legend(page, "file").get_attribute("aria-pressed") == "true"
    legend(page, "file").click()
    assert legend(page, "file").get_attribute("aria-pressed") == "false"
    assert page.locator('path[data-series="file"]').count() == 0
    check_line(page, upper_edge(page, "anon"), s["seconds"], s["anon"])

    top = page.evaluate("evenkeelReport.panels(0)[0].most")
    for series in ["budget", "cache", "anon"]:
        legend(page, series).click()
    assert page.evaluate("evenkeelReport.panels(0)[0].most") < top / 10
    check_line(page, upper_edge(page, "shmem"), s["seconds"], s["shmem"])

    for series in ["anon", "file", "cache", "budget"]:
        legend(page, series).click()
    assert page.evaluate("evenkeelReport.panels(0)[0].most") == top
    total = [s["anon"][i] + s["file"][i] for i in range(1200)]
    check_line(page, upper_edge(page, "anon"), s["seconds"], total)


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
    assert verdict == "within the budget (page cache unknown)"


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
        check_line(page, upper_edge(page, "file", i), s["seconds"], s["file"], i)
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
    check_line(page, upper_edge(page, "file"), s["seconds"], s["file"])


def test_dots_where_the_page_cache_was_asked_for(viewer):
    asked = [0, 400, 800, 1199]
    s = climbing(cache_measured=lambda t: int(round(t * 1199) in asked))
    page = viewer.open(report_of(run_of(s)))
    dots = page.locator('[data-series="cache"] circle')
    places = "all => all.map((dot) => ['cx', 'cy'].map((name) => +dot.getAttribute(name)))"
    at = dots.evaluate_all(places)
    wanted = zip(
        pixels(page, "x", [s["seconds"][i] for i in asked]),
        pixels(page, "y", [s["cache"][i] for i in asked]),
        strict=True,
    )
    for dot, place in zip(at, wanted, strict=True):
        assert dot == pytest.approx(place, abs=0.1)


def test_no_dots_where_it_was_asked_for_all_the_time(viewer):
    page = viewer.open(report_of(run_of(climbing(cache_measured=1))))
    assert page.locator("circle").count() == 0


def test_limits_say_who_would_end_the_job(viewer):
    s = climbing()
    page = viewer.open(report_of(run_of(s)))
    text = page.locator("section", has_text="Who would end this job").inner_text()
    for limit in summary(s, None)["limits"]:
        assert limit["name"] in text and limit["effect"] in text
