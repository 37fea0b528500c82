// Draws a memory report from the JSON in the page. It uses no library and nothing from the network.
// Text from the data becomes text nodes only, so no name in it can become markup.
"use strict";
(() => {
const data_text = document.getElementById("data").textContent;
const report = JSON.parse(data_text);
const budget = report.budget_bytes;

// ---- what is drawn

// From the bottom up. Files come first, so that the line of the page cache compares with them.
const kStack = ["file", "anon", "shmem"];
const kSeries = [
  {key: "file", name: "mapped files", swatch: "", on: true},
  {key: "anon", name: "anonymous", swatch: "", on: true},
  {key: "shmem", name: "shared memory", swatch: "", on: true},
  {key: "cache", name: "page cache of the files", swatch: "line", on: true},
  {key: "pss", name: "PSS", swatch: "line", on: false},
  {key: "memory", name: "memory, each page once", swatch: "line", on: false},
  {key: "budget", name: "budget", swatch: "dashed", on: true},
];
const shown = new Set(kSeries.filter((series) => series.on).map((series) => series.key));

// Adds derived values to a run. Unknown cache counts as 0, as in ProfileSample::memory.
function derive(run) {
  const s = run.samples;
  const memory = s.anon.map((anon, i) => anon + s.shmem[i] + Math.max(s.file[i], s.cache[i] ?? 0));
  const rss = s.anon.map((anon, i) => anon + s.file[i] + s.shmem[i] + s.duplicate[i]);
  return {
    ...run,
    count: s.seconds.length,
    marks: [...run.marks].sort((a, b) => a.seconds - b.seconds),
    values: {...s, rss, memory},
    read_rate: rates(s.seconds, s.disk_read),
    fault_rate: rates(s.seconds, s.major_faults),
  };
}

// Turns a counter into rates. Neighbouring intervals are merged until there are at most 240,
// because a rate over 10 ms is mostly noise. The area under the curve stays the same.
function rates(seconds, counter) {
  const group = Math.max(1, Math.ceil((seconds.length - 1) / 240));
  const steps = [];
  for (let from = 0; from + 1 < seconds.length; from += group) {
    const to = Math.min(from + group, seconds.length - 1);
    const time = seconds[to] - seconds[from];
    const rate = time > 0 ? Math.max(0, counter[to] - counter[from]) / time : 0;
    steps.push({from: seconds[from], to: seconds[to], rate});
  }
  return {steps, at: (i) => steps[Math.max(0, Math.floor((i - 1) / group))]?.rate ?? null};
}

const runs = report.runs.map(derive);
const several = runs.length > 1;
const known = (key) => runs.some((run) => run.values[key].some((value) => value !== null));

// ---- numbers in words

const kUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const count = (n) => n.toLocaleString("en-US", {maximumFractionDigits: 1});

function size(bytes) {
  if (bytes === null) return "unknown";
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.length) bytes /= 1024, ++unit;
  const digits = unit === 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
  return `${Number(bytes.toFixed(digits))} ${kUnits[unit]}`;
}
const exact = (bytes) => bytes === null ? "" : `${bytes.toLocaleString("en-US")} bytes`;
const per_second = (rate, words) => rate === null ? "unknown" : `${words(rate)}/s`;

const two = (n) => String(Math.floor(n)).padStart(2, "0");
function clock(seconds, unit) {
  if (unit === "s") return `${Number(seconds.toFixed(3))} s`;
  if (unit === "m:ss") return `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
  return `${Math.floor(seconds / 3600)}:${two(seconds / 60 % 60)}`;
}
const clock_unit = (seconds) => seconds < 120 ? "s" : seconds < 3600 ? "m:ss" : "h:mm";

function duration(seconds) {
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two(seconds / 60 % 60)} min`;
}
function instant(seconds) {
  if (seconds < 120) return `${seconds.toFixed(2)} s`;
  const hours = seconds < 3600 ? "" : `${Math.floor(seconds / 3600)}:`;
  const minutes = Math.floor(seconds / 60 % 60);
  return `${hours}${hours ? two(minutes) : minutes}:${two(seconds % 60)}`;
}

const kMiB = 1048576;
// The slope was observed for `seconds`. A tiny change in less than a minute is flat.
function slope(bytes_per_minute, seconds, peak) {
  if (bytes_per_minute === null) return "too short to tell";
  const mib = bytes_per_minute / kMiB;
  const change = Math.abs(bytes_per_minute) * seconds / 60;
  const too_small = seconds < 60 && change < Math.max(kMiB, 0.002 * peak);
  if (Math.abs(mib) < 0.1 || too_small) return "flat";
  return `${mib > 0 ? "+" : "−"}${count(Number(Math.abs(mib).toPrecision(3)))} MiB/min`;
}

// The budget of `evenkeel guard` covers only the guarded files.
function guarded_verdict(run) {
  const over = run.guarded_peak_bytes - budget, peak = size(run.guarded_peak_bytes);
  if (over <= 0) return {text: `guarded files within the budget, ${peak} at the peak`};
  return {text: `guarded files over by ${size(over)} at the peak`, title: exact(over), over: true};
}

function verdict(run) {
  if (budget === null) return {text: "no budget given"};
  if (run.guarded_peak_bytes != null) return guarded_verdict(run);
  const over = run.summary.peak_bytes.memory - budget;
  const unknown = run.summary.peak_bytes.cache === null ? " (page cache unknown)" : "";
  if (over <= 0) return {text: `within the budget${unknown}`};
  const time = run.summary.seconds_over_budget;
  const how_long = time > 0 ? `for ${duration(time)}` : "in one sample";
  return {text: `over by ${size(over)} ${how_long}`, title: exact(over), over: true};
}

// ---- elements

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {}))
    if (value !== undefined) node.setAttribute(name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const set = (node, attributes) => put(node, attributes, []);
const el = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const group = (...children) => svg("g", {}, ...children);
const rule = (kind, x1, y1, x2, y2, more) => svg("line", {class: kind, x1, y1, x2, y2, ...more});
const label = (text, x, y, more) => svg("text", {x, y, ...more}, text);

// ---- axes

// The ticks of an axis up to `most`. Those below have at most about `about` steps; sizes step by
// powers of two.
function ticks(most, step) {
  const values = [];
  for (let k = 0; k * step <= most * (1 + 1e-9); ++k) values.push(k * step);
  return values;
}
const size_ticks = (most, about) =>
  ticks(most, 2 ** Math.max(0, Math.ceil(Math.log2(most / about))));
function count_ticks(most, about) {
  const ten = 10 ** Math.floor(Math.log10(most / about));
  return ticks(most, ten * [1, 2, 5, 10].find((k) => ten * k * about >= most * (1 - 1e-9)));
}
const kDay = 86400;
const kTimeSteps = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];
function time_ticks(most, about) {
  if (most / about <= 5) return count_ticks(most, about);
  const step = kTimeSteps.find((step) => step * about >= most);
  return ticks(most, step ?? kDay * Math.ceil(most / about / kDay));
}

function largest(values, least) {
  let most = least;
  for (const value of values) if (value > most) most = value;
  return most;
}

// The lower edges of the visible layers, then the top of the stack: boundaries[k] is under layer k.
function boundaries(run) {
  const result = [new Float64Array(run.count)];
  for (const key of kStack.filter((key) => shown.has(key)))
    result.push(result.at(-1).map((under, i) => under + run.values[key][i]));
  return result;
}

const budget_shown = () => budget !== null && shown.has("budget");
const lines_shown = () => ["memory", "pss", "cache"].filter((key) => shown.has(key));

// All runs share one set of axes, so that they can be compared by eye.
function common_axes() {
  let seconds = 0, read = 0, faults = 0, bytes = budget_shown() ? budget : 0;
  const lines = budget_shown() ? [...lines_shown(), "memory"] : lines_shown();
  for (const run of runs) {
    seconds = Math.max(seconds, run.seconds, run.values.seconds.at(-1) ?? 0);
    bytes = largest(boundaries(run).at(-1), bytes);
    for (const key of lines) bytes = largest(run.values[key], bytes);
    read = largest(run.read_rate.steps.map((step) => step.rate), read);
    faults = largest(run.fault_rate.steps.map((step) => step.rate), faults);
  }
  const room = 1.06;
  return {
    no_reads: read === 0,
    no_faults: faults === 0,
    seconds: seconds || 0.001,
    bytes: (bytes || kMiB) * room,
    read: (read || kMiB) * room,
    faults: (faults || 1) * room,
  };
}

// ---- geometry, in pixels

// The indexes of the values to draw: all, or the least and the greatest in each pixel column.
function reduce(xs, values, from, to, width) {
  const all = [];
  if (to - from <= 2 * width) {
    for (let i = from; i < to; ++i) all.push(i);
    return all;
  }
  const keep = (i) => { if (all.at(-1) !== i) all.push(i); };
  keep(from);
  for (let i = from; i < to;) {
    const column = Math.floor(xs[i]);
    let low = i, high = i;
    for (; i < to && Math.floor(xs[i]) === column; ++i) {
      if (values[i] < values[low]) low = i;
      if (values[i] > values[high]) high = i;
    }
    keep(Math.min(low, high));
    keep(Math.max(low, high));
  }
  keep(to - 1);
  return all;
}

// Lines through the known values. A single value becomes a dash, so that it is visible.
function polylines(xs, values, y, box) {
  const lines = [];
  for (let from = 0; from < values.length;) {
    if (values[from] === null) { ++from; continue; }
    let to = from;
    while (to < values.length && values[to] !== null) ++to;
    const drawn = reduce(xs, values, from, to, box.right - box.left);
    const points = drawn.map((i) => [xs[i], y(values[i])]);
    const [[x, level]] = points;
    const dash = [[Math.max(box.left, x - 1.5), level], [Math.min(box.right, x + 1.5), level]];
    lines.push(points.length > 1 ? points : dash);
    from = to;
  }
  return lines;
}

const path_of = (points) =>
  "M" + points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");

// The parts of a line above a level, where pixels are smaller. Each begins and ends on the level.
function parts_above(points, level) {
  const parts = [];
  let part = null;
  points.forEach(([x, y], i) => {
    const before = points[i - 1];
    if (before && (before[1] < level) !== (y < level)) {
      const crossing = [before[0] + (x - before[0]) * (level - before[1]) / (y - before[1]), level];
      if (part) part.push(crossing), part = null;
      else parts.push(part = [crossing]);
    }
    if (y < level) {
      if (!part) parts.push(part = [[x, level]]);
      part.push([x, y]);
    }
  });
  if (part) part.push([part.at(-1)[0], level]);
  return parts;
}

const ruler = document.createElement("canvas").getContext("2d");
function text_width(text) {
  ruler.font = "11px system-ui, sans-serif";
  return ruler.measureText(text).width;
}

// Places the labels of marks in rows above the plot, the topmost first. The line of a mark runs
// down from its label, so all rows below must be free there. A label without room is left out.
function place_labels(marks, x, box, rows) {
  const ends = new Array(rows).fill(-Infinity), labels = [];
  for (const mark of marks) {
    const text = mark.text.length > 28 ? mark.text.slice(0, 27) + "…" : mark.text;
    const at = x(mark.seconds), width = text_width(text);
    const from = at + 4 + width > box.right ? Math.max(box.left, at - width) : at;
    let row = rows;
    while (row > 0 && ends[row - 1] <= at - 2) --row;
    while (row < rows && ends[row] > from) ++row;
    if (row === rows || text === "") continue;
    ends[row] = Math.max(at, from + width) + 10;
    labels.push({text, at, from, row});
  }
  return labels;
}

// ---- a chart: memory, and below it, on the same time axis, reads and faults

class Chart {
  constructor(run, index) {
    this.run = run;
    this.index = index;
    this.plot = el("div", {class: "plot"});
    if (run.count === 0) {
      const sorry = "No samples: the program ended before the first look at it.";
      this.plot.append(el("p", {class: "none"}, sorry));
      return;
    }
    // A slider over time, for screen readers and arrow keys.
    set(this.plot, {
      "tabindex": 0,
      "role": "slider",
      "aria-label": `Time in the chart of ${run.name}`,
      "aria-valuemin": 0,
      "aria-valuemax": run.values.seconds.at(-1),
      "aria-valuenow": 0,
      "aria-valuetext": "use the arrow keys to read values",
    });
    this.drawing = svg("svg", {"aria-hidden": "true"});
    this.readout = new Readout(run);
    this.plot.append(this.drawing, this.readout.box);
    this.listen();
  }

  listen() {
    const move = (event) => {
      const x = event.clientX - this.plot.getBoundingClientRect().left;
      point_at(this, this.seconds_at(x));
    };
    const leave = (event) => { if (event.pointerType === "mouse") point_away(); };
    this.plot.addEventListener("pointermove", move);
    this.plot.addEventListener("pointerdown", move);
    this.plot.addEventListener("pointerleave", leave);
    this.plot.addEventListener("blur", point_away);
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  // One step is about a two-hundredth of the run; with Shift ten of them.
  key(event) {
    const step = Math.max(1, Math.round(this.run.count / 200)) * (event.shiftKey ? 10 : 1);
    const at = this.at ?? -step, last = this.run.count - 1, on = at + step, back = at - step;
    const arrows = {ArrowRight: on, ArrowUp: on, ArrowLeft: back, ArrowDown: back};
    const keys = {...arrows, Home: 0, End: last};
    if (event.key === "Escape") point_away();
    if (!(event.key in keys)) return;
    event.preventDefault();
    const to = Math.min(last, Math.max(0, keys[event.key]));
    point_at(this, this.run.values.seconds[to]);
  }

  draw(axes) {
    const width = this.plot.clientWidth;
    if (!this.drawing || width < 120) return;
    this.axes = axes;
    this.panels = several ? small_panels(axes, width) : full_panels(axes, width);
    const box = this.box = this.panels[0], bottom = this.panels.at(-1).bottom;
    this.x = (seconds) =>
      box.left + (box.right - box.left) * Math.min(1, seconds / axes.seconds);
    this.y = height_in(box);
    this.xs = this.run.values.seconds.map(this.x);
    this.crosshair = rule("crosshair", 0, box.top, 0, bottom, {visibility: "hidden"});
    this.whisper = label("", 0, box.top + 10, {class: "on-chart", visibility: "hidden"});
    this.drawing.replaceChildren();
    put(this.drawing, {viewBox: `0 0 ${width} ${bottom + 24}`}, [
      this.hatch(), this.panels.map(frame), this.time_axis(bottom), this.areas(), this.over(),
      this.lines(), this.panels.slice(1).map((panel) => this.rate(panel)), this.budget_line(),
      this.marks(), this.crosshair, this.whisper]);
  }

  series(key, kind, d, more) {
    return svg("path", {"class": kind, "data-series": key, "data-run": this.index, d, ...more});
  }

  time_axis(bottom) {
    const {right, left} = this.box, unit = clock_unit(this.axes.seconds);
    const steps = time_ticks(this.axes.seconds, Math.max(2, Math.floor((right - left) / 70)));
    const tick = (seconds) => {
      const x = this.x(seconds), last = x > right - 12;
      const words = seconds === 0 && unit !== "s" ? unit : clock(seconds, unit);
      return [rule("base", x, bottom, x, bottom + 4),
        label(words, last ? right : x, bottom + 17, {"text-anchor": last ? "end" : "middle"})];
    };
    return group(steps.flatMap(tick));
  }

  // Two layers share the line between them, so there is no seam and no overlap.
  areas() {
    const line = (values) => polylines(this.xs, values, this.y, this.box)[0];
    const edges = boundaries(this.run).map(line);
    const area = (key, k) =>
      this.series(key, "area", path_of([...edges[k + 1], ...edges[k].toReversed()]) + "Z");
    return group(kStack.filter((key) => shown.has(key)).map(area));
  }

  lines() {
    const line = (key) => {
      const d = polylines(this.xs, this.run.values[key], this.y, this.box).map(path_of).join("");
      if (d === "") return [];
      if (key !== "cache" || several) return [this.series(key, "line thin", d), this.dots(key)];
      return [svg("path", {class: "halo", d}), this.series(key, "line", d), this.dots(key)];
    };
    return group(lines_shown().flatMap(line));
  }

  // Dots mark measured values, unless nearly all were measured. Values between them are estimated.
  dots(key) {
    const {values, count} = this.run, measured = values[`${key}_measured`];
    if (!measured || several) return null;
    const asked = measured.flatMap((yes, i) => yes && values[key][i] !== null ? [i] : []);
    if (asked.length * 4 > count) return null;
    const dot = (i) => svg("circle", {cx: this.xs[i].toFixed(1),
      cy: this.y(values[key][i]).toFixed(1), r: 3});
    return svg("g", {"class": "dots", "data-series": key}, asked.map(dot));
  }

  hatch() {
    const how = {patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"};
    const pattern = svg("pattern", {id: `hatch-${this.index}`, width: 7, height: 7, ...how},
      svg("rect", {class: "tint", width: 7, height: 7}), rule("hatch", 0, 0, 0, 7));
    return svg("defs", {}, pattern);
  }

  // Hatched, so that it does not differ by colour alone.
  over() {
    if (!budget_shown() || this.run.guarded_peak_bytes != null) return null;
    const memory = polylines(this.xs, this.run.values.memory, this.y, this.box)[0];
    const parts = parts_above(memory, this.y(budget));
    if (parts.length === 0) return null;
    const area = parts.map((part) => path_of(part) + "Z").join("");
    const edge = parts.map((part) => path_of(part.slice(1, -1))).join("");
    return group(this.series("over", "over", area, {fill: `url(#hatch-${this.index})`}),
      svg("path", {class: "over-edge", d: edge}));
  }

  rate(panel) {
    const y = height_in(panel), {steps} = this.run[panel.key];
    if (steps.length === 0) return null;
    const corners = ({from, to, rate}) => [[this.x(from), y(rate)], [this.x(to), y(rate)]];
    const points = steps.flatMap(corners);
    points.push([points.at(-1)[0], panel.bottom], [points[0][0], panel.bottom]);
    return this.series(panel.key, "rate", path_of(points) + "Z");
  }

  budget_line() {
    if (!budget_shown()) return null;
    const {left, right, top} = this.box, y = this.y(budget);
    const above = y - top > 16 ? y - 6 : y + 14, at_left = this.lower_at_left();
    return group(
      rule("budget", left, y, right, y, {"data-series": "budget", "data-run": this.index}),
      label(`budget ${size(budget)}${this.run.guarded_peak_bytes == null ? "" :
        " for guarded files"}`, at_left ? left + 6 : right - 2, above,
        {"class": "on-chart budget-label", "text-anchor": at_left ? "start" : "end"}));
  }

  // The label is at the left, unless memory is above the budget there and lower at the right.
  lower_at_left() {
    const {seconds, memory} = this.run.values, all = this.axes.seconds;
    const most = (from, to) =>
      largest(memory.filter((_, i) => seconds[i] >= from * all && seconds[i] <= to * all), 0);
    return most(0, 0.3) <= Math.max(budget, most(0.7, 1));
  }

  // Marks closer than three pixels share one line.
  marks() {
    const {box} = this, rows = label_rows();
    const labels = place_labels(this.run.marks, this.x, box, rows);
    const label_y = (row) => box.top - (rows - row) * 15 + 9;
    const heads = new Map(labels.map(({at, row}) => [at, label_y(row) + 3]));
    let d = "", last = -Infinity, drawn = 0;
    for (const mark of this.run.marks) {
      const at = this.x(mark.seconds);
      if (at - last < 3 && !heads.has(at)) continue;
      last = at;
      ++drawn;
      d += `M${at.toFixed(1)},${(heads.get(at) ?? box.top).toFixed(1)}V${box.bottom}`;
    }
    if (d === "") return null;
    const kind = drawn * 10 > box.right - box.left ? "marks dense" : "marks";
    return group(svg("path", {"class": kind, "data-run": this.index, d}),
      labels.map(({text, from, row}) => label(text, from, label_y(row), {class: "mark-label"})));
  }

  // ---- pointing at a time

  seconds_at(x) {
    const {left, right} = this.box;
    return Math.min(1, Math.max(0, (x - left) / (right - left))) * this.axes.seconds;
  }

  nearest(seconds) {
    const times = this.run.values.seconds;
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < seconds) low = middle + 1;
      else high = middle;
    }
    return low > 0 && seconds - times[low - 1] <= times[low] - seconds ? low - 1 : low;
  }

  // The active chart shows all values at this time, the others only memory.
  point(seconds, active) {
    if (!this.x) return;
    this.at = this.nearest(seconds);
    const x = this.xs[this.at], left_half = x < (this.box.left + this.box.right) / 2;
    this.readout.box.hidden = !active;
    if (active) this.tell(x, left_half);
    else this.whisper_at(seconds, x, left_half);
  }

  tell(x, left_half) {
    set(this.crosshair, {x1: x, x2: x, visibility: "visible"});
    set(this.whisper, {visibility: "hidden"});
    this.readout.show(this.at);
    this.readout.place(x, left_half, this.box.top + 6, this.plot.clientWidth);
    const now = this.run.values.seconds[this.at];
    set(this.plot, {"aria-valuenow": now, "aria-valuetext": this.readout.spoken()});
  }

  whisper_at(seconds, x, left_half) {
    const {values} = this.run, end = values.seconds.at(-1);
    const ended = seconds > end + this.run.interval_seconds;
    set(this.crosshair, {x1: x, x2: x, visibility: ended ? "hidden" : "visible"});
    this.whisper.textContent =
      ended ? `ended at ${instant(end)}` : `memory ${size(values.memory[this.at])}`;
    set(this.whisper, left_half ? {"x": x + 5, "text-anchor": "start"} :
      {"x": x - 5, "text-anchor": "end"});
    set(this.whisper, {visibility: "visible"});
  }

  leave() {
    if (!this.x) return;
    this.at = null;
    set(this.crosshair, {visibility: "hidden"});
    set(this.whisper, {visibility: "hidden"});
    this.readout.box.hidden = true;
  }
}

// ---- panels: the parts of a chart, one above the other

const height_in = (panel) => (value) =>
  panel.bottom - (panel.bottom - panel.top) * value / panel.most;
const rate_words = (words) => (n) => n ? `${words(n)}/s` : "0";
const label_rows = () =>
  Math.min(largest(runs.map((run) => run.marks.length), 0), several ? 1 : 3);

function memory_panel(axes) {
  return {most: axes.bytes, steps: size_ticks(axes.bytes, 5), words: size};
}
function read_panel(axes) {
  const caption = axes.no_reads ? "Read from disk: none" : "Read from disk";
  const steps = several ? size_ticks(axes.read, 2).slice(0, 2) : size_ticks(axes.read, 3);
  return {key: "read_rate", most: axes.read, steps, words: rate_words(size), caption};
}
function fault_panel(axes) {
  const caption = axes.no_faults ? "Major faults: none" : "Major faults", most = axes.faults;
  return {key: "fault_rate", most, steps: count_ticks(most, 3), words: rate_words(count), caption};
}

function full_panels(axes, width) {
  const left = 66, right = width - 12, gap = 40, low = 76;
  const top = label_rows() * 15 + 24, bottom = top + (width < 560 ? 230 : 340);
  const caption = report.growth ? "Memory, growth above the start" : "Memory";
  const reads = bottom + gap, faults = reads + low + gap;
  return [
    {...memory_panel(axes), left, right, top, bottom, caption, caption_y: 12},
    {...read_panel(axes), left, right, top: reads, bottom: reads + low, caption_y: reads - 8},
    {...fault_panel(axes), left, right, top: faults, bottom: faults + low, caption_y: faults - 8},
  ];
}

function small_panels(axes, width) {
  const left = 64, right = width - 6, gap = 26, low = 32;
  const top = label_rows() * 15 + 6, bottom = top + 170, reads = bottom + gap;
  return [
    {...memory_panel(axes), left, right, top, bottom},
    {...read_panel(axes), left, right, top: reads, bottom: reads + low, caption_y: reads - 7},
  ];
}

function frame(panel) {
  const {left, right, steps, words, caption, caption_y} = panel, y = height_in(panel);
  return group(
    steps.map((value) => rule(value ? "grid" : "base", left, y(value), right, y(value))),
    steps.map((value) => label(words(value), left - 8, y(value) + 4, {"text-anchor": "end"})),
    caption ? label(caption, left, caption_y, {class: "caption"}) : null);
}

// ---- the values of one sample, beside the crosshair

class Readout {
  constructor(run) {
    this.run = run;
    const cell_of = (row) => ({...row, cell: el("data", {"data-key": row.key})});
    this.rows = readout_rows(run).filter((row) => row.always || !several).map(cell_of);
    this.time = el("div", {class: "time"});
    this.mark = el("div", {class: "mark quiet"});
    const pair = ({key, name, cell}) =>
      [el("dt", {"data-series": key}, swatch_of(key), name), el("dd", {}, cell)];
    this.box = el("div", {class: "readout", hidden: ""}, this.time, this.mark,
      el("dl", {}, this.rows.flatMap(pair)));
  }

  show(i) {
    const seconds = this.run.values.seconds[i];
    const mark = this.run.marks.findLast((mark) => mark.seconds <= seconds);
    this.time.textContent = instant(seconds);
    this.mark.textContent = mark ? `after “${mark.text}”` : "";
    for (const {cell, at, words} of this.rows) {
      cell.value = at(i) ?? "";
      cell.textContent = words(at(i));
    }
  }

  // Keep it inside the chart: on a phone it would widen the page.
  place(x, to_the_right, top, width) {
    const own = this.box.getBoundingClientRect().width;
    const left = to_the_right ? x + 12 : x - 12 - own;
    this.box.style.top = `${top}px`;
    this.box.style.left = `${Math.max(0, Math.min(left, width - own))}px`;
  }

  spoken() {
    const spoken = this.rows.slice(0, 6).map(({name, cell}) => `${name} ${cell.textContent}`);
    return [this.time.textContent, this.mark.textContent, ...spoken].filter(Boolean).join(", ");
  }
}

// Small charts show only rows with `always`.
function readout_rows(run) {
  const v = run.values;
  const of = (name, key, words, always) => ({name, key, words, always, at: (i) => v[key][i]});
  const rate = (name, key, words) =>
    ({name, key, words: (n) => per_second(n, words), always: true, at: run[key].at});
  return [
    of("mapped files", "file", size, true),
    of("anonymous", "anon", size, true),
    of("shared", "shmem", size, true),
    of("RSS of all processes", "rss", size, true),
    of("page cache", "cache", size, true),
    of("memory", "memory", size, true),
    of("PSS", "pss", size),
    of("page tables", "page_tables", size),
    of("in swap", "swap", size),
    rate("read rate", "read_rate", size),
    of("read so far", "disk_read", size),
    rate("major faults", "fault_rate", count),
    of("major so far", "major_faults", count),
    of("minor so far", "minor_faults", count),
    of("CPU so far", "cpu_seconds", duration),
    of("processes", "processes", count),
  ];
}

function swatch_of(key) {
  const series = kSeries.find((series) => series.key === key);
  return series ? el("span", {class: `swatch ${series.swatch}`}) : null;
}

const charts = runs.map((run, index) => new Chart(run, index));

// Points at the same time in all charts.
function point_at(active, seconds) {
  for (const chart of charts) chart.point(seconds, chart === active);
}
function point_away() {
  for (const chart of charts) chart.leave();
}
function draw_all() {
  point_away();
  const axes = common_axes();
  for (const chart of charts) chart.draw(axes);
}

// ---- the page around the charts

const word = ({text, title, over}) => el("span", {class: over ? "word over" : "word", title}, text);
const small_print = (...text) => el("p", {class: "quiet word"}, ...text);
const section = (title, ...children) => el("section", {}, el("h2", {}, title), ...children);
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

function button_of(name, act, attributes, ...children) {
  const button = el("button", {type: "button", ...attributes}, ...children, name);
  button.addEventListener("click", () => act(button));
  return button;
}

function legend() {
  const toggle = (key) => (button) => {
    if (!shown.delete(key)) shown.add(key);
    set(button, {"aria-pressed": shown.has(key)});
    draw_all();
  };
  const button = ({key, name}) => {
    const unknown = key !== "budget" && !known(key);
    if (key === "budget" ? budget === null : key === "pss" && unknown) return null;
    const more = key === "budget" ? ` ${size(budget)}` : unknown ? " (unknown)" : "";
    const attributes = {
      "data-series": key,
      "aria-pressed": shown.has(key) && !unknown,
      "disabled": unknown ? "" : undefined,
    };
    return button_of(name + more, toggle(key), attributes, swatch_of(key));
  };
  const how = {"class": "legend", "role": "group", "aria-label": "Series shown"};
  return el("div", how, kSeries.map(button));
}

function theme_button() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const other = () => root.dataset.theme === "dark" ? "light" : "dark";
  const button = button_of("", () => use(other()), {class: "theme"});
  const use = (theme) => {
    root.dataset.theme = theme;
    button.textContent = other() === "dark" ? "Dark" : "Light";
    set(button, {"aria-label": `${button.textContent} colours`});
  };
  const follow = () => use(dark.matches ? "dark" : "light");
  dark.addEventListener("change", follow);
  follow();
  let before;  // paper is white
  addEventListener("beforeprint", () => { before = root.dataset.theme, use("light"); });
  addEventListener("afterprint", () => use(before));
  return button;
}

const quoted = (w) => /^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", "'\\''")}'`;
const command_line = (run) => run.command.map(quoted).join(" ");
const when = (run) => run.started.replace("T", " ").replace(/Z$/, " UTC");
const sum = (of) => runs.reduce((total, run) => total + of(run), 0);

function sampled(interval) {
  const samples = plural(sum((run) => run.count), "sample");
  const own = duration(sum((run) => run.own_cpu_seconds));
  return `every ${duration(interval)}, ${samples}; the recording itself took ${own} of CPU`;
}

function about() {
  const {kernel, cpus, memory_bytes, readahead_bytes} = report.machine, [first] = runs;
  const machine = [kernel, plural(cpus, "CPU"), `${size(memory_bytes)} of memory`,
    `readahead ${size(readahead_bytes)}`].join(", ");
  const rows = [];
  if (first && !several) {
    if (first.command.length) rows.push(["Command", el("code", {}, command_line(first))]);
    rows.push(["Ended", `${first.ended}, after ${duration(first.seconds)}`]);
  }
  if (first) rows.push(["Started", when(first)]);
  rows.push(["Machine", machine]);
  if (first) rows.push(["Sampled", sampled(first.interval_seconds)]);
  if (first && !several) rows.push(...Object.entries(first.facts));
  return el("dl", {class: "about"},
    rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function figures(run) {
  const peak = run.summary.peak_bytes, read = run.summary.disk_read_bytes;
  const figure = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
  const bytes = (name, n) => figure(name, el("span", {title: exact(n)}, size(n)));
  return el("dl", {class: "figures"},
    bytes("Peak memory", peak.memory), bytes("Peak RSS", peak.rss),
    bytes("Not reclaimable", peak.unreclaimable), bytes("Page cache added", peak.cache),
    bytes("Read from disk", read),
    budget === null ? null : figure(`Budget ${size(budget)}`, word(verdict(run))));
}

function card(run, index) {
  const fact = ([name, value]) => el("span", {}, el("b", {}, value), ` ${name}`);
  const head = el("figcaption", {}, el("h3", {title: command_line(run)}, run.name),
    el("p", {class: "facts"}, Object.entries(run.facts).map(fact)),
    budget === null ? null : word(verdict(run)));
  return el("figure", {class: "card"}, head, charts[index].plot);
}

function chart_section() {
  const body = several ? el("div", {class: "cards"}, runs.map(card)) :
    el("figure", {}, charts[0].plot);
  const growth = "Values are growth since the start of each run. ";
  const hint = el("span", {class: "hint"}, "To read the values at a time, point at a chart, " +
    "touch it, or focus it and press the arrow keys. ");
  const marks = "Labels that would overlap are left out; all marks are listed below.";
  return section(several ? "Memory over time, on equal axes" : "Memory over time", legend(), body,
    small_print(report.growth ? growth : null, hint, label_rows() > 0 ? marks : null));
}

// The memory limits that would end the program.
function limits_section() {
  if (several || report.growth || runs[0].summary.limits.length === 0) return null;
  const row = ({name, examples, bytes, effect}) => el("tr", {},
    el("th", {scope: "row"}, el("b", {}, name), el("div", {class: "quiet"}, examples)),
    el("td", {title: exact(bytes)}, size(bytes)), el("td", {class: "text"}, effect));
  const heads = [column_head("Limit"), column_head("Counts at the peak"),
    column_head("What it would do", "text")];
  return section("Who would end this job",
    table("Who would end this job", heads, el("tbody", {}, runs[0].summary.limits.map(row))));
}

// The rows of the table, in groups. Each has a name and a function of the run.
function table_groups() {
  const bytes = (n) => ({text: size(n), title: exact(n)});
  const peak = (name, key) => [name, (run) => bytes(run.summary.peak_bytes[key])];
  const rise = (name, key) => [name, ({seconds, summary}) => {
    const n = summary.slope_bytes_per_minute[key], title = n === null ? "" :
      `${exact(Math.round(n))} per minute`;
    return {text: slope(n, seconds / 2, summary.peak_bytes[key]), title};
  }];
  const plain = (name, of) => [name, (run) => ({text: of(run)})];
  const over = ({summary: {seconds_over_budget: n}}) => n > 0 ? duration(n) : "none";
  const guarded = runs.some((run) => run.guarded_peak_bytes != null);
  const against_budget = [[`Budget ${size(budget)}`, verdict],
    ...guarded ? [] : [plain("Time over budget", over)]];
  return [
    budget === null ? [] : against_budget,
    [peak("Peak memory, each page once", "memory"), peak("Peak RSS", "rss"),
      peak("Peak anonymous", "anon"), peak("Peak mapped files", "file"),
      peak("Peak shared memory", "shmem"), peak("Peak PSS", "pss"),
      peak("Page cache added", "cache"), peak("Peak page tables", "page_tables"),
      peak("Peak in swap", "swap")],
    [plain("Memory over time", ({summary}) => summary.trend), rise("Slope of memory", "memory"), rise("Slope of RSS", "rss"),
      rise("Slope of anonymous", "anon")],
    [["Read from disk", (run) => bytes(run.summary.disk_read_bytes)],
      plain("Major faults", (run) => count(run.summary.major_faults)),
      plain("Minor faults", (run) => count(run.summary.minor_faults)),
      plain("CPU time", (run) => duration(run.summary.cpu_seconds)),
      plain("Processes at most", (run) => count(run.summary.most_processes)),
      plain("Length", (run) => duration(run.seconds)), plain("Ended", (run) => run.ended)],
  ];
}

const column_head = (name, kind) => el("th", {scope: "col", class: kind}, name);
// A wide table scrolls on its own, also with the keyboard.
const table = (name, heads, ...bodies) =>
  el("div", {"class": "wide", "tabindex": 0, "role": "group", "aria-label": name},
    el("table", {}, el("thead", {}, el("tr", {}, heads)), ...bodies));

function numbers_section() {
  const cell = ({title, ...said}) => el("td", {title}, word(said));
  const row = ([name, of]) =>
    el("tr", {}, el("th", {scope: "row"}, name), runs.map((run) => cell(of(run))));
  const heads = ["Whole run", ...runs.map((run) => run.name)];
  return section("Peaks and slopes",
    table("Peaks and slopes", heads.map((name) => column_head(name)),
      table_groups().filter((rows) => rows.length).map((rows) => el("tbody", {}, rows.map(row)))),
    small_print("Slopes are medians over the second half of the run. A slope below 0.1 MiB per " +
      "minute is flat, and so is a change of less than 1 MiB in less than a minute."));
}

// A value that is the same for all runs is listed once, without the name of a run.
function per_run(of) {
  const same = new Set(runs.map((run) => JSON.stringify(of(run)))).size === 1;
  return same ? [[null, of(runs[0])]] : runs.map((run) => [run.name, of(run)]);
}

function files_section() {
  if (runs.every((run) => run.files.length === 0)) return null;
  const bytes = (n) => el("td", {title: exact(n)}, size(n));
  const row = (file) => el("tr", {}, el("td", {class: "path code"}, file.path),
    bytes(file.size_bytes), bytes(file.cached_before_bytes));
  const heads = () =>
    [column_head("File", "path"), column_head("Size"), column_head("Cached before")];
  const list = ([name, files]) => files.length === 0 ? [] : [
    name === null ? null : el("h3", {}, name),
    table("Watched files", heads(), el("tbody", {}, files.map(row)))];
  return section("Watched files", per_run((run) => run.files).flatMap(list));
}

function notes_section() {
  const named = ([name, notes]) => notes.map((note) => name === null ? note : `${name}: ${note}`);
  const notes = per_run((run) => run.notes).flatMap(named);
  if (notes.length === 0) return null;
  return section("Notes", el("ul", {}, notes.map((note) => el("li", {}, note))));
}

function marks_fold(run) {
  if (run.marks.length === 0) return null;
  const item = ({seconds, text}) =>
    el("li", {}, el("span", {class: "quiet"}, instant(seconds)), ` ${text}`);
  const whose = several ? ` of ${run.name}` : "";
  return el("details", {}, el("summary", {}, plural(run.marks.length, "mark") + whose),
    el("ul", {class: "marks"}, run.marks.map(item)));
}

// ---- downloads, created in the browser

function csv_of(run) {
  const columns = Object.values(run.samples);
  const line = (_, i) => columns.map((column) => column[i] ?? "").join(",");
  return [Object.keys(run.samples).join(","), ...run.samples.seconds.map(line), ""].join("\n");
}

function save(name, ending, type, text) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  const stem = name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, 60);
  el("a", {href: url, download: `${stem || "report"}.${ending}`}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function downloads_section() {
  const csv = (run) => button_of(several ? `Download CSV of ${run.name}` : "Download CSV",
    () => save(run.name, "csv", "text/csv", csv_of(run)));
  const json = button_of("Download JSON",
    () => save(report.title, "json", "application/json", data_text));
  const made = section("The samples", el("div", {class: "buttons"}, runs.map(csv), json));
  return set(made, {class: "downloads"});
}

function build() {
  const head = el("header", {}, el("h1", {}, report.title),
    report.subtitle ? el("p", {class: "verdict"}, report.subtitle) : null, theme_button(), about());
  const body = runs.length === 0 ? [el("p", {}, "This report has no runs.")] : [
    several ? null : figures(runs[0]), chart_section(), ...runs.map(marks_fold), limits_section(),
    numbers_section(),
    files_section(), notes_section()];
  const foot = `Made by evenkeel ${report.evenkeel}. This page is one file and loads nothing ` +
    "from the network.";
  put(document.getElementById("page"), {}, [head, ...body, document.getElementById("words"),
    downloads_section(), el("footer", {}, foot)]);
}

build();
draw_all();
let drawn_width = document.documentElement.clientWidth;
new ResizeObserver(() => {
  const width = document.documentElement.clientWidth;
  if (width !== drawn_width) drawn_width = width, draw_all();
}).observe(document.documentElement);

// For tests and for use in the console: pixel positions in the chart of a run, and its values.
window.evenkeelReport = {
  x: (run, seconds) => charts[run].x(seconds),
  y: (run, bytes) => charts[run].y(bytes),
  panels: (run) => charts[run].panels,
  value_at: (run, series, x) => {
    const i = charts[run].nearest(charts[run].seconds_at(x)), rate = runs[run][series];
    return rate ? rate.at(i) : runs[run].values[series][i];
  },
};
})();
