/** The table of the workers of a cache: figures of their last minute, and since their start. */

import { SortedTable, fillRow, node, part, set, write } from "./nodes.js";
import { NOTHING, count, duration, milliseconds, moment, percent, plural, rate, unless } from "./words.js";

const ALONE = "Each worker shows only itself, because figures are not shared: another worker may answer next";
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

export class Workers {
  constructor(root) {
    this.root = root;
    this.table = new SortedTable(root, WORKER_VALUES, (pid) => node("tr", { "data-worker": pid }));
  }

  show({ workers, is_shared: isShared }, at) {
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
    for (const worker of workers) this.fill(worker, at, outliers.get(worker.pid) ?? new Map());
  }

  fill(worker, at, outliers) {
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
}
