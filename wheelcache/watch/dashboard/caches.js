/** The table of all caches, with a row for each, and sparklines of the span. */

import { SortedTable, byId, node, set, svg, write } from "./nodes.js";
import { NOTHING, bytes, count, percent, plural, rate, unless } from "./words.js";

const FEW = 8; // caches; above this number, a filter is shown
const [WIDE, HIGH] = [60, 20]; // the size of a sparkline, in its own units

/** The share of its bound that a cache has reached: of its entries or bytes, whichever is closer. */
export const fullness = ({ now }) => Math.max(now.entries / (now.max_entries ?? Infinity),
  (now.bytes ?? 0) / (now.max_bytes ?? Infinity));
/** The share of look-ups that the cache, or the store behind it, answered. */
const ratioOf = ({ figures }) => figures.answered_ratio ?? figures.hit_ratio;

/** The columns: the name of the figure, the value to sort by, the text, and any sparkline in the cell. */
const COLUMNS = [
  { key: "name", value: (cache) => cache.name },
  { key: "hit_ratio", value: (cache) => ratioOf(cache) ?? -1, text: (cache) => unless(ratioOf(cache), percent),
    lines: ({ recent }) => [recent.answered_ratio, recent.stale_ratio], most: () => 1 },
  { key: "stale_ratio", value: ({ figures }) => figures.stale_ratio ?? -1,
    text: ({ figures }) => unless(figures.stale_ratio, percent), isFolded: true },
  { key: "requests", value: ({ figures }) => figures.requests_per_second ?? -1,
    text: ({ figures }) => unless(figures.requests_per_second, rate), lines: ({ recent }) => [recent.requests_per_second] },
  { key: "entries", value: ({ now }) => now.entries, text: ({ now }) => count(now.entries) },
  { key: "full", value: fullness, text: (cache) => (fullness(cache) ? percent(Math.min(1, fullness(cache))) : NOTHING) },
  { key: "memory", value: ({ now }) => now.bytes ?? -1, text: ({ now }) => (now.bytes ? bytes(now.bytes) : NOTHING),
    isFolded: true },
  { key: "evictions", value: ({ figures }) => figures.evictions_per_second ?? 0,
    text: ({ figures }) => unless(figures.evictions_per_second, rate), isFolded: true },
  { key: "failures", value: ({ figures }) => figures.load_failures, text: ({ figures }) => count(figures.load_failures),
    isFolded: true },
  { key: "store_errors", value: ({ figures }) => figures.store_errors ?? 0,
    text: ({ figures }) => unless(figures.store_errors, count), isFolded: true },
  { key: "workers", value: (cache) => cache.worker_count, text: (cache) => count(cache.worker_count) },
];

/** Returns the paths of a line, and of the band that is stacked on it. Values are drawn as shares of ``most``. */
function sparkline(lines, most) {
  const length = lines[0].length;
  const floors = Array(length).fill(0);
  return lines.flatMap((values, i) => {
    let [edge, area] = ["", ""];
    values.forEach((value, step) => {
      if (value === null) return;
      const y = (share) => (HIGH - 1 - (HIGH - 2) * Math.min(1, share / (most || 1))).toFixed(1);
      const x = (WIDE * step) / Math.max(1, length - 1);
      const isFirst = values[step - 1] === null || step === 0;
      edge += `${isFirst ? "M" : "L"}${x.toFixed(1)},${y(floors[step] + value)}`;
      // One bar for each step, so that a band may begin and end at any step without leaving a hole.
      area += `M${x.toFixed(1)},${y(floors[step])}V${y(floors[step] + value)}`;
      floors[step] += value;
    });
    if (i && !values.some(Boolean)) return [];
    return [svg("path", { class: `spark-area series-${i}`, d: area }), svg("path", { class: `spark series-${i}`, d: edge })];
  });
}

export class Overview {
  /** @param {Function} choose receives the name of the cache that the reader selects */
  constructor(choose) {
    this.root = byId("overview");
    this.choose = choose;
    this.table = new SortedTable(this.root, COLUMNS.map((column) => column.value), (name) => this.make(name));
    byId("filter").addEventListener("input", () => this.show(this.caches, this.selected));
  }

  make(name) {
    const row = node("tr", { "data-row": name });
    for (const { key, lines } of COLUMNS) {
      const cell = node(key === "name" ? "th" : "td", { "data-column": key });
      if (key === "name") {
        set(cell, { scope: "row" });
        cell.append(node("button", { type: "button", "data-cache-link": name, "aria-controls": "details" }, name));
      } else {
        if (lines) cell.append(svg("svg", { class: "sparkline", viewBox: `0 0 ${WIDE} ${HIGH}`,
          preserveAspectRatio: "none", "aria-hidden": "true" }));
        cell.append(node("span"));
      }
      row.append(cell);
    }
    row.addEventListener("click", () => this.choose(name));
    return row;
  }

  show(caches, selected) {
    Object.assign(this, { caches, selected });
    this.root.hidden = !caches.length;
    byId("tools").hidden = caches.length <= FEW;
    const wanted = byId("filter").value.trim().toLowerCase();
    const found = caches.filter((cache) => cache.name.toLowerCase().includes(wanted));
    write(byId("matches"), wanted ? `${found.length} of ${plural(caches.length, "cache")}` : plural(caches.length, "cache"));
    this.table.show(found.map((cache) => [cache.name, cache]));
    for (const cache of found) this.fill(this.table.rows.get(cache.name), cache);
    for (const { key, value, isFolded } of COLUMNS) {
      // Hide a column that has only zeros.
      this.root.toggleAttribute(`data-without-${key}`, Boolean(isFolded) && !caches.some((cache) => value(cache) > 0));
    }
  }

  fill(row, cache) {
    row.toggleAttribute("data-problem", cache.problems.length > 0);
    row.toggleAttribute("data-unused", !cache.is_used);
    const isSelected = cache.name === this.selected;
    set(row.querySelector("button"), { "aria-expanded": isSelected, title: cache.problems.join("; ") || cache.name });
    row.toggleAttribute("data-selected", isSelected);
    COLUMNS.forEach(({ text, lines, most, value }, i) => {
      const cell = row.cells[i];
      if (!text) return;
      write(cell.lastElementChild, cache.is_used || i > 3 ? text(cache) : i === 1 ? "never used" : NOTHING);
      cell.toggleAttribute("data-zero", !(value(cache) > 0));
      if (lines) {
        const values = lines(cache);
        cell.firstElementChild.replaceChildren(...sparkline(values, most?.() ?? Math.max(0, ...values[0])));
      }
    });
  }
}
