/** All figures of one cache: the present state, charts, totals, the store behind it, workers and settings. */

import { Charts } from "./charts.js";
import { Inspection } from "./inspection.js";
import { SortedTable, arrange, fillBar, fillRow, fillTable, node, part, set, stamp, write } from "./nodes.js";
import { NOTHING, bytes, count, duration, milliseconds, moment, percent, percentile, plural, rate, threeDigits,
  unless } from "./words.js";

const OPEN_UP_TO = 8; // workers; a longer table starts closed
const ALONE = "Each worker shows only itself, because figures are not shared: another worker may answer next";
const COUNTS = ["requests", "hits", "misses", "puts", "stale_hits", "coalesced", "loads", "load_failures", "load_timeouts",
  "refreshes", "refreshes_dropped"];
const ZEROS = new Set(["0", "0 s", "0 B", NOTHING, `${NOTHING} · ${NOTHING}`]);
const REHEARSED = ["visits", "hits", "compared", "wrong", "outdated", "noise", "unclear"];
const THREADS = ["running", "parked", "not started", "refused"];

const ratioNow = (now) => (now.requests_per_second ? unless(now.hit_ratio, percent) : NOTHING);
const totalRatio = (total) => (total.requests ? percent(total.hit_ratio) : NOTHING);

/** The numbers by which the columns of the workers are sorted. */
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

const groupName = ({ name }) => name || "other";

/** Returns the most frequent cause of a group's misses with its share, or nothing. */
function mainCause({ misses_by_cause: causes, misses }) {
  const [[cause, number]] = Object.entries(causes).sort(([, one], [, other]) => other - one);
  return number ? `${cause} ${percent(number / misses)}` : "";
}

/** The numbers and texts by which the columns of the groups are sorted. */
const GROUP_VALUES = [groupName, (group) => group.requests, (group) => group.hit_ratio ?? -1, mainCause,
  (group) => group.loads, (group) => group.load_seconds, (group) => group.hour_seconds, (group) => group.bytes ?? -1];
const TIME_COMPUTING = 5; // the column by which groups are sorted at first

/** The ordinary distance from the median of all workers, by column: hit ratio, look-ups per second, entries, lag. */
const ORDINARY = new Map([[3, () => 0.1], [5, (median) => Math.max(1, median / 2)],
  [7, (median) => Math.max(100, median / 2)], [9, () => 1]]);
const ENOUGH = 4; // workers; among fewer, there are no outliers
const SETTLED = 60; // seconds; a worker that has just started differs from the others
const MANY = 0.5; // look-ups a second; with fewer, the hit ratio of a minute is not significant

const medianOf = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/**
 * Returns the outliers among the workers by pid, with "▲" or "▼" by column. The distance of an outlier from the median
 * is above the ordinary one, and above four times the median distance, so that a widely spread figure has no outliers.
 */
function findOutliers(workers, at) {
  const found = new Map();
  const settled = workers.filter((worker) => at - worker.started >= SETTLED);
  for (const [column, ordinary] of ORDINARY) {
    const busy = column === 3 ? settled.filter(({ now }) => now.requests_per_second >= MANY) : settled;
    const values = busy.map((worker) => [worker.pid, WORKER_VALUES[column](worker)]).filter(([, value]) => value >= 0);
    if (values.length < ENOUGH) continue;
    const median = medianOf(values.map(([, value]) => value));
    const most = Math.max(ordinary(median), 4 * medianOf(values.map(([, value]) => Math.abs(value - median))));
    for (const [pid, value] of values) {
      if (Math.abs(value - median) <= most) continue;
      if (!found.has(pid)) found.set(pid, new Map());
      found.get(pid).set(column, value > median ? "▲" : "▼");
    }
  }
  return found;
}

/** Lists of paths, each of which a click unfolds. Strangers choose the paths, so they are only ever texts. */
class BusiestPaths {
  constructor(root) {
    Object.assign(this, { root, lists: new Map() });
  }

  /** Shows the lists: a name, a number, a sentence, and the number of each path. Open lists stay open. */
  show(lists) {
    for (const [what, number, why, paths] of lists) {
      if (!this.lists.has(what)) this.lists.set(what, stamp("busiest"));
      const list = this.lists.get(what);
      write(part(list, "what"), what);
      write(part(list, "number"), number);
      write(part(list, "why"), why);
      write(list.querySelector("caption"), `Paths: ${what}`);
      fillTable(list.querySelector("tbody"), Object.entries(paths).map(([path, n]) => [path, count(n)]));
    }
    arrange(this.root, lists.map(([what]) => this.lists.get(what)));
  }
}

export class Details {
  /**
   * @param {string} name the name of the cache
   * @param {Object} site ``mayOperate`` and ``mayInspect``, ``reasons`` (sentences by reason), the functions ``clear``
   *   and ``purge`` of a button and the cache's figures, and ``inspect`` and ``confirmed``: see ``Inspection``
   */
  constructor(name, site) {
    this.name = name;
    this.site = site;
    this.root = stamp("card");
    this.root.dataset.cache = name;
    this.figures = new Map([...this.root.querySelectorAll("[data-figure]")].map((at) => [at.dataset.figure, at]));
    write(part(this.root, "name"), name);
    set(this.root, { "aria-label": `Details of ${name}` });
    for (const region of this.root.querySelectorAll(".scroll")) {
      set(region, { "aria-label": `${region.getAttribute("aria-label")} of ${name}` });
    }
    this.clear = this.root.querySelector("[data-action=clear]");
    set(this.clear, { "aria-label": `Clear ${name}` });
    this.clear.addEventListener("click", () => site.clear(this.clear, this.cache));
    const purge = part(this.root, "purge");
    purge.addEventListener("submit", (event) => {
      event.preventDefault();
      site.purge(purge.querySelector("button"), this.cache, purge.elements.target.value);
    });
    this.inspection = new Inspection(part(this.root, "inspection"), name, site);
    this.reasons = new BusiestPaths(part(this.root, "reasons"));
    this.full = new BusiestPaths(part(this.root, "full"));
    this.charts = new Charts(this.root, name);
    this.groups = new SortedTable(part(this.root, "groups"), GROUP_VALUES,
      (name) => node("tr", { "data-group": name }), TIME_COMPUTING);
    this.workers = part(this.root, "workers");
    this.table = new SortedTable(this.workers, WORKER_VALUES, (pid) => node("tr", { "data-worker": pid }));
  }

  forget() {
    this.charts.forget();
    this.inspection.forget();
    this.root.remove();
  }

  /** Shows the figures. Workers and history are present only in answers to requests that name the cache. */
  show(cache, { at, since, events }, span) {
    this.cache = cache;
    this.clear.hidden = !this.site.mayOperate;
    this.inspection.root.hidden = !(this.site.mayInspect && cache.can_inspect);
    part(this.root, "body").hidden = !cache.workers;
    if (!cache.workers) return;
    if (this.workers.dataset.seen !== "true") this.workers.open = cache.workers.length <= OPEN_UP_TO;
    this.workers.dataset.seen = "true";
    this.showNow(cache, since, at);
    this.showTotals(cache);
    this.showGroups(cache.groups);
    this.showCurve(cache);
    this.showStore(cache);
    this.showPages(cache);
    this.showRehearsal(cache);
    this.foldZeros();
    this.charts.show(cache, events, at, span);
    this.showWorkers(cache, at);
    this.showSettings(cache.settings);
    const age = cache.saved === null ? "" : `last snapshot ${duration(Math.max(0, Math.round(at - cache.saved)))} ago`;
    const core = cache.cores.length ? `${cache.cores.join(" and ")} core` : "";
    write(part(this.root, "about"), [core, age].filter(Boolean).join(" · "));
  }

  write(figure, text) {
    write(this.figures.get(figure), text);
  }

  showNow(cache, since, at) {
    const { now, total, times } = cache;
    const tiers = cache.store !== null;
    this.write("ratio_label", tiers ? "Either tier, last minute" : "Hit ratio, last minute");
    this.write("hit_ratio_now", tiers && now.requests_per_second ? unless(now.answered_ratio, percent) : ratioNow(now));
    const ratio = tiers ? total.answered_ratio : total.hit_ratio;
    this.write("hit_ratio", total.requests ? percent(ratio) : "no look-ups");
    this.write("since", this.sinceWhen(since, at));
    this.write("requests_per_second", unless(now.requests_per_second, rate));
    const answered = now.answered_ratio ?? now.hit_ratio;
    const shares = { here: now.hit_ratio, store: answered - now.hit_ratio, stale: now.stale_ratio,
      missed: answered === null ? 0 : 1 - answered - now.stale_ratio };
    for (const name of ["here", "store", "stale"]) fillBar(part(this.root, `band-${name}`), shares[name]);
    const named = Object.entries(shares).filter(([name, share]) => share > 1e-9 && (tiers || name !== "here"));
    this.write("shares", named.map(([name, share]) => `${percent(share)} ${name}`).join(" · "));
    this.write("load_now", percentile(times.minute.loads, 0.9));
    this.write("load_hour", `p90 · last hour ${percentile(times.hour.loads, 0.9)}`);
    part(this.root, "store-now").hidden = cache.store === null;
    this.write("store_now", percentile(times.minute.store_reads, 0.9));
    this.write("store_hour", `p90 · last hour ${percentile(times.hour.store_reads, 0.9)}`);
    this.showMeter("entries", total.entries, total.max_entries, count, false);
    this.showMeter("bytes", total.bytes, total.max_bytes, bytes, total.bytes_are_estimated);
  }

  /** Returns the start of the counts in words. The top of the page shows when all caches were reset together. */
  sinceWhen(since, at) {
    const { reset_at: reset } = this.cache;
    if (reset === null) return "since start";
    return reset === since ? "since reset" : `since reset at ${moment(reset, at)}`;
  }

  /** Returns the bound of each worker: a site of three workers has three times as much room. */
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
    this.write(field, most ? `of ${format(most)}${this.inWorkers(field, format)}` : bound);
    if (!most) return;
    set(meter, { "aria-label": `${name === "bytes" ? "Memory" : "Entries"} of ${this.name}`, "aria-valuemax": most,
      "aria-valuenow": Math.min(value, most), "aria-valuetext": `${format(value)} of ${format(most)}` });
    fillBar(meter.firstElementChild, value / most);
  }

  /** Shows the hit ratios of other sizes, if they are known. */
  showCurve({ curve }) {
    part(this.root, "curve-section").hidden = !curve.length;
    const rows = curve.map(({ size, hit_ratio: ratio, error }) => {
      const row = node("div");
      row.append(node("dt", {}, `× ${size}`), node("dd", {}, `${percent(ratio)} ± ${threeDigits(error * 100)} points`));
      return row;
    });
    part(this.root, "curve").replaceChildren(...rows);
  }

  showTotals({ total, times }) {
    for (const name of COUNTS) this.write(name, count(total[name]));
    this.write("load_seconds", duration(total.load_seconds));
    this.showTimes("load", times, "loads");
    // Assume that each hit saved a load of average duration.
    const loads = total.loads + total.load_failures;
    this.write("saved_seconds", loads ? `≈${duration(total.hits * total.load_seconds / loads)}` : NOTHING);
    this.showBars(total.removals, (cause) => cause);
    this.showBars(total.misses_by_cause, (cause) => `misses_${cause.replaceAll(" ", "_")}`);
    this.write("evicted_bytes", total.evicted_bytes === null ? NOTHING : bytes(total.evicted_bytes));
    this.figures.get("evicted_bytes").parentElement.toggleAttribute("data-absent", total.evicted_bytes === null);
  }

  /** Shows a number and a bar for each cause, in the figures that ``figureOf`` names. */
  showBars(numbers, figureOf) {
    const sum = Object.values(numbers).reduce((a, b) => a + b, 0);
    for (const [cause, n] of Object.entries(numbers)) {
      this.write(figureOf(cause), count(n));
      fillBar(this.figures.get(figureOf(cause)).nextElementSibling.firstElementChild, n / (sum || 1));
    }
  }

  /** Shows the groups of keys. Their names come from keys, and so perhaps from strangers: they are only ever texts. */
  showGroups(groups) {
    part(this.root, "groups").hidden = !groups.length;
    this.groups.show(groups.map((group) => [group.name, group]));
    for (const group of groups) {
      const row = this.groups.rows.get(group.name);
      fillRow(row, [groupName(group), count(group.requests), unless(group.hit_ratio, percent), mainCause(group) || NOTHING,
        count(group.loads), duration(group.load_seconds), duration(group.hour_seconds),
        group.bytes === null ? NOTHING : `≈${bytes(group.bytes)}`]);
      set(row.cells[0], { title: group.name ? "" : "Keys of no group, of groups beyond 64, and of the core in Python" });
    }
  }

  /** Shows the percentiles of the last minute and hour. */
  showTimes(figure, times, calls) {
    for (const p of [50, 90, 99]) {
      this.write(`${figure}_p${p}`, `${percentile(times.minute[calls], p / 100)} · ${percentile(times.hour[calls], p / 100)}`);
    }
  }

  showStore({ store, total, times }) {
    part(this.root, "store").hidden = store === null;
    if (store === null) return;
    const { breakers, open_breakers: open, trackers, trusted } = store;
    this.write("store_hits", count(store.hits));
    this.write("store_misses", count(store.misses));
    this.write("store_reads", count(store.reads));
    this.showTimes("store", times, "store_reads");
    this.write("store_writes", count(store.writes));
    this.write("store_write_time", unless(store.write_ms, milliseconds));
    this.write("store_errors", count(store.errors));
    this.write("store_refused", count(store.refused));
    this.write("store_stale", count(total.stale_hits));
    const closed = breakers ? "closed" : this.cache.worker_count ? "none, without FAIL_SAFE" : NOTHING;
    this.mark("store_breaker", open, breakers, "open", closed);
    this.mark("store_tracking", trackers - trusted, trackers, "not", "yes");
    part(this.root, "tracking").toggleAttribute("data-absent", !trackers);
  }

  showPages({ pages }) {
    part(this.root, "pages").hidden = pages === null;
    if (pages === null) return;
    part(this.root, "purge").hidden = !this.site.mayOperate;
    const { not_stored: reasons, not_stored_paths: paths, full_variants: full, bytes_sent: sent, ...counts } = pages;
    for (const [name, n] of Object.entries(counts)) this.write(`pages_${name}`, count(n));
    this.write("pages_bytes_sent", bytes(sent));
    const sorted = Object.entries(reasons).sort(([, one], [, other]) => other - one);
    this.write("pages_not_stored", count(sorted.reduce((sum, [, n]) => sum + n, 0)));
    this.write("pages_reasons", sorted.length ? "Not stored, by reason, with the paths that occur most often:" : "");
    this.reasons.show(sorted.map(([why, n]) => [why, count(n), this.site.reasons[why] ?? "", paths[why] ?? {}]));
    this.full.show(Object.entries(full).map(([field, removed]) => [`Too many values of ${field}`, "",
      "Variants of these pages were removed, because a page may have 32.", removed]));
  }

  /** Shows the results by view, and each difference and reason. Texts of pages come from strangers, too. */
  showRehearsal({ rehearsal }) {
    const root = part(this.root, "rehearsal");
    root.hidden = rehearsal === null;
    if (rehearsal === null) return;
    write(part(root, "sentence"), rehearsal.sentence);
    write(part(root, "mode"), `Mode: ${rehearsal.mode ?? "as the option rehearse says"}.`);
    fillTable(root.querySelector("tbody"), rehearsal.views.map(({ view, ...numbers }) =>
      [view, ...REHEARSED.map((name) => count(numbers[name]))]));
    const items = rehearsal.findings.map(({ sentence, details }) => {
      const item = node("li", {}, sentence);
      item.append(...details.map((text) => node("div", { class: "note" }, text)));
      return item;
    });
    const list = part(root, "findings");
    if (list.textContent !== items.map((item) => item.textContent).join("")) list.replaceChildren(...items);
  }

  /** Shows a state of the workers, marked if it is bad in some of them. */
  mark(figure, bad, workers, word, good) {
    this.write(figure, bad ? `${word} in ${count(bad)} of ${plural(workers, "worker")}` : good);
    set(this.figures.get(figure), { "data-state": bad ? "bad" : "good" });
  }

  /** Lists the names of rows with zeros in one line, instead of showing the rows. */
  foldZeros() {
    for (const list of this.root.querySelectorAll(".totals dl")) {
      const rows = [...list.querySelectorAll("div:not([data-absent], .head)")];
      const zeros = rows.filter((row) => ZEROS.has(row.children[1].textContent));
      for (const row of list.children) row.hidden = row.hasAttribute("data-absent") || zeros.includes(row);
      const names = zeros.map((row) => row.firstElementChild.textContent).filter((name) => !/^p\d/.test(name));
      write(list.nextElementSibling, names.length ? `None: ${names.join(", ").toLowerCase()}` : "");
    }
  }

  showWorkers({ workers, is_shared: isShared }, at) {
    const outliers = findOutliers(workers, at);
    const without = workers.filter((worker) => worker.thread === "refused").length;
    const late = Math.max(0, ...workers.map((worker) => worker.lag));
    const notes = [!isShared ? ALONE : workers.length ? plural(workers.length, "worker") : "No worker has this cache now"];
    if (without) notes.push(`${without} without a wheel thread`);
    const open = workers.filter((worker) => worker.breaker_open).length;
    if (open) notes.push(`${open} with an open breaker`);
    if (late >= 1) notes.push(`wheel up to ${duration(Math.round(late))} late`);
    if (outliers.size) notes.push(`${plural(outliers.size, "worker")} unlike the others: ${[...outliers.keys()].join(", ")}`);
    write(part(this.root, "workers-summary"), notes.join(" · "));
    this.table.show(workers.map((worker) => [worker.pid, worker]));
    for (const worker of workers) this.fillWorker(worker, at, outliers.get(worker.pid) ?? new Map());
  }

  fillWorker(worker, at, outliers) {
    const { pid, now, total } = worker;
    const row = this.table.rows.get(pid);
    const age = duration(Math.max(0, Math.round(at - worker.published)));
    const texts = [String(pid), moment(worker.started, at), `${age} ago`, ratioNow(now), totalRatio(total),
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

  showSettings(settings) {
    const root = part(this.root, "settings");
    const body = root.querySelector("tbody");
    fillTable(body, settings.map(([name, value, , meaning]) => [name, value, meaning]));
    settings.forEach(([, , isDefault], i) => body.rows[i].classList.toggle("set", !isDefault));
    root.hidden = !settings.length;
  }
}
