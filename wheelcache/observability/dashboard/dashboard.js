/**
 * The dashboard's page: it asks for the figures every few seconds and draws them.
 *
 * Nodes are made once and updated in place, keyed by the cache's name, the worker's pid and the row's place, so that
 * a refresh takes neither the focus nor a selection, closes nothing, and gives a screen reader nothing to say.
 * Names come from users: they are written with textContent and setAttribute, never parsed as markup.
 * Styles are set through the CSSOM alone, because the page runs under a CSP without 'unsafe-inline'.
 */

const config = JSON.parse(document.getElementById("config").textContent);

const GAP = 2.5; // steps: a line does not bridge more
const FRESH = 6; // steps: the last one that every worker has reached is no older
const SHORTEST = 600; // seconds on the time axis; a young history must not look like an old one
const TABLE_ROWS = 60;
// A chart's height and margins, in CSS pixels; they grow with the size of the text, as dashboard.css has it.
let [HEIGHT, LEFT, TOP, RIGHT, BOTTOM, INNER, CHARACTER] = [0, 0, 0, 0, 0, 0, 0];
const LONGEST_WAIT = 60; // seconds between two attempts while the figures cannot be had
const ANSWER_WITHIN = 10; // seconds
const TOAST = 15; // seconds that a message stays which needs no answer
const FEW = 3; // caches: of more there are a filter and an order
const OPEN_UP_TO = 8; // workers: a longer table starts closed
const NOTHING = "–";
const ALONE = "Each worker shows only itself, since FIGURES_DIR is None: another one may answer next";

// --- words and numbers

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const hundredths = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const threeDigits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const inLocalTime = (options) => new Intl.DateTimeFormat("en-GB", options);
const minutes = inLocalTime({ hour: "2-digit", minute: "2-digit" });
const seconds = inLocalTime({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const days = inLocalTime({ day: "numeric", month: "short" });

const unless = (value, format) => (value === null || value === undefined ? NOTHING : format(value));
const count = (n) => whole.format(n);
const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
const rate = (n) => (n < 10 ? hundredths.format(n) : n < 1e5 ? whole.format(n) : short.format(n));
const compact = (n) => short.format(n);
const milliseconds = (ms) => (ms >= 1000 ? duration(ms / 1000)
  : ms >= 1 || ms === 0 ? `${threeDigits.format(ms)} ms` : `${threeDigits.format(ms * 1000)} µs`);
const clock = (at) => seconds.format(new Date(at * 1000));

/** 0.9996 is not "100%": only a ratio without a miss says so, and only one without a hit says "0%". */
function percent(ratio) {
  if (ratio === 0 || ratio === 1) return `${ratio * 100}%`;
  return `${Math.min(99.9, Math.max(0.1, ratio * 100)).toFixed(1)}%`;
}

function duration(s) {
  if (s < 120) return `${threeDigits.format(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

const bytePower = (n) => (n < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(n) / 10)));

function bytes(n) {
  const power = bytePower(n);
  return `${threeDigits.format(n / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** A moment in the viewer's time; with the day if that is not the day of ``now``. */
function moment(at, now) {
  const [then, today] = [new Date(at * 1000), new Date(now * 1000)];
  const time = clock(at);
  return then.toDateString() === today.toDateString() ? time : `${days.format(then)}, ${time}`;
}

// --- nodes

const byId = (id) => document.getElementById(id);
const part = (root, name) => root.querySelector(`[data-part="${name}"]`);
const stamp = (id) => byId(id).content.firstElementChild.cloneNode(true);

/** Writes only what differs: an untouched text node keeps a selection, and costs no layout. */
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  return node;
}

function node(tag, attributes = {}, text = "", namespace = "http://www.w3.org/1999/xhtml") {
  const made = set(document.createElementNS(namespace, tag), attributes);
  made.textContent = text;
  return made;
}

const svg = (tag, attributes, text) => node(tag, attributes, text, "http://www.w3.org/2000/svg");

/** Gives ``parent`` the ``wanted`` children in their order and moves only those that are elsewhere: moving blurs. */
function arrange(parent, wanted) {
  const kept = new Set(wanted);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  wanted.forEach((child, i) => parent.children[i] === child || parent.insertBefore(child, parent.children[i] ?? null));
}

/** Fills a table's body with rows of texts; the first of each heads its row. Rows are used again by their place. */
function fillTable(body, rows) {
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((texts, i) => fillRow(body.rows[i] ?? body.insertRow(), texts));
}

function fillRow(row, texts) {
  texts.forEach((text, i) => {
    if (!row.cells[i]) row.append(i ? node("td") : node("th", { scope: "row" }));
    write(row.cells[i], text);
  });
}

/** A bar of ``share`` (0 to 1) of its track. */
function fillBar(bar, share) {
  bar.style.inlineSize = `${(Math.min(1, Math.max(0, share || 0)) * 100).toFixed(1)}%`;
}

/** Says something to a screen reader, once, without a place on the page. */
function announce(text) {
  byId("announcer").textContent = text;
}

// --- charts

const widths = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) target.plot?.resized(contentRect.width);
});

/** 1, 2 or 5 times a power of ten, not below ``n``. */
function niceCeiling(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return power * [1, 2, 5, 10].find((step) => n <= step * power * (1 + 1e-9));
}

/** The same in the unit that ``bytes`` writes. */
function niceBytes(n) {
  const unit = 1024 ** bytePower(n);
  return unit * niceCeiling(n / unit);
}

/** Sets the sizes of a chart whose lines have these labels. */
function measure(labels) {
  const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
  CHARACTER = 7.2 * scale;
  [HEIGHT, TOP, RIGHT, BOTTOM] = [132 * scale, 8 * scale, 8 * scale, 20 * scale];
  LEFT = Math.max(32 * scale, CHARACTER * Math.max(...labels.map((label) => label.length)) + 10);
  INNER = HEIGHT - TOP - BOTTOM;
}

/** What all charts share: the frame, its size, and a tooltip that follows the pointer and the arrow keys. */
class Plot {
  constructor(spec, cacheName) {
    this.spec = spec;
    this.nothing = spec.nothing;
    this.width = 0;
    this.pointed = null; // the key of the point whose tooltip is shown
    this.figure = stamp("chart");
    this.figure.dataset.chart = spec.key;
    for (const name of ["title", "legend", "plot", "svg", "tooltip", "details", "box", "caption"]) {
      this[name] = part(this.figure, name);
    }
    write(this.title, spec.heading ?? spec.title);
    write(part(this.figure, "table-of"), ` of ${spec.title.toLowerCase()}`);
    write(this.caption, `${spec.title}, ${cacheName}`);
    set(this.box, { "aria-label": `${spec.title}, ${cacheName}, table` });
    fillRow(this.figure.querySelector("thead tr"), spec.columns);
    for (const cell of this.figure.querySelectorAll("thead tr > *")) set(cell, { scope: "col" });
    this.details.addEventListener("toggle", () => this.fillTable());
    this.listen();
    this.plot.plot = this;
    widths.observe(this.plot);
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => {
      this.point(this.nearest(event.clientX - this.svg.getBoundingClientRect().left));
    });
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.walk(event));
  }

  /** Arrow keys go from point to point; what they point at is announced, because the listener asked for it. */
  walk(event) {
    const keys = this.points();
    const at = keys.indexOf(this.pointed);
    const last = keys.length - 1;
    const goal = { ArrowLeft: at < 0 ? last : Math.max(0, at - 1), ArrowRight: at < 0 ? last : Math.min(last, at + 1),
      Home: 0, End: last, Escape: -1 }[event.key];
    if (goal === undefined || last < 0) return;
    event.preventDefault();
    this.point(goal < 0 ? null : keys[goal]);
    if (goal >= 0) announce(this.describe(keys[goal]).join(", "));
  }

  resized(width) {
    this.width = Math.floor(width);
    this.draw();
  }

  draw() {
    if (this.width < 80) return;
    measure(this.labels());
    set(this.svg, { viewBox: `0 0 ${this.width} ${HEIGHT.toFixed(1)}` });
    this.inner = this.width - LEFT - RIGHT;
    this.paint();
    this.point(this.points().includes(this.pointed) ? this.pointed : null);
  }

  point(key) {
    this.pointed = key;
    this.tooltip.hidden = key === null;
    this.mark?.setAttribute("visibility", key === null ? "hidden" : "visible");
    if (key === null || !this.mark) return;
    const x = this.x(key);
    set(this.mark, { x1: x, x2: x });
    write(this.tooltip, this.describe(key).join("\n"));
    const half = this.tooltip.offsetWidth / 2;
    const left = Math.min(this.width - half * 2, Math.max(0, x - half));
    this.tooltip.style.transform = `translateX(${left.toFixed(0)}px)`;
  }

  /** What stands at the lines: the longest says how much room the chart leaves for them. */
  labels() {
    const { top, floor, format } = this.scale();
    return [0, 0.5, 1].map((share) => format(floor + (top - floor) * share));
  }

  fillTable() {
    if (this.details.open) fillTable(this.figure.querySelector("tbody"), this.rows());
  }

  /** The horizontal lines with their values, at the bottom, the middle and the top. */
  levels() {
    return this.labels().flatMap((label, i) => {
      const y = TOP + INNER * (1 - i / 2);
      const text = { x: LEFT - 6, y: y + CHARACTER * 0.55, "text-anchor": "end" };
      return [this.across("grid", y), svg("text", text, label)];
    });
  }

  across(kind, y) {
    return svg("line", { class: kind, x1: LEFT, x2: LEFT + this.inner, y1: y, y2: y });
  }

  /** Puts the chart into place, with the line that marks the point; or with words where there is nothing to draw. */
  put(drawn, empty) {
    const middle = { class: "nothing", x: LEFT + this.inner / 2, y: TOP + INNER / 2 + 4, "text-anchor": "middle" };
    if (empty) drawn.push(svg("text", middle, this.nothing));
    this.mark = svg("line", { class: "cursor", y1: TOP, y2: TOP + INNER, visibility: "hidden" });
    this.svg.replaceChildren(...drawn, this.mark);
  }
}

/** A run of one point becomes a line of no length, which round caps turn into a dot. */
const line = (runs) => runs.map((run) => `M${(run.length > 1 ? run : [...run, ...run]).join("L")}`).join("");
const area = (runs, floor) => runs.map((run) => `M${run[0][0]},${floor}L${run.join("L")}V${floor}Z`).join("");

/** One or two series over time. A step without a value, or without a point, is a gap in the line. */
class TimeChart extends Plot {
  constructor(spec, cacheName) {
    super({ ...spec, columns: ["Time", ...spec.series.map((series) => series.label)] }, cacheName);
    this.history = { at: [] };
    this.span = node("span", { class: "span" });
    this.keys = spec.series.map((_, i) => node("span", { class: `key series-${i}` }));
    this.legend.append(this.span, ...this.keys);
  }

  show({ history, total }, now) {
    this.history = history;
    this.limit = total[this.spec.limit];
    // After a start or a reset no step is over yet.
    const isEarly = !history.at.length && total.requests > 0;
    this.nothing = isEarly ? `The first ${duration(history.step)} are not over yet` : this.spec.nothing;
    this.end = now;
    const span = chosenSpan();
    this.start = Math.max(now - span, Math.min(history.at[0] ?? now, now - SHORTEST));
    this.say();
    this.draw();
    this.fillTable();
  }

  values(series) {
    return this.history[series.field] ?? [];
  }

  /** Whether a series is drawn: one that is optional, only if it has anything but zeros. */
  isDrawn(series) {
    return !series.optional || this.values(series).some(Boolean);
  }

  /** Those that the axis spans. */
  inView(series) {
    return this.values(series).filter((value, i) => value !== null && value !== undefined && this.history.at[i] >= this.start);
  }

  /** The gist, for readers that do not see the line, and the values now, for those that do. */
  say() {
    const { title, format } = this.spec;
    const series = this.spec.series.filter((one) => this.isDrawn(one));
    this.spec.series.forEach((one, i) => { this.keys[i].hidden = !this.isDrawn(one); });
    // What no worker has added to for a while is no figure of now.
    const isNow = this.end - (this.history.at.at(-1) ?? 0) <= FRESH * this.history.step;
    write(this.span, isNow ? `last ${duration(this.history.step)}:` : "");
    const said = series.map((one, i) => {
      const known = this.inView(one);
      const latest = isNow ? unless(this.values(one).at(-1), format) : NOTHING;
      write(this.keys[i], this.named(i, latest));
      if (!known.length) return this.named(i, "nothing yet");
      const [least, most] = [Math.min(...known), Math.max(...known)].map(format);
      const range = least === most ? `always ${most}` : `between ${least} and ${most}`;
      return this.named(i, `${range}, last ${duration(this.history.step)} ${latest === NOTHING ? "nothing" : latest}`);
    });
    const { at } = this.history;
    const shown = this.end - Math.max(this.start, at[0] ?? 0);
    const span = at.length ? `, last ${shown > 7200 ? duration(shown) : plural(Math.ceil(shown / 60), "minute")}` : "";
    set(this.svg, { "aria-label": `${title}${span}: ${said.join("; ")}` });
  }

  /** With the label of its series, where there is more than one. */
  named(i, text) {
    return this.spec.series.filter((one) => this.isDrawn(one)).length > 1 ? `${this.spec.series[i].label} ${text}` : text;
  }

  points() {
    return this.history.at;
  }

  x(at) {
    return LEFT + (this.inner * (at - this.start)) / (this.end - this.start);
  }

  nearest(x) {
    const away = (at) => Math.abs(this.x(at) - x);
    return this.history.at.reduce((best, at) => (best !== null && away(best) <= away(at) ? best : at), null);
  }

  /** The time of a step and its values. */
  row(i) {
    const values = this.spec.series.map((one) => unless(this.values(one)[i], this.spec.format));
    return [clock(this.history.at[i]), ...values];
  }

  describe(at) {
    const place = this.history.at.indexOf(at);
    const [time, ...values] = this.row(place);
    const began = this.history.started?.[place];
    const news = began ? [`${plural(began, "worker")} began`] : [];
    const drawn = values.map((value, i) => this.named(i, value)).filter((_, i) => this.isDrawn(this.spec.series[i]));
    return [time, ...drawn, ...news];
  }

  paint() {
    const series = this.spec.series.filter((one) => this.isDrawn(one));
    const { known, limit, top, floor } = this.scale();
    const y = (value) => TOP + INNER * (1 - (value - floor) / (top - floor));
    const drawn = [...this.levels(), ...this.hours(), ...this.began()];
    series.forEach((one, i) => {
      const runs = this.runs(this.values(one), y);
      if (series.length === 1) drawn.push(svg("path", { class: "area", d: area(runs, y(floor)) }));
      drawn.push(svg("path", { class: `line series-${i}`, d: line(runs) }));
      for (const [[cx, cy]] of runs.filter((run) => run.length === 1)) {
        drawn.push(svg("circle", { class: `point series-${i}`, cx, cy, r: 2.5 }));
      }
    });
    if (limit) drawn.push(this.across("limit", y(limit)), svg("text", { x: LEFT + 4, y: y(limit) + 13 }, "Capacity"));
    this.put(drawn, !known.length);
  }

  /** A mark where workers began: a deployment, or one that was recycled. */
  began() {
    const { at, started } = this.history;
    return at.flatMap((time, i) => (started?.[i] && time >= this.start ? [time] : [])).map((time) => {
      const x = this.x(time);
      return svg("line", { class: "began", x1: x, x2: x, y1: TOP, y2: TOP + INNER });
    });
  }

  /** The values from bottom to top. A ratio near its ceiling is drawn as if through a lens: 99.7% beside 97%. */
  scale() {
    const { series, axis, ceiling, ceilingOf = niceCeiling, lenses = [] } = this.spec;
    const known = series.filter((one) => this.isDrawn(one)).flatMap((one) => this.inView(one));
    const most = known.reduce((a, b) => Math.max(a, b), 0);
    const least = known.reduce((a, b) => Math.min(a, b), Infinity);
    const limit = this.limit <= most * 2.5 ? this.limit : null; // null: none, or far above the line
    const top = ceiling ?? ceilingOf(Math.max(most, limit ?? 0));
    const floor = known.length ? lenses.find((lens) => lens <= least) ?? 0 : 0;
    return { known, limit, top, floor, format: axis };
  }

  /** The runs of steps that follow each other and have values, as lists of [x, y]. */
  runs(values, y) {
    const runs = [];
    let before = null;
    this.history.at.forEach((at, i) => {
      if (values[i] === null || values[i] === undefined || at < this.start) return;
      if (before === null || at - before > GAP * this.history.step) runs.push([]);
      runs.at(-1).push([this.x(at).toFixed(1), y(values[i]).toFixed(1)]);
      before = at;
    });
    return runs;
  }

  /** At most four marks at round minutes of the viewer's clock. */
  hours() {
    const span = (this.end - this.start) / 60;
    const every = 60 * ([1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240].find((step) => span / step <= (this.inner < 260 ? 3 : 4)) ?? 360);
    const offset = new Date(this.end * 1000).getTimezoneOffset() * 60;
    const marks = [];
    for (let at = Math.ceil((this.start - offset) / every) * every + offset; at <= this.end; at += every) {
      const x = this.x(at);
      const half = 2.5 * CHARACTER; // of a label
      const inside = Math.min(LEFT + this.inner - half, Math.max(LEFT + half, x));
      marks.push(svg("line", { class: "grid", x1: x, x2: x, y1: TOP + INNER, y2: TOP + INNER + 4 }),
        svg("text", { x: inside, y: HEIGHT - 3, "text-anchor": "middle" }, minutes.format(new Date(at * 1000))));
    }
    return marks;
  }

  /** The newest first, thinned out to the last step of each whole span, so that rows do not change as time goes by. */
  rows() {
    const { at, step } = this.history;
    const span = step * Math.ceil(Math.max(1, (at.at(-1) - at[0]) / step / TABLE_ROWS));
    const kept = [...at.keys()].filter((i) => Math.floor(at[i] / span) !== Math.floor(at[i + 1] / span));
    return kept.reverse().slice(0, TABLE_ROWS).map((i) => this.row(i));
  }
}

/** Taken as even inside its bucket, as Prometheus' histogram_quantile does; beyond the outer bounds it is unknown. */
function percentile({ bounds, counts }, share) {
  const sum = counts.reduce((a, b) => a + b, 0);
  if (!sum) return NOTHING;
  let left = sum * share;
  for (const [i, high] of bounds.entries()) {
    const low = bounds[i - 1] ?? 0;
    const estimate = low + (high - low) * (left / counts[i]);
    if (left <= counts[i] && !i) return `<${milliseconds(high * 1000)}`;
    if (left <= counts[i]) return `≈${milliseconds(Number((estimate * 1000).toPrecision(2)))}`;
    left -= counts[i];
  }
  return `>${milliseconds(bounds.at(-1) * 1000)}`;
}

/** How long loads took, as bars of buckets, with estimates of three percentiles. */
class Histogram extends Plot {
  constructor(spec, cacheName) {
    super({ ...spec, columns: ["Load time", "Loads", "Share"] }, cacheName);
    this.show({ bounds: [], counts: [] });
  }

  show({ bounds, counts }) {
    Object.assign(this, { bounds, counts, sum: counts.reduce((a, b) => a + b, 0) });
    const percentiles = [50, 90, 99].map((p) => `p${p} ${this.percentile(p / 100)}`);
    write(this.legend, percentiles.join("  "));
    const gist = this.sum ? `estimated ${percentiles.join(", ")}` : "nothing yet";
    set(this.svg, { "aria-label": `${this.spec.title} of ${plural(this.sum, "load")}: ${gist}` });
    this.draw();
    this.fillTable();
  }

  percentile(share) {
    return percentile(this, share);
  }

  bound(i) {
    return milliseconds(this.bounds[i] * 1000);
  }

  bucket(i) {
    if (i === this.bounds.length) return `over ${this.bound(i - 1)}`;
    return i ? `${this.bound(i - 1)} – ${this.bound(i)}` : `up to ${this.bound(0)}`;
  }

  points() {
    return this.counts.map((_, i) => i);
  }

  x(i) {
    return LEFT + (this.inner / this.counts.length) * (i + 0.5);
  }

  nearest(x) {
    const i = Math.floor((x - LEFT) / (this.inner / this.counts.length));
    return this.counts.length ? Math.min(this.counts.length - 1, Math.max(0, i)) : null;
  }

  share(i) {
    return this.sum ? this.counts[i] / this.sum : 0;
  }

  describe(i) {
    return [this.bucket(i), plural(this.counts[i], "load"), percent(this.share(i))];
  }

  rows() {
    return this.counts.map((n, i) => [this.bucket(i), count(n), percent(this.share(i))]);
  }

  scale() {
    return { top: niceCeiling(Math.max(0, ...this.counts)), floor: 0, format: compact };
  }

  paint() {
    const { top } = this.scale();
    const band = this.inner / this.counts.length;
    const drawn = this.levels();
    this.counts.forEach((n, i) => {
      const height = n ? Math.max(1.5, (INNER * n) / top) : 0;
      drawn.push(svg("rect", { class: "bucket", x: LEFT + band * i + 1, y: TOP + INNER - height,
        width: Math.max(1, band - 2), height }));
    });
    this.bounds.forEach((bound, i) => { // a bound stands between two bars; only 1, 10, 100 ms and so on have room
      if (Math.log10(bound) % 1) return;
      const text = { x: LEFT + band * (i + 1), y: HEIGHT - 3, "text-anchor": "middle" };
      drawn.push(svg("text", text, this.bound(i)));
    });
    this.put(drawn, !this.sum);
  }
}

const TIME_CHARTS = [
  { key: "hit_ratio", title: "Hit ratio", format: percent, axis: (n) => `${threeDigits.format(n * 100)}%`, ceiling: 1,
    lenses: [0.99, 0.9, 0.5],
    nothing: "No look-ups", series: [{ field: "hit_ratio", label: "Hit ratio" }, { field: "stale_ratio", label: "Stale", optional: true }] },
  { key: "requests", title: "Look-ups per second", heading: "Look-ups/s", format: rate, axis: compact,
    nothing: "No look-ups", series: [{ field: "requests_per_second", label: "All" },
      { field: "misses_per_second", label: "Misses" }, { field: "stale_per_second", label: "Stale", optional: true }] },
  { key: "entries", title: "Entries", format: count, axis: compact, limit: "max_entries", nothing: "Nothing yet",
    series: [{ field: "entries", label: "Entries" }] },
  { key: "memory", title: "Memory", format: bytes, axis: bytes, ceilingOf: niceBytes, limit: "max_bytes", nothing: "Nothing yet",
    series: [{ field: "bytes", label: "Memory" }] },
  { key: "removals", title: "Removals per second", heading: "Removals/s", format: rate, axis: compact,
    nothing: "Nothing yet", series: [{ field: "evictions_per_second", label: "Evicted" },
      { field: "expirations_per_second", label: "Expired" }] },
  { key: "load_ms", title: "Mean load time", format: milliseconds, axis: milliseconds, nothing: "No miss was followed by a set",
    series: [{ field: "load_ms", label: "Mean load time" }] },
  { key: "store_ms", title: "Mean time of a call of the store", heading: "Store, mean time", format: milliseconds,
    axis: milliseconds, nothing: "No calls", series: [{ field: "store_read_ms", label: "Reads" },
      { field: "store_write_ms", label: "Writes" }] },
];

// --- cards

/** One cache's part of the page. */
class Card {
  constructor(name, place, { open }) {
    this.name = name;
    this.chosen = null; // whether the reader opened or closed it
    this.first = open; // whether it began open: what it shows came with the first answer
    this.root = stamp("card");
    this.root.id = `cache-${place}`;
    this.root.dataset.cache = name;
    this.figures = new Map([...this.root.querySelectorAll("[data-figure]")].map((at) => [at.dataset.figure, at]));
    this.toggle = part(this.root, "name");
    this.body = part(this.root, "body");
    this.gist = part(this.root, "gist");
    this.body.id = `body-${place}`;
    set(this.toggle, { "aria-controls": this.body.id });
    write(this.toggle, name);
    this.toggle.addEventListener("click", () => this.choose(this.body.hidden));
    set(this.root, { "aria-label": name });
    set(this.root.querySelector(".workers .scroll"), { "aria-label": `Workers of ${name}` });
    this.clear = this.root.querySelector('[data-action="clear"]');
    set(this.clear, { "aria-label": `Clear ${name}` });
    this.clear.hidden = !config.may_operate;
    this.clear.addEventListener("click", () => clearCache(this));
    this.charts = TIME_CHARTS.map((spec) => new TimeChart(spec, name));
    this.histogram = new Histogram({ key: "load_buckets", title: "Load times, last hour", heading: "Load times, 1 h", nothing: "No miss was followed by a set" }, name);
    part(this.root, "charts").append(...[...this.charts, this.histogram].map((chart) => chart.figure));
    this.settings = part(this.root, "settings");
    set(this.settings.querySelector(".scroll"), { "aria-label": `Settings of ${name}` });
    this.save = this.root.querySelector('[data-action="save"]');
    set(this.save, { "aria-label": `Save ${name} now` });
    this.save.addEventListener("click", () => post(this.save, config.save, { cache: name }));
    this.workers = part(this.root, "workers");
    this.rows = new Map();
    this.heads = [...this.workers.querySelectorAll("thead th")];
    this.order = null; // the column that the reader chose, and whether its greatest come first
    this.heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => this.sortBy(column)));
    this.link = node("a", { href: `#${this.root.id}`, "data-cache-link": name });
    this.link.addEventListener("click", () => this.choose(true));
    this.link.append(node("span", { class: "name" }, name), node("span", { class: "note" }));
    this.item = node("li");
    this.item.append(this.link);
  }

  forget() {
    for (const chart of [...this.charts, this.histogram]) widths.unobserve(chart.plot);
  }

  /** One that was never used takes a line, until the reader opens it or it is used. */
  get isOpen() {
    return this.chosen ?? (this.first && !this.isUnused);
  }

  get isUnused() {
    return !this.cache.is_used;
  }

  choose(open) {
    this.chosen = open;
    this.showState();
    if (open) refresh();
  }

  showState() {
    this.body.hidden = !this.isOpen;
    set(this.toggle, { "aria-expanded": this.isOpen });
    this.gist.hidden = this.isOpen;
  }

  /** Workers and history come only with the answers to requests that asked for them. */
  show(cache, { at, since }) {
    this.cache = cache;
    this.summary = this.isUnused ? "never used"
      : `${cache.store?.open_breakers ? "▲ store fails · " : ""}${nowRatio(cache.now)} · ${
        unless(cache.now.requests_per_second, rate)}/s`;
    write(this.link.lastChild, this.summary);
    write(this.gist, this.isUnused ? "never used"
      : `${this.summary} in the last minute · ${plural(cache.total.entries, "entry", "entries")}`);
    this.showState();
    if (!this.isOpen || !cache.workers) return;
    if (this.workers.dataset.seen !== "true") this.workers.open = cache.workers.length <= OPEN_UP_TO;
    this.workers.dataset.seen = "true";
    this.showNow(cache, since, at);
    this.showTotals(cache.total);
    this.showStore(cache);
    for (const chart of this.charts) chart.show(cache, at);
    this.charts.find((chart) => chart.spec.key === "memory").figure.hidden = cache.total.bytes === null;
    this.charts.find((chart) => chart.spec.key === "store_ms").figure.hidden = cache.store === null;
    this.histogram.show(cache.times.hour.loads);
    this.showWorkers(cache.workers, at);
    this.showSettings(cache.settings);
    this.showAbout(cache, at);
  }

  /** The greatest first, and the least at a second click. */
  sortBy(column) {
    this.order = { column, falling: this.order?.column !== column || !this.order.falling };
    this.heads.forEach((head, i) => set(head, {
      "aria-sort": i !== column ? "none" : this.order.falling ? "descending" : "ascending" }));
    this.arrangeWorkers(this.cache.workers);
  }

  arrangeWorkers(workers) {
    const { column, falling } = this.order ?? {};
    const sign = falling ? -1 : 1;
    const value = WORKER_VALUES[column] ?? (() => 0);
    const wanted = [...workers].sort((a, b) => sign * (value(a) - value(b))).map((worker) => this.rows.get(worker.pid));
    arrange(this.workers.querySelector("tbody"), wanted);
    for (const [pid, row] of this.rows) if (!wanted.includes(row)) this.rows.delete(pid);
  }

  showSettings(settings) {
    const body = this.settings.querySelector("tbody");
    fillTable(body, settings.map(([name, value, , meaning]) => [name, value, meaning]));
    settings.forEach(([, , isDefault], i) => body.rows[i].classList.toggle("set", !isDefault));
    this.settings.hidden = !settings.length;
  }

  showAbout({ cores, saved, can_save: canSave }, at) {
    this.save.hidden = !(config.may_operate && canSave);
    const age = saved === null ? "" : `last snapshot ${duration(Math.max(0, Math.round(at - saved)))} ago`;
    const core = cores.length ? `${cores.join(" and ")} core` : "";
    write(part(this.root, "about"), [core, age].filter(Boolean).join(" · "));
  }

  write(figure, text) {
    write(this.figures.get(figure), text);
  }

  showNow({ now, total }, since, at) {
    this.write("hit_ratio_now", nowRatio(now));
    this.write("hit_ratio", total.requests ? totalRatio(total) : "no look-ups");
    this.write("since", this.sinceWhen(since, at));
    this.write("requests_per_second", unless(now.requests_per_second, rate));
    this.showMeter("entries", total.entries, total.max_entries, count, false);
    this.showMeter("bytes", total.bytes, total.max_bytes, bytes, total.bytes_are_estimated);
  }

  /** The head of the page tells when all caches were reset together. */
  sinceWhen(since, at) {
    const { reset_at: reset } = this.cache;
    if (reset === null) return "since start";
    return reset === since ? "since reset" : `since reset at ${moment(reset, at)}`;
  }

  /** The bound is one of each worker: a site of three has three times as much room. */
  inWorkers(field, format) {
    const bounds = this.cache.workers.map((worker) => worker.total[field]);
    if (bounds.length < 2) return "";
    return ` in ${plural(bounds.length, "worker")}${new Set(bounds).size === 1 ? `, ${format(bounds[0])} each` : ""}`;
  }

  showMeter(name, value, most, format, isEstimate) {
    const field = `max_${name}`;
    const box = part(this.root, name);
    const meter = box.querySelector(".meter");
    box.hidden = value === null;
    meter.hidden = !most;
    if (box.hidden) return;
    this.write(name, `${isEstimate ? "≈" : ""}${format(value)}`);
    const bound = isEstimate ? "estimated from samples, no limit" : "no limit";
    this.write(`max_${name}`, most ? `of ${format(most)}${this.inWorkers(field, format)}` : bound);
    if (!most) return;
    set(meter, { "aria-label": `${name === "bytes" ? "Memory" : "Entries"} of ${this.name}`, "aria-valuemax": most,
      "aria-valuenow": value, "aria-valuetext": `${format(value)} of ${format(most)}` });
    fillBar(meter.firstElementChild, value / most);
  }

  showTotals(total) {
    this.write("requests", count(total.requests));
    for (const name of ["hits", "misses", "puts", "stale_hits", "coalesced", "loads", "load_failures", "load_timeouts",
      "refreshes", "refreshes_dropped"]) {
      this.write(name, count(total[name]));
    }
    this.write("load_seconds", duration(total.load_seconds));
    // As if each hit had been a load of the mean time.
    const loads = total.loads + total.load_failures;
    this.write("saved_seconds", loads ? `≈${duration(total.hits * total.load_seconds / loads)}` : NOTHING);
    const sum = Object.values(total.removals).reduce((a, b) => a + b, 0);
    for (const [cause, n] of Object.entries(total.removals)) {
      this.write(cause, count(n));
      fillBar(this.figures.get(cause).nextElementSibling, n / (sum || 1));
    }
    this.figures.get("evicted_bytes").parentElement.hidden = total.evicted_bytes === null;
    if (total.evicted_bytes !== null) this.write("evicted_bytes", bytes(total.evicted_bytes));
  }

  /** How the store behind does, of a cache that has copies of one. */
  showStore({ store, total, times }) {
    part(this.root, "store").hidden = store === null;
    if (store === null) return;
    const { reads, writes, breakers, open_breakers: open, trackers, trusted } = store;
    this.write("store_reads", count(reads.calls));
    for (const p of [50, 90, 99]) {
      const [minute, hour] = [times.minute, times.hour].map((span) => percentile(span.store_reads, p / 100));
      this.write(`store_p${p}`, `${minute} · ${hour}`);
    }
    this.write("store_writes", count(writes.calls));
    this.write("store_write_time", writes.calls ? milliseconds((writes.seconds * 1000) / writes.calls) : NOTHING);
    this.write("store_errors", count(reads.errors + writes.errors));
    this.write("store_refused", count(reads.refused + writes.refused));
    this.write("store_stale", count(total.stale_hits));
    const closed = breakers ? "closed" : this.cache.worker_count ? "none, without FAIL_SAFE" : NOTHING;
    this.mark("store_breaker", open, breakers, "open", closed);
    this.mark("store_tracking", trackers - trusted, trackers, "not", "yes");
    part(this.root, "tracking").hidden = !trackers;
  }

  /** A state of workers, marked where it is a ``bad`` one in some of them. */
  mark(figure, bad, workers, word, good) {
    this.write(figure, bad ? `${word} in ${count(bad)} of ${plural(workers, "worker")}` : good);
    set(this.figures.get(figure), { "data-state": bad ? "bad" : "good" });
  }

  showWorkers(workers, at) {
    const outliers = findOutliers(workers, at);
    const without = workers.filter((worker) => worker.thread === "refused").length;
    const late = Math.max(0, ...workers.map((worker) => worker.lag));
    const notes = [this.cache.is_shared ? plural(workers.length, "worker") : ALONE];
    if (without) notes.push(`${without} without a wheel thread`);
    const open = workers.filter((worker) => worker.breaker_open).length;
    if (open) notes.push(`${open} with an open breaker`);
    if (late >= 1) notes.push(`wheel up to ${duration(Math.round(late))} late`);
    if (outliers.size) notes.push(`${plural(outliers.size, "worker")} unlike the others: ${[...outliers.keys()].join(", ")}`);
    write(part(this.root, "workers-summary"), notes.join(" · "));
    for (const worker of workers) this.showWorker(worker, at, outliers.get(worker.pid) ?? new Map());
    this.arrangeWorkers(workers);
  }

  showWorker(worker, at, outliers) {
    const { pid, now, total } = worker;
    if (!this.rows.has(pid)) this.rows.set(pid, node("tr", { "data-worker": pid }));
    const row = this.rows.get(pid);
    const age = duration(Math.max(0, Math.round(at - worker.published)));
    const texts = [String(pid), moment(worker.started, at), `${age} ago`, nowRatio(now), totalRatio(total),
      unless(now.requests_per_second, rate), count(total.requests), count(total.entries), worker.thread,
      milliseconds(worker.lag * 1000)];
    fillRow(row, texts.map((text, column) => (outliers.has(column) ? `${outliers.get(column)} ${text}` : text)));
    [...row.cells].forEach((cell, column) => {
      const arrow = outliers.get(column);
      cell.toggleAttribute("data-outlier", arrow !== undefined);
      if (column) cell.title = arrow ? `Far ${arrow === "▲" ? "above" : "below"} the other workers` : "";
    });
    set(row.cells[8], { "data-thread": worker.thread });
    row.toggleAttribute("data-this", worker.is_this);
    row.toggleAttribute("data-breaker-open", worker.breaker_open);
    set(row.cells[0], { title: worker.is_this ? "The worker that answered last" : "" });
  }
}

const THREADS = ["running", "parked", "not started", "refused"];

/** What the columns of the workers are sorted by. */
const WORKER_VALUES = [
  (worker) => worker.pid,
  (worker) => worker.started,
  (worker) => -worker.published,
  ({ now }) => (now.requests_per_second ? now.hit_ratio ?? -1 : -1),
  ({ total }) => total.hit_ratio ?? -1,
  ({ now }) => now.requests_per_second ?? -1,
  ({ total }) => total.requests,
  ({ total }) => total.entries,
  (worker) => THREADS.indexOf(worker.thread),
  (worker) => worker.lag,
];

/** How far from the median of all workers a figure may be, by its column: ratios, a second, entries, seconds. */
const ORDINARY = new Map([[3, () => 0.1], [5, (median) => Math.max(1, median / 2)],
  [7, (median) => Math.max(100, median / 2)], [9, () => 1]]);
const ENOUGH = 4; // workers: among fewer, none is the odd one
const SETTLED = 60; // seconds: a worker that has just begun is unlike the others
const TELLING = 0.5; // look-ups a second: a hit ratio of fewer in a minute is chance

const middle = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/**
 * The workers that are unlike the others, by pid, with "▲" or "▼" by column: further from the median than is ordinary,
 * and than four times the median of all distances, so that what spreads widely has none.
 */
function findOutliers(workers, at) {
  const found = new Map();
  const settled = workers.filter((worker) => at - worker.started >= SETTLED);
  for (const [column, ordinary] of ORDINARY) {
    const telling = column === 3 ? settled.filter(({ now }) => now.requests_per_second >= TELLING) : settled;
    const values = telling.map((worker) => [worker.pid, WORKER_VALUES[column](worker)]).filter(([, value]) => value >= 0);
    if (values.length < ENOUGH) continue;
    const median = middle(values.map(([, value]) => value));
    const most = Math.max(ordinary(median), 4 * middle(values.map(([, value]) => Math.abs(value - median))));
    for (const [pid, value] of values) {
      if (Math.abs(value - median) <= most) continue;
      if (!found.has(pid)) found.set(pid, new Map());
      found.get(pid).set(column, value > median ? "▲" : "▼");
    }
  }
  return found;
}

const nowRatio = (now) => (now.requests_per_second ? unless(now.hit_ratio, percent) : NOTHING);
const totalRatio = (total) => (total.requests ? percent(total.hit_ratio) : NOTHING);

// --- events

const KINDS = { cleared: "Cleared", reset: "Figures reset", save: "Save asked for", load: "Load asked for",
  "load failed": "Load failed", started: "Started", exited: "Exited", killed: "Ended abruptly" };
const OF_ALL = new Set(["cleared", "reset"]); // if no cache is named
const SPAN_WORTH_TELLING = 60; // seconds

/** What happened lately, newest first; opened by the reader. */
function showEvents({ events, at }) {
  const rows = events.map((event) => {
    const since = event.at - event.since > SPAN_WORTH_TELLING ? ` since ${moment(event.since, at)}` : "";
    const cache = event.cache ?? (OF_ALL.has(event.kind) ? "all" : "");
    return [moment(event.at, at), KINDS[event.kind] ?? event.kind, cache, event.text + since];
  });
  const body = byId("events").querySelector("tbody");
  fillTable(body, rows);
  events.forEach((event, i) => set(body.rows[i].cells[1], { "data-kind": event.kind }));
  byId("events-none").hidden = rows.length > 0;
  byId("events-table").hidden = rows.length === 0;
  write(byId("events-gist"), rows.length ? rows[0].slice(0, 3).filter(Boolean).join(" · ") : "");
}

// --- the server

/** What went wrong, in words for the reader of the page. */
class Failure extends Error {
  constructor(message, { login = false } = {}) {
    super(message);
    this.login = login;
  }
}

/** The JSON at ``url``. A redirect is not followed: it leads to a login page, which is no answer. */
async function ask(url, options = {}) {
  let response;
  try {
    const signal = AbortSignal.timeout(ANSWER_WITHIN * 1000);
    response = await fetch(url, { ...options, redirect: "manual", cache: "no-store", signal,
      headers: { Accept: "application/json", ...options.headers } });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Failure(late ? `no answer within ${ANSWER_WITHIN} s` : "the server cannot be reached");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  if (response.type === "opaqueredirect" || [401, 403].includes(response.status)) {
    throw new Failure(answer?.error ?? "you have to log in again", { login: true });
  }
  const status = response.ok ? "the answer was not JSON" : `the server answered ${response.status}`;
  throw new Failure(answer?.error ?? status);
}

const cards = new Map();
let placesGiven = 0;
const poll = { timer: 0, asking: false, again: false, refresh: 3, failures: 0, received: 0, problem: null };

/** Asks for the figures, shows them or says why not, and arranges the next time. A hidden page asks nothing. */
async function refresh() {
  clearTimeout(poll.timer);
  if (document.hidden) return;
  if (poll.asking) {
    poll.again = true; // a card was opened meanwhile
    return;
  }
  poll.asking = true;
  poll.again = false;
  try {
    show(await ask(config.figures + details()));
    fresh();
  } catch (error) {
    if (!(error instanceof Failure)) console.error(error);
    old(error instanceof Failure ? error : new Failure("this page could not show them"));
  }
  poll.asking = false;
  const wait = Math.min(Math.max(LONGEST_WAIT, poll.refresh), poll.refresh * 2 ** poll.failures);
  clearTimeout(poll.timer);
  poll.timer = setTimeout(refresh, poll.again ? 0 : wait * 1000);
}

/** Which caches are open: workers and history are sent of those. At first the server decides. */
function details() {
  const asked = cards.size ? [["details", ""]] : [];
  for (const card of cards.values()) if (card.isOpen) asked.push(["details", card.name]);
  if (chosenSpan() > 3600) asked.push(["span", "day"]);
  return asked.length ? `?${new URLSearchParams(asked)}` : "";
}

/** Seconds that the charts are to show. */
function chosenSpan() {
  return Number(byId("span").value);
}

const ORDERS = {
  name: () => 0,
  hit_ratio: (a, b) => (a.now.hit_ratio ?? 2) - (b.now.hit_ratio ?? 2),
  rate: (a, b) => b.now.requests_per_second - a.now.requests_per_second,
  entries: (a, b) => b.total.entries - a.total.entries,
};

/** The cards that the filter lets through, in the order that the reader chose; by name among equals. */
function chosenCards(caches) {
  const wanted = byId("filter").value.trim().toLowerCase();
  const order = ORDERS[byId("sort").value];
  const found = caches.filter((cache) => cache.name.toLowerCase().includes(wanted)).sort(order);
  byId("tools").hidden = caches.length <= FEW;
  write(byId("matches"), wanted ? `${found.length} of ${plural(caches.length, "cache")}` : plural(caches.length, "cache"));
  return found.map((cache) => cards.get(cache.name));
}

function show(figures) {
  poll.figures = figures;
  poll.refresh = Math.max(1, figures.refresh);
  for (const cache of figures.caches) {
    if (!cards.has(cache.name)) {
      placesGiven += 1;
      cards.set(cache.name, new Card(cache.name, placesGiven, { open: cache.workers !== undefined }));
    }
  }
  figures.caches.forEach((cache) => cards.get(cache.name).show(cache, figures));
  const shown = chosenCards(figures.caches);
  arrange(byId("caches"), shown.map((card) => card.root));
  arrange(byId("overview").querySelector("ul"), shown.map((card) => card.item));
  for (const [name, card] of cards) {
    if (figures.caches.some((cache) => cache.name === name)) continue;
    card.forget();
    cards.delete(name);
  }
  byId("overview").hidden = figures.caches.length < 2;
  byId("empty").hidden = figures.caches.length > 0;
  byId("reset").hidden = !(config.may_operate && figures.can_reset);
  showEvents(figures);
  write(byId("title"), figures.title);
  write(byId("updated-line"), `Updated ${clock(figures.at)} by worker ${figures.this_worker}`);
  const first = Math.min(...figures.caches.map((cache) => cache.since ?? Infinity));
  const start = Number.isFinite(first) ? `, ${moment(first, figures.at)}` : "";
  const since = figures.since === null ? `start${start}` : `reset at ${moment(figures.since, figures.at)}`;
  write(byId("since"), `Counted since ${since}`);
}

function fresh() {
  if (poll.problem) announce("The figures are up to date again.");
  Object.assign(poll, { failures: 0, received: performance.now(), problem: null });
  document.body.dataset.state = "fresh";
  byId("banner").hidden = true;
}

function old(failure) {
  poll.failures += 1;
  const news = poll.problem?.message !== failure.message;
  poll.problem = failure;
  document.body.dataset.state = failure.login ? "login" : "old";
  byId("login").hidden = !failure.login;
  byId("retry").hidden = failure.login;
  showAge();
  byId("banner").hidden = false;
  if (news) announce(byId("banner-text").textContent);
}

/** The banner counts the seconds but is no live region: the announcer says it once. */
function showAge() {
  if (!poll.problem) return;
  const age = Math.round((performance.now() - poll.received) / 1000);
  const what = poll.received ? `Figures are ${age < 120 ? `${age} s` : duration(age)} old` : "No figures yet";
  const of = poll.figures ? `, of ${clock(poll.figures.at)}` : "";
  write(byId("banner-text"), `${what}${poll.received ? of : ""}: ${poll.problem.message}.`);
}

// --- actions

/** Whether the reader says yes. Escape and Cancel say no; the browser gives the focus back to the button. */
function confirmed(heading, text, verb) {
  const dialog = byId("confirm");
  write(byId("confirm-heading"), heading);
  write(byId("confirm-text"), text);
  write(byId("confirm-yes"), verb);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Posts, and says what came of it. The button is not disabled meanwhile, which would lose the focus. */
async function post(button, url, fields) {
  if (button.ariaBusy === "true") return;
  button.ariaBusy = "true";
  try {
    const headers = { [config.token_header]: config.token };
    const { message } = await ask(url, { method: "POST", headers, body: new URLSearchParams(fields) });
    say(message, "done");
    refresh();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    say(`That did not work: ${error.message}`, "failed");
  } finally {
    button.ariaBusy = "false";
  }
}

/** The toast stays in the tree while it is empty: a live region that appears with its text may not be read. */
function say(text, kind) {
  clearTimeout(poll.toast);
  if (text && kind === "done") poll.toast = setTimeout(() => say("", ""), TOAST * 1000);
  byId("toast").dataset.kind = kind;
  byId("dismiss").hidden = !text;
  byId("message").textContent = text;
}

async function clearCache(card) {
  const { name, clear_effect: effect, total } = card.cache;
  const text = `${plural(total.entries, "entry", "entries")} will be removed. ${effect}`;
  if (await confirmed(`Clear “${name}”?`, text, "Clear")) post(card.clear, config.clear, { cache: name });
}

async function resetFigures() {
  const text = "The figures on this page start from zero, for everybody who looks at it. "
    + "Metrics for Prometheus are not touched.";
  if (await confirmed("Reset figures?", text, "Reset figures")) post(byId("reset"), config.reset, {});
}

for (const id of ["filter", "sort"]) byId(id).addEventListener("input", () => show(poll.figures));
byId("span").addEventListener("input", refresh);
byId("reset").addEventListener("click", resetFigures);
byId("confirm-no").addEventListener("click", () => byId("confirm").close("no"));
byId("confirm-yes").addEventListener("click", () => byId("confirm").close("yes"));
byId("retry").addEventListener("click", refresh);
byId("dismiss").addEventListener("click", () => say("", ""));
document.addEventListener("visibilitychange", refresh);
window.addEventListener("online", refresh);
setInterval(showAge, 1000);
refresh();
