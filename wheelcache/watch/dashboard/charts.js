/**
 * The charts of a cache, which uPlot draws. Those over time have the same time axis, pointer and marks, and the reader
 * marks a stretch of time in any of them.
 */

import { announce, arrange, node, part, set, stamp, write } from "./nodes.js";
import { bytePower, bytes, causeName, clock, compact, count, duration, groupName, milliseconds, minute, percent,
  rate, seconds, threeDigits, unless } from "./words.js";

const GAP = 2.5; // steps that a line may bridge
const LEAST_SPAN = 600; // seconds
const NEAR = 5; // pixels from the pointer to a mark that is named
const OTHERS = 7; // the color of everything that has no color of its own
const SHARED = new Set(["unknown", null]); // causes and groups of that color
const LABEL = 22; // characters of the name of a release in a chart

const [dark, paper] = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
const kept = new Set(); // all charts of the page
for (const looks of [dark, paper]) looks.addEventListener("change", () => kept.forEach((chart) => chart.draw()));

/** Returns a function that reads lines from the history: pairs of a field and a label, and any color. */
const fields = (...wanted) => (history) => (
  wanted.map(([field, label, color]) => ({ label, color, values: history[field] })));

/** Returns a function that reads a line, and its limit as another one. */
const limited = (field, label, limit) => (history, now) => [{ label, values: history[field] },
  { label: "Limit", color: OTHERS, values: history[field].map((value) => (value ? now[limit] : null)) }];

/** Returns a function that reads a line for each cause, in the order of the server. */
const causes = (field) => (history) => Object.entries(history[field]).map(([cause, values]) => (
  { label: causeName(cause), values, color: SHARED.has(cause) ? OTHERS : undefined }));

const groups = (history) => history.computing.map(({ group, seconds: values }) => (
  { label: groupName(group), values, color: SHARED.has(group) ? OTHERS : undefined }));

/** Returns the least number from ``n``, which is positive, that is 1, 2 or 5 times a power of ten. */
function niceCeiling(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return power * [1, 2, 5, 10].find((step) => n <= step * power * (1 + 1e-9));
}

/** Returns a nice ceiling for a number of bytes, in the unit that ``bytes`` chooses for it. */
const niceBytes = (n) => 1024 ** bytePower(n) * niceCeiling(n / 1024 ** bytePower(n));

const MAIN = 3; // charts that are not folded

/** The charts over time. Their axis has the format of their values unless there is another. */
const SPECS = [
  { key: "hit_ratio", title: "Hit ratio", format: percent, axis: (n) => `${threeDigits(n * 100)}%`, ceiling: 1,
    lenses: [0.99, 0.9, 0.5], isStacked: true, showsZeros: true,
    lines: fields(["hit_ratio", "Hits", 0], ["store_ratio", "Store", 6], ["stale_ratio", "Stale", 4]) },
  { key: "misses", title: "Misses per second, by cause", format: rate, axis: compact, isStacked: true,
    lines: causes("misses") },
  { key: "computing", title: "Time computing per minute, by group", format: seconds, isStacked: true, lines: groups },
  { key: "requests", title: "Look-ups per second", format: rate, axis: compact,
    lines: fields(["requests_per_second", "Look-ups"]) },
  { key: "entries", title: "Entries", format: count, axis: compact, lines: limited("entries", "Entries", "max_entries") },
  { key: "memory", title: "Memory", format: bytes, ceilingOf: niceBytes, lines: limited("bytes", "Memory", "max_bytes") },
  { key: "removals", title: "Removals per second, by cause", format: rate, axis: compact, lines: causes("removals") },
  { key: "load_ms", title: "Mean time of a load", format: milliseconds, lines: fields(["load_ms", "Loads"]) },
  { key: "store_ms", title: "Mean time of a store call", format: milliseconds,
    lines: fields(["store_read_ms", "Reads"], ["store_write_ms", "Writes"]) },
  { key: "store_errors", title: "Failed store calls per second", format: rate, axis: compact,
    lines: fields(["store_errors_per_second", "Errors"], ["store_refused_per_second", "Refused"]) },
];

/** The charts over time, and their download. */
export class Charts {
  /** @param {Function} mark receives the start and the end of a stretch that the reader has marked */
  constructor(root, cacheName, mark) {
    this.name = cacheName;
    this.charts = SPECS.map((spec) => new Chart(spec, mark));
    this.places = [part(root, "charts"), part(root, "more-charts")];
    this.charts.forEach((chart, i) => this.places[i < MAIN ? 0 : 1].append(chart.figure));
    part(root, "csv").addEventListener("click", () => this.download());
  }

  forget() {
    for (const chart of this.charts) chart.forget();
  }

  /** Shows a cache's history of ``span``, which has the name ``name``. */
  show({ history, marks, now }, span, name) {
    const { at: ends, step } = history;
    // An empty step in place of missing ones interrupts the lines.
    const gaps = new Set([...ends.keys()].filter((i) => i && ends[i] - ends[i - 1] > GAP * step));
    const fill = (values, empty) => values.flatMap((value, i) => (gaps.has(i) ? [empty(i), value] : [value]));
    const at = fill(ends, (i) => ends[i] - step);
    this.history = { at, step };
    // The axis of a young cache begins with its figures.
    const from = Math.max(span.from, Math.min(span.earliest - step, span.until - LEAST_SPAN));
    const when = (i) => (i !== null ? clock(at[i]) : span.is_now ? `last ${duration(step)}` : clock(at.at(-1)));
    for (const chart of this.charts) {
      const isShown = (value) => (chart.spec.showsZeros ? value !== null : value);
      const lines = chart.spec.lines(history, now).filter(({ values }, i) => values.some(i ? Boolean : isShown));
      chart.show({ ...span, from, x: at, step, when, name, marks,
        lines: lines.map((line) => ({ ...line, values: fill(line.values, () => null) })) });
    }
    for (const place of this.places) place.hidden = [...place.children].every((figure) => figure.hidden);
    this.places[1].parentElement.hidden = this.places[1].hidden;
  }

  /** Returns the points of all charts as CSV, the oldest first. Times are in UTC; other values have no units. */
  csv() {
    const { at } = this.history;
    const lines = this.charts.flatMap(({ spec, lines: shown }) => shown.map((line) => ({ ...line, title: spec.title })));
    const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
    const heads = ["Time (UTC)", ...lines.map(({ title, label }) => `${title}: ${label}`)].map(quoted);
    const rows = at.map((time, i) => [new Date(time * 1000).toISOString(), ...lines.map(({ values }) => values[i] ?? "")]);
    return [heads, ...rows].map((row) => `${row.join(",")}\r\n`).join("");
  }

  download() {
    const url = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    node("a", { href: url, download: `${this.name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

/**
 * A chart: lines or stacked areas, a key for each, and a text for screen readers.
 *
 * The figures of ``show`` are: ``x`` (the time of each point), ``from`` and ``until`` (the ends of the axis), ``step``,
 * ``when`` (a function that names a point, or the last one for null), ``name`` (of the span), ``marks``, and ``lines``,
 * each with a ``label``, ``values`` and any ``color``.
 */
class Chart {
  constructor(spec, mark) {
    Object.assign(this, { spec, mark, lines: [], keys: new Map() });
    this.plot = this.place = this.stretch = this.walked = this.anchor = null;
    this.figure = stamp("chart");
    this.figure.dataset.chart = spec.key;
    this.box = part(this.figure, "plot");
    write(part(this.figure, "title"), spec.title);
    set(this.box, { "aria-describedby": "chart-help" });
    this.box.addEventListener("keydown", (event) => this.press(event));
    this.box.addEventListener("pointermove", () => { this.walked = null; });
    this.box.addEventListener("blur", () => { this.giveUp(); this.point(null); });
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.box);
    kept.add(this);
  }

  forget() {
    this.sizes.disconnect();
    kept.delete(this);
    this.plot?.destroy();
  }

  show(figures) {
    Object.assign(this, figures);
    this.figure.hidden = !this.lines.length;
    if (!this.lines.length) return;
    if (this.place >= this.x.length) this.place = null;
    this.showKeys();
    this.draw();
    this.tell();
    const gists = this.lines.map((line) => this.gist(line));
    set(this.box, { "aria-label": `${this.spec.title}, ${this.name}: ${gists.join("; ")}` });
    if (this.walked !== null) queueMicrotask(() => this.walkTo(this.x.indexOf(this.walked)));
  }

  gist({ label, values }) {
    const known = values.filter((value) => value !== null);
    const [least, most] = [Math.min, Math.max].map((end) => this.spec.format(end(...known)));
    const range = least === most ? `always ${most}` : `between ${least} and ${most}`;
    return `${label} ${range}, ${this.when(null)} ${unless(values.at(-1), this.spec.format)}`;
  }

  // --- the keys

  /** Shows a key for each line. Lines keep their order while the page is open: keys that change places lose the focus. */
  showKeys() {
    for (const line of this.lines) if (!this.keys.has(line.label)) this.keys.set(line.label, this.makeKey(line));
    const labels = [...this.keys.keys()];
    const rank = ({ label, color }) => (color === undefined ? labels.indexOf(label) : color === OTHERS ? labels.length : 0);
    this.lines.sort((one, other) => rank(one) - rank(other));
    arrange(part(this.figure, "keys"), this.lines.map(({ label }) => this.keys.get(label)));
  }

  /** Returns a color that no line of the chart has. */
  freeColor() {
    const used = new Set(this.lines.map(({ label }) => this.keys.get(label)?.dataset.color));
    return [...Array(OTHERS).keys()].find((color) => !used.has(`--series-${color}`)) ?? 0;
  }

  /** Makes the key of a line. Its color remains that of the line while the page is open, and a click hides the line. */
  makeKey({ label, color = this.freeColor() }) {
    const key = node("button", { type: "button", class: "key", "aria-pressed": true, "data-color": `--series-${color}` });
    key.style.setProperty("--color", `var(${key.dataset.color})`);
    key.append(node("span", {}, label), node("b"));
    key.addEventListener("click", () => {
      key.ariaPressed = key.ariaPressed !== "true";
      this.draw();
    });
    return key;
  }

  /** Writes the time, the marks and the values of the point under the pointer, or of the last one. */
  tell() {
    const i = this.place ?? this.x.length - 1;
    write(part(this.figure, "when"), [this.when(this.place), ...this.happened()].join(" · "));
    for (const { label, values } of this.lines) {
      write(this.keys.get(label).lastElementChild, unless(values[i], this.spec.format));
    }
  }

  /** Returns the texts of the marks near the pointer, or in the step that the keyboard has reached. */
  happened() {
    if (this.place === null || !this.plot) return [];
    const pixels = this.walked === null ? (NEAR * (this.until - this.from)) / this.plot.over.clientWidth : 0;
    const near = Math.max(this.step / 2, pixels);
    return this.marks.filter(({ at }) => Math.abs(at - this.x[this.place] + this.step / 2) <= near)
      .map(({ at, text }) => `${clock(at)} ${text}`);
  }

  // --- the pointer and the keyboard

  point(i) {
    this.plot?.setCursor(i === null ? { left: -10, top: -10 } : { left: this.left(this.x[i]), top: 0 }, true, true);
  }

  left(x) {
    return ((x - this.from) / (this.until - this.from)) * this.plot.over.clientWidth;
  }

  press(event) {
    const [last, isShift] = [this.x.length - 1, event.shiftKey];
    const goal = { ArrowLeft: Math.max(0, (this.place ?? last + 1) - 1), Home: 0, End: last,
      ArrowRight: Math.min(last, (this.place ?? last) + 1) }[event.key];
    const isEnd = event.key === "Escape" || (event.key === "Enter" && this.stretch);
    if (event.ctrlKey || event.metaKey || event.altKey || (goal === undefined && !isEnd)) return;
    event.preventDefault();
    const { stretch } = this;
    if (!isShift) this.giveUp();
    if (event.key === "Enter") this.mark(...stretch);
    if (event.key === "Escape" && !stretch) this.point(null);
    if (isEnd) return;
    if (isShift) this.anchor ??= this.x[this.place ?? goal];
    this.walkTo(goal);
    const marked = this.stretch ? [`${this.stretch.map(clock).join(" to ")} marked: Enter shows it`] : [];
    const values = this.lines.map(({ label }) => `${label} ${this.keys.get(label).lastElementChild.textContent}`);
    announce([this.when(goal), ...marked, ...values, ...this.happened()].join(", "));
  }

  /** Points at a step, and extends any stretch to it. */
  walkTo(i) {
    if (i < 0 || !this.plot) return;
    this.walked = this.x[i];
    this.point(i);
    if (this.anchor === null) return;
    this.stretch = [Math.min(this.anchor, this.walked) - this.step, Math.max(this.anchor, this.walked)];
    const left = Math.max(0, this.left(this.stretch[0]));
    const [width, height] = [this.left(this.stretch[1]) - left, this.plot.over.clientHeight];
    this.plot.setSelect({ left, top: 0, width, height }, false);
  }

  /** Forgets the pointer of the keyboard and any marked stretch. */
  giveUp() {
    this.plot?.setSelect({ width: 0, height: 0 }, false);
    this.walked = this.anchor = this.stretch = null;
  }

  /** Applies what the mouse has marked, in whole steps. */
  select({ select, posToVal }) {
    if (!select.width) return;
    const [from, until] = [select.left, select.left + select.width].map((left) => posToVal(left, "x"));
    this.giveUp();
    this.mark(Math.floor(from / this.step) * this.step, Math.ceil(until / this.step) * this.step);
  }

  // --- the drawing

  /** Draws the lines. uPlot is made again only if the lines or the looks have changed. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (!width || !this.lines.length) return;
    const shown = this.lines.filter(({ label }) => this.keys.get(label).ariaPressed === "true");
    const style = getComputedStyle(this.box);
    const looks = JSON.stringify([shown.map(({ label }) => label), style.fontSize, dark.matches, paper.matches]);
    if (this.spec.isStacked) shown.reverse(); // the area of a line is drawn before the line below it
    const data = [this.x, ...this.stack(shown)];
    this.scale(data);
    if (this.plot && this.looks === looks) {
      if (this.plot.width !== width || this.plot.height !== height) this.plot.setSize({ width, height });
      this.plot.setData(data);
    } else {
      this.plot?.destroy();
      this.plot = new window.uPlot({ width, height, ...this.options(shown, style) }, data, this.box);
      this.looks = looks;
    }
  }

  /** Returns the heights of the lines: of stacked ones, the sums up to each. */
  stack(shown) {
    if (!this.spec.isStacked) return shown.map(({ values }) => values);
    const sums = this.x.map(() => 0);
    return shown.toReversed().map(({ values }) => (
      values.map((value, i) => (value === null ? null : (sums[i] += value))))).reverse();
  }

  /** Chooses the ends of the upright axis. Ratios near the ceiling are magnified: 99.7% and 97% look different. */
  scale([, ...drawn]) {
    const { ceiling, ceilingOf = niceCeiling, lenses = [], isStacked } = this.spec;
    const values = (rows) => rows.flat().filter((value) => value !== null);
    const most = Math.max(0, ...values(drawn));
    // The other lines are stacked on the lowest one, which therefore determines the floor.
    const least = Math.min(...values(isStacked ? drawn.slice(-1) : drawn));
    this.ceiling = ceiling ?? ceilingOf(most || 1);
    this.floor = lenses.find((lens) => lens <= least) ?? 0;
  }

  options(shown, style) {
    const color = (name) => style.getPropertyValue(name).trim();
    const rem = parseFloat(style.fontSize);
    const font = `${rem * 0.8}px ${style.fontFamily}`;
    const { format, axis = format, isStacked } = this.spec;
    const isLone = (values, i) => values[i] !== null && [i - 1, i + 1].every((at) => (values[at] ?? null) === null);
    const series = shown.map((line) => {
      const stroke = color(this.keys.get(line.label).dataset.color);
      const points = { show: true, size: 6, fill: stroke };
      const filter = (plot, i) => [...plot.data[i].keys()].filter((at) => isLone(plot.data[i], at));
      return { stroke, width: 1.25, fill: isStacked ? `${stroke}55` : undefined, points: { ...points, filter } };
    });
    const bands = isStacked ? shown.slice(1).map((_, i) => ({ series: [i + 1, i + 2] })) : [];
    const looks = { stroke: color("--quiet"), font, grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false } };
    const level = (share) => this.floor + (this.ceiling - this.floor) * share;
    return {
      legend: { show: false },
      padding: [rem * 0.6, rem * 1.2, 0, 0],
      scales: { x: { range: () => [this.from, this.until] }, y: { range: () => [this.floor, this.ceiling] } },
      axes: [
        { ...looks, grid: { show: false }, size: rem * 1.5, gap: rem * 0.3, space: rem * 5,
          values: (plot, at, column, space, every) => at.map(every < 60 ? clock : minute) },
        { ...looks, size: rem * 3.8, gap: rem * 0.4, splits: () => [0, 0.5, 1].map(level),
          values: (plot, levels) => levels.map(axis) },
      ],
      series: [{}, ...series],
      bands,
      cursor: { y: false, points: { size: 6 }, bind: { dblclick: () => null },
        drag: { y: false, setScale: false, dist: NEAR },
        sync: { key: "time", filters: { pub: (kind) => !["mousedown", "mouseup"].includes(kind) } } },
      hooks: {
        setCursor: [({ cursor }) => { this.place = cursor.left < 0 ? null : cursor.idx ?? null; this.tell(); }],
        setSelect: [(plot) => this.select(plot)],
        draw: [(plot) => this.drawMarks(plot, color, `600 ${rem * 0.8 * devicePixelRatio}px ${style.fontFamily}`)],
      },
    };
  }

  /** Draws the marks from top to bottom. Releases are the most visible ones, and have a label where there is room. */
  drawMarks({ ctx, bbox: { left, top, width, height }, valToPos }, color, font) {
    const scale = devicePixelRatio;
    let end = left + width; // of the room for labels, which the newest releases get first
    const releases = this.marks.filter(({ kind }) => kind === "release").reverse();
    const place = ({ at }) => Math.round(valToPos(at, "x", true));
    ctx.save();
    Object.assign(ctx, { textAlign: "left", textBaseline: "top", lineJoin: "round", font, fillStyle: color("--text") });
    for (const { at, kind } of this.marks) {
      const isRelease = kind === "release";
      const x = place({ at }) + (isRelease ? 0 : 0.5); // a line of one pixel is not blurred
      ctx.setLineDash(isRelease ? [] : [2 * scale, 3 * scale]);
      ctx.lineWidth = (isRelease ? 2 : 1) * scale;
      ctx.strokeStyle = color(isRelease ? "--text" : kind === "killed" ? "--danger" : "--quiet");
      ctx.stroke(new Path2D(`M${x},${top}v${height}`));
    }
    ctx.setLineDash([]);
    [ctx.strokeStyle, ctx.lineWidth] = [color("--surface"), 4 * scale];
    for (const release of releases) { // after the lines, so that none of them crosses a label
      const label = release.text.length > LABEL ? `${release.text.slice(0, LABEL - 1)}…` : release.text;
      const space = ctx.measureText(label).width + 10 * scale;
      const start = place(release) + space <= end ? place(release) : place(release) - space;
      if (start < left || start + space > end) continue;
      end = start;
      ctx.strokeText(label, start + 5 * scale, top + 2 * scale);
      ctx.fillText(label, start + 5 * scale, top + 2 * scale);
    }
    ctx.restore();
  }
}
