/**
 * The charts of a cache: a grid in which all charts have the same time axis, pointer and marks.
 *
 * The widest label in the grid determines the margins, so that a moment has the same position in each column.
 */

import { announce, fillTable, node, part, set, stamp, svg, write } from "./nodes.js";
import { NOTHING, bytePower, bytes, clock, compact, count, duration, milliseconds, minute, percent, percentile, plural,
  rate, threeDigits, unless } from "./words.js";

const GAP = 2.5; // steps that a line may bridge
const FRESH = 6; // steps; an older last step is not shown as the present one
const SHORTEST = 600; // seconds of the time axis at least, so that a short history does not look like a long one
const NARROWEST = 17; // rem, the least width of a chart
const TABLE_ROWS = 60;
const MARKED = { cleared: "Cleared", reset: "Figures reset", killed: "Ended abruptly:" };

const SPECS = [
  { key: "hit_ratio", title: "Hit ratio", format: percent, axis: (n) => `${threeDigits(n * 100)}%`, ceiling: 1,
    lenses: [0.99, 0.9, 0.5], nothing: "No look-ups", stacked: true,
    series: [{ field: "hit_ratio", label: "Hits" }, { field: "store_ratio", label: "Store", optional: true },
      { field: "stale_ratio", label: "Stale", optional: true }] },
  { key: "requests", title: "Look-ups per second", format: rate, axis: compact, nothing: "No look-ups",
    series: [{ field: "requests_per_second", label: "All" }, { field: "misses_per_second", label: "Misses" },
      { field: "stale_per_second", label: "Stale", optional: true }] },
  { key: "entries", title: "Entries", format: count, axis: compact, limit: "max_entries", nothing: "Nothing yet",
    series: [{ field: "entries", label: "Entries" }] },
  { key: "memory", title: "Memory", format: bytes, axis: bytes, ceilingOf: niceBytes, limit: "max_bytes",
    nothing: "Nothing yet", series: [{ field: "bytes", label: "Memory" }], isKnown: ({ total }) => total.bytes !== null },
  { key: "removals", title: "Removals per second", format: rate, axis: compact, nothing: "Nothing yet",
    series: [{ field: "evictions_per_second", label: "Evicted" }, { field: "expirations_per_second", label: "Expired" }] },
  { key: "load_ms", title: "Mean time of a load", format: milliseconds, axis: milliseconds,
    nothing: "No miss was followed by a set", series: [{ field: "load_ms", label: "Loads" }] },
  { key: "store_ms", title: "Mean time of a store call", format: milliseconds, axis: milliseconds,
    nothing: "No calls", isKnown: ({ store }) => store !== null,
    series: [{ field: "store_read_ms", label: "Reads" }, { field: "store_write_ms", label: "Writes" }] },
  { key: "store_errors", title: "Failed store calls per second", format: rate, axis: compact, nothing: "No calls",
    isKnown: ({ store }) => store !== null, series: [{ field: "store_errors_per_second", label: "Errors" },
      { field: "store_refused_per_second", label: "Refused", optional: true }] },
];

/** Returns the least number from ``n`` that is 1, 2 or 5 times a power of ten. */
function niceCeiling(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return power * [1, 2, 5, 10].find((step) => n <= step * power * (1 + 1e-9));
}

/** Returns a nice ceiling for a number of bytes, in the unit that ``bytes`` chooses for it. */
function niceBytes(n) {
  const unit = 1024 ** bytePower(n);
  return unit * niceCeiling(n / unit);
}

/** The grid. */
export class Charts {
  constructor(root, cacheName) {
    this.root = part(root, "charts");
    this.table = part(root, "chart-table");
    this.pointed = null; // the end of the step under the pointer
    this.charts = [...SPECS.map((spec) => new TimeChart(spec, this)), new Histogram(this)];
    this.root.append(...this.charts.map((chart) => chart.figure));
    write(this.table.querySelector("caption"), `Charts of ${cacheName}`);
    this.table.addEventListener("toggle", () => this.fillTable());
    this.widths = new ResizeObserver(() => this.draw());
    this.widths.observe(this.root);
  }

  forget() {
    this.widths.disconnect();
  }

  /** Shows a cache's history of the last ``span`` seconds before ``now``. */
  show(cache, events, now, span) {
    this.history = cache.history;
    const { at } = this.history;
    this.cache = cache;
    this.end = now;
    this.start = Math.max(now - span, Math.min(at[0] ?? now, now - SHORTEST));
    // If no worker has added to the history for a while, its last step is not the present one.
    this.isNow = now - (at.at(-1) ?? 0) <= FRESH * this.history.step;
    this.marks = this.findMarks(events).filter((mark) => mark.at >= this.start);
    if (!at.includes(this.pointed)) this.pointed = null;
    for (const chart of this.charts) chart.show(cache);
    this.draw();
    this.fillTable();
  }

  /** Returns marks for the starts of workers, and for events that explain changes of the lines. */
  findMarks(events) {
    const { at, step, started } = this.history;
    const began = at.flatMap((time, i) => (started?.[i] ? [[time, "began", `${plural(started[i], "worker")} started`]] : []));
    const mine = events.filter((event) => MARKED[event.kind] && [null, this.cache.name].includes(event.cache));
    const others = mine.map((event) => [event.at, event.kind, `${MARKED[event.kind]} ${event.text}`]);
    const endOf = (time) => at.find((end) => time <= end && time > end - step) ?? time;
    return [...began, ...others].map(([time, kind, text]) => ({ at: time, step: endOf(time), kind, text }));
  }

  draw() {
    const shown = this.charts.filter((chart) => !chart.figure.hidden);
    const width = this.root.clientWidth;
    if (!this.history || width < 80) return;
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.arrange(shown, Math.max(1, Math.min(4, Math.floor((width + 1.75 * rem) / ((NARROWEST + 1.75) * rem)))));
    const character = 0.48 * rem;
    const longest = Math.max(...shown.flatMap((chart) => chart.labels().map((label) => label.length)));
    const layout = { character, height: 8.8 * rem, top: 0.55 * rem, right: 0.55 * rem, bottom: 1.35 * rem,
      left: Math.max(2.1 * rem, character * longest + 10) };
    layout.innerHeight = layout.height - layout.top - layout.bottom;
    for (const [chart, outer] of shown.map((each) => [each, each.figure.clientWidth])) {
      chart.draw({ ...layout, width: outer, inner: outer - layout.left - layout.right });
    }
    this.point(this.pointed);
  }

  /** Chooses a number of columns up to ``most`` that fills all rows. If there is none, the first chart is widened. */
  arrange(shown, most) {
    const columns = [most, most - 1].find((n) => n > 0 && shown.length % n === 0) ?? most;
    this.root.style.setProperty("--columns", columns);
    const left = (columns - (shown.length % columns)) % columns;
    shown[0].figure.style.gridColumn = `span ${left + 1}`;
  }

  /** Points at a step in all charts; null stands for the last step. */
  point(at) {
    this.pointed = at;
    for (const chart of this.charts) chart.pointAt?.(at);
  }

  fillTable() {
    if (!this.table.open) return;
    const { at, step } = this.history;
    const charts = this.charts.filter((chart) => chart instanceof TimeChart && !chart.figure.hidden);
    const heads = charts.flatMap((chart) => chart.drawn().map((one) => (
      chart.spec.series.length > 1 ? `${chart.spec.title}: ${one.label.toLowerCase()}` : chart.spec.title)));
    this.table.querySelector("thead tr").replaceChildren(
      ...["Time", ...heads].map((head) => node("th", { scope: "col" }, head)));
    // The newest first. Only the last step of each span is kept, so that rows do not change as time passes.
    const span = step * Math.ceil(Math.max(1, (at.at(-1) - at[0]) / step / TABLE_ROWS));
    const kept = [...at.keys()].filter((i) => Math.floor(at[i] / span) !== Math.floor(at[i + 1] / span));
    const rows = kept.reverse().slice(0, TABLE_ROWS).map((i) => [clock(at[i]),
      ...charts.flatMap((chart) => chart.drawn().map((one) => unless(chart.values(one)[i], chart.spec.format)))]);
    fillTable(this.table.querySelector("tbody"), rows);
  }
}

/** The frame of a chart. */
class Plot {
  constructor(spec, grid) {
    Object.assign(this, { spec, grid, nothing: spec.nothing });
    this.figure = stamp("chart");
    this.figure.dataset.chart = spec.key;
    for (const name of ["when", "legend", "svg", "tooltip"]) this[name] = part(this.figure, name);
    write(part(this.figure, "title"), spec.title);
    this.svg.addEventListener("pointermove", (event) => {
      this.choose(this.nearest(event.clientX - this.svg.getBoundingClientRect().left));
    });
    for (const ended of ["pointerleave", "blur"]) this.svg.addEventListener(ended, () => this.choose(null));
    this.svg.addEventListener("keydown", (event) => this.walk(event));
  }

  /** Moves from point to point with the arrow keys, and announces the point. */
  walk(event) {
    const keys = this.points();
    const at = keys.indexOf(this.pointed());
    const last = keys.length - 1;
    const goal = { ArrowLeft: at < 0 ? last : Math.max(0, at - 1), ArrowRight: at < 0 ? last : Math.min(last, at + 1),
      Home: 0, End: last, Escape: -1 }[event.key];
    if (goal === undefined || last < 0) return;
    event.preventDefault();
    this.choose(goal < 0 ? null : keys[goal]);
    if (goal >= 0) announce(this.describe(keys[goal]).join(", "));
  }

  draw(layout) {
    this.layout = layout;
    set(this.svg, { viewBox: `0 0 ${layout.width} ${layout.height.toFixed(1)}` });
    this.paint();
  }

  y(value) {
    const { top, floor } = this.range;
    return this.layout.top + this.layout.innerHeight * (1 - (value - floor) / (top - floor));
  }

  /** Returns the labels of the lines at the bottom, the middle and the top. */
  labels() {
    const { top, floor, format } = this.range;
    return [0, 0.5, 1].map((share) => format(floor + (top - floor) * share));
  }

  levels() {
    const { left, top, innerHeight, character } = this.layout;
    return this.labels().flatMap((label, i) => {
      const y = top + innerHeight * (1 - i / 2);
      const text = { x: left - 6, y: y + character * 0.55, "text-anchor": "end" };
      return [this.across("grid", y), svg("text", text, label)];
    });
  }

  across(kind, y) {
    return svg("line", { class: kind, x1: this.layout.left, x2: this.layout.left + this.layout.inner, y1: y, y2: y });
  }

  upright(kind, x) {
    return svg("line", { class: kind, x1: x, x2: x, y1: this.layout.top, y2: this.layout.top + this.layout.innerHeight });
  }

  /** Shows the drawn elements and the cursor, or a text if there is nothing to draw. */
  put(drawn, isEmpty) {
    const { left, inner, top, innerHeight } = this.layout;
    const middle = { class: "nothing", x: left + inner / 2, y: top + innerHeight / 2 + 4, "text-anchor": "middle" };
    if (isEmpty) drawn.push(svg("text", middle, this.nothing));
    this.cursor = this.upright("cursor", 0);
    set(this.cursor, { visibility: "hidden" });
    this.svg.replaceChildren(...drawn, this.cursor);
  }

  /** Shows ``lines`` in the tooltip above ``x``, or hides the tooltip if there are none. */
  showTooltip(lines, x) {
    this.tooltip.hidden = !lines.length;
    write(this.tooltip, lines.join("\n"));
    const half = this.tooltip.offsetWidth / 2;
    const left = Math.min(this.layout.width - half * 2, Math.max(0, x - half));
    this.tooltip.style.transform = `translateX(${left.toFixed(0)}px)`;
  }
}

/** Returns the path of a line. A run of one point becomes a line of no length, which round caps turn into a dot. */
const line = (runs) => runs.map((run) => `M${(run.length > 1 ? run : [...run, ...run]).map((p) => p.slice(0, 2)).join("L")}`).join("");

/** Returns the path of a band. At each point, the band reaches down to the third coordinate. */
const band = (runs) => runs.map((run) => {
  const back = [...run].reverse().map(([x, , floor]) => `${x},${floor}`);
  return `M${run.map(([x, y]) => `${x},${y}`).join("L")}L${back.join("L")}Z`;
}).join("");

/** A chart of up to three series over time. Missing steps, and steps without a value, are gaps in the line. */
class TimeChart extends Plot {
  constructor(spec, grid) {
    super(spec, grid);
    this.keys = spec.series.map((_, i) => node("span", { class: `key series-${i}` }));
    this.legend.append(...this.keys);
    this.isPointed = false;
  }

  show(cache) {
    const { history, total } = cache;
    this.history = history;
    this.limit = total[this.spec.limit];
    this.figure.hidden = this.spec.isKnown ? !this.spec.isKnown(cache) : false;
    // After a start or a reset no step is over yet.
    const isEarly = !history.at.length && total.requests > 0;
    this.nothing = isEarly ? `The first ${duration(history.step)} are not over yet` : this.spec.nothing;
    this.spec.series.forEach((one, i) => { this.keys[i].hidden = !this.drawn().includes(one); });
    this.range = this.scale();
    this.describeAll();
  }

  values(series) {
    return this.history[series.field] ?? [];
  }

  /** Returns the series that are drawn. An optional series is drawn unless it has only zeros. */
  drawn() {
    return this.spec.series.filter((one) => !one.optional || this.values(one).some(Boolean));
  }

  /** Returns the values within the time axis. */
  inView(series) {
    return this.values(series).filter((value, i) => value !== null && value !== undefined && this.history.at[i] >= this.grid.start);
  }

  /** Prefixes the label of the series, if there is more than one. */
  named(series, text) {
    return this.drawn().length > 1 ? `${series.label} ${text}` : text;
  }

  /** Writes a summary for screen readers. */
  describeAll() {
    const { at, step } = this.history;
    const said = this.drawn().map((one) => {
      const known = this.inView(one);
      if (!known.length) return this.named(one, "nothing yet");
      const latest = this.grid.isNow ? this.values(one).at(-1) : null;
      const [least, most] = [Math.min(...known), Math.max(...known)].map(this.spec.format);
      const range = least === most ? `always ${most}` : `between ${least} and ${most}`;
      const last = latest === null || latest === undefined ? "nothing" : this.spec.format(latest);
      return this.named(one, `${range}, last ${duration(step)} ${last}`);
    });
    const shown = this.grid.end - Math.max(this.grid.start, at[0] ?? 0);
    const span = at.length ? `, last ${shown > 7200 ? duration(shown) : plural(Math.ceil(shown / 60), "minute")}` : "";
    set(this.svg, { "aria-label": `${this.spec.title}${span}: ${said.join("; ")}` });
  }

  /** Writes the values of a step into the legend; null stands for the last step. */
  updateLegend(at) {
    const place = at === null ? this.history.at.length - 1 : this.history.at.indexOf(at);
    const isKnown = at !== null || this.grid.isNow;
    write(this.when, at !== null ? clock(at) : isKnown ? `last ${duration(this.history.step)}` : "");
    this.spec.series.forEach((one, i) => {
      write(this.keys[i], this.keys[i].hidden ? "" : this.named(one, isKnown ? unless(this.values(one)[place], this.spec.format) : NOTHING));
    });
  }

  points() {
    return this.history.at;
  }

  pointed() {
    return this.grid.pointed;
  }

  /** Points all charts at a step, and shows in this chart which events happened during it. */
  choose(at) {
    this.isPointed = at !== null;
    this.grid.point(at);
  }

  pointAt(at) {
    this.updateLegend(at);
    if (!this.cursor) return;
    this.tooltip.hidden = true;
    set(this.cursor, { visibility: at === null ? "hidden" : "visible" });
    if (at === null) return;
    const x = this.x(at);
    set(this.cursor, { x1: x, x2: x });
    const happened = this.happened(at);
    if (this.isPointed && happened.length) this.showTooltip([clock(at), ...happened], x);
  }

  happened(at) {
    return this.grid.marks.filter((mark) => mark.step === at).map((mark) => mark.text);
  }

  describe(at) {
    const place = this.history.at.indexOf(at);
    const values = this.drawn().map((one) => this.named(one, unless(this.values(one)[place], this.spec.format)));
    return [clock(at), ...values, ...this.happened(at)];
  }

  x(at) {
    return this.layout.left + (this.layout.inner * (at - this.grid.start)) / (this.grid.end - this.grid.start);
  }

  nearest(x) {
    const away = (at) => Math.abs(this.x(at) - x);
    return this.history.at.reduce((best, at) => (best !== null && away(best) <= away(at) ? best : at), null);
  }

  paint() {
    const { known, limit } = this.range;
    const marks = this.grid.marks.map((mark) => this.upright(`mark ${mark.kind}`, this.x(mark.at)));
    const drawn = [...this.levels(), ...this.hours(), ...marks];
    const bases = this.history.at.map(() => 0); // of the series that is stacked next
    this.drawn().forEach((one) => {
      const i = this.spec.series.indexOf(one);
      const runs = this.runs(this.values(one), bases);
      if (this.spec.stacked || this.drawn().length === 1) drawn.push(svg("path", { class: `area series-${i}`, d: band(runs) }));
      drawn.push(svg("path", { class: `line series-${i}`, d: line(runs) }));
      for (const [[cx, cy]] of runs.filter((run) => run.length === 1)) {
        drawn.push(svg("circle", { class: `point series-${i}`, cx, cy, r: 2.5 }));
      }
      if (this.spec.stacked) this.values(one).forEach((value, step) => { bases[step] += value ?? 0; });
    });
    if (limit) {
      const { left, top, character } = this.layout;
      const y = this.y(limit);
      drawn.push(this.across("limit", y), svg("text", { x: left + 4, y: y < top + 2 * character ? y + 1.8 * character : y - 4 }, "Limit"));
    }
    this.put(drawn, !known.length);
  }

  /** Returns the range of the axis. Ratios near the ceiling are magnified, so that 99.7% and 97% look different. */
  scale() {
    const { axis, ceiling, ceilingOf = niceCeiling, lenses = [], stacked } = this.spec;
    // The other series are stacked on the first one, which therefore determines the floor.
    const known = this.drawn().slice(0, stacked ? 1 : undefined).flatMap((one) => this.inView(one));
    const most = known.reduce((a, b) => Math.max(a, b), 0);
    const least = known.reduce((a, b) => Math.min(a, b), Infinity);
    const limit = this.limit <= most * 2.5 ? this.limit : null; // null: none, or far above the line
    const top = ceiling ?? ceilingOf(Math.max(most, limit ?? 0));
    const floor = known.length ? lenses.find((lens) => lens <= least) ?? 0 : 0;
    return { known, limit, top, floor, format: axis };
  }

  /** Returns runs of consecutive steps that have values, as lists of [x, y, y of the base]. */
  runs(values, bases) {
    const runs = [];
    let before = null;
    this.history.at.forEach((at, i) => {
      if (values[i] === null || values[i] === undefined || at < this.grid.start) return;
      if (before === null || at - before > GAP * this.history.step) runs.push([]);
      const ys = [bases[i] + values[i], Math.max(this.range.floor, bases[i])].map((value) => this.y(value).toFixed(1));
      runs.at(-1).push([this.x(at).toFixed(1), ...ys]);
      before = at;
    });
    return runs;
  }

  /** Returns at most four marks, at round minutes of the viewer's time zone. */
  hours() {
    const { left, inner, top, innerHeight, height, character } = this.layout;
    const { start, end } = this.grid;
    const span = (end - start) / 60;
    const wanted = inner < 36 * character ? 3 : 4;
    const every = 60 * ([1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240].find((step) => span / step <= wanted) ?? 360);
    const offset = new Date(end * 1000).getTimezoneOffset() * 60;
    const marks = [];
    for (let at = Math.ceil((start - offset) / every) * every + offset; at <= end; at += every) {
      const x = this.x(at);
      const inside = Math.min(left + inner - 2.5 * character, Math.max(left + 2.5 * character, x));
      marks.push(svg("line", { class: "grid", x1: x, x2: x, y1: top + innerHeight, y2: top + innerHeight + 4 }),
        svg("text", { x: inside, y: height - 3, "text-anchor": "middle" }, minute(at)));
    }
    return marks;
  }
}

/** The durations of loads as a histogram, with estimates of three percentiles. */
class Histogram extends Plot {
  constructor(grid) {
    super({ key: "load_buckets", title: "Times of loads, last hour", nothing: "No miss was followed by a set" }, grid);
    this.chosen = null;
    this.bounds = this.counts = [];
  }

  show({ times }) {
    const { bounds, counts } = times.hour.loads;
    Object.assign(this, { bounds, counts, sum: counts.reduce((a, b) => a + b, 0) });
    this.range = { top: niceCeiling(Math.max(0, ...counts)), floor: 0, format: compact };
    const percentiles = [50, 90, 99].map((p) => `p${p} ${percentile(this, p / 100)}`);
    write(this.legend, percentiles.join("  "));
    const gist = this.sum ? `estimated ${percentiles.join(", ")}` : "nothing yet";
    set(this.svg, { "aria-label": `${this.spec.title}: ${plural(this.sum, "load")}, ${gist}` });
  }

  bound(i) {
    return milliseconds(this.bounds[i] * 1000);
  }

  points() {
    return this.counts.map((_, i) => i);
  }

  pointed() {
    return this.chosen;
  }

  choose(i) {
    this.chosen = i;
    set(this.cursor, { visibility: i === null ? "hidden" : "visible", x1: i === null ? 0 : this.x(i), x2: i === null ? 0 : this.x(i) });
    this.showTooltip(i === null ? [] : this.describe(i), i === null ? 0 : this.x(i));
  }

  describe(i) {
    const range = i === this.bounds.length ? `over ${this.bound(i - 1)}`
      : i ? `${this.bound(i - 1)} – ${this.bound(i)}` : `up to ${this.bound(0)}`;
    return [range, plural(this.counts[i], "load"), percent(this.sum ? this.counts[i] / this.sum : 0)];
  }

  x(i) {
    return this.layout.left + (this.layout.inner / this.counts.length) * (i + 0.5);
  }

  nearest(x) {
    const i = Math.floor((x - this.layout.left) / (this.layout.inner / this.counts.length));
    return this.counts.length ? Math.min(this.counts.length - 1, Math.max(0, i)) : null;
  }

  paint() {
    const { left, inner, top, innerHeight, character, height: full } = this.layout;
    const { top: most } = this.range;
    const wide = inner / this.counts.length;
    const drawn = this.levels();
    this.counts.forEach((n, i) => {
      const height = n ? Math.max(1.5, (innerHeight * n) / most) : 0;
      drawn.push(svg("rect", { class: "bucket", x: left + wide * i + 1, y: top + innerHeight - height,
        width: Math.max(1, wide - 2), height }));
    });
    const every = inner < 42 * character ? 2 : 1;
    this.bounds.forEach((bound, i) => { // a bound is between two bars; only 1, 10, 100 ms and so on have room
      if (Math.log10(bound / this.bounds[0]).toFixed(6) % every) return;
      drawn.push(svg("text", { x: left + wide * (i + 1), y: full - 3, "text-anchor": "middle" }, this.bound(i)));
    });
    this.put(drawn, !this.sum);
  }
}
