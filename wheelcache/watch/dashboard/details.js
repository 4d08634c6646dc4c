/** All figures of one cache: what is wrong, the figures and charts of the span, groups, deploys, and the rest. */

import { fullness } from "./caches.js";
import { Charts } from "./charts.js";
import { Inspection } from "./inspection.js";
import { Groups } from "./groups.js";
import { arrange, fillBar, fillTable, node, part, set, sortedPairs, stamp, write, writeAdvice } from "./nodes.js";
import { NOTHING, bytes, causeName, count, duration, estimate, groupName, milliseconds, minute, moment, percent,
  plural, rate, seconds, unless } from "./words.js";
import { Workers } from "./workers.js";

const COUNTS = ["requests", "hits", "misses", "puts", "stale_hits", "coalesced", "loads", "load_failures", "load_timeouts",
  "refreshes", "refreshes_dropped"];
const OF_STORE = ["hits", "misses", "reads", "writes", "errors", "refused"];
const ZEROS = new Set(["0", "0 s", "0 B", NOTHING]);
const REHEARSED = ["visits", "hits", "compared", "wrong", "outdated", "noise", "unclear"];

const sumOf = (numbers) => Object.values(numbers).reduce((a, b) => a + b, 0);

/** The rows of a comparison: a name, and the text of a side. */
const COMPARED = [
  ["Hit ratio", (side) => unless(side.hit_ratio, percent)],
  ["Look-ups per second", (side) => unless(side.requests_per_second, rate)],
  ["Time computing per minute", (side) => unless(side.computing_per_minute, seconds)],
  ...[50, 90].map((p) => [`Time of a load, p${p}`, (side) => estimate(side[`load_p${p}_ms`])]),
];

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
      writeAdvice(part(list, "why"), why);
      write(list.querySelector("caption"), `Paths: ${what}`);
      fillTable(list.querySelector("tbody"), Object.entries(paths).map(([path, n]) => [path, count(n)]));
    }
    arrange(this.root, lists.map(([what]) => this.lists.get(what)));
  }
}

/** Returns the sentence of a comparison, after its time. */
function sentenceOf({ at, release, sentence, before }) {
  return before === null ? sentence : `Since ${minute(at)}${release && ` (release ${release})`}: ${sentence}`;
}

/** Returns whether a problem is shown by the row of a group of keys. */
const opensGroup = ({ place, group }) => Boolean(group) && place !== "comparison";

/** Returns whether a larger cache would have had more hits. */
function wouldLargerHelp({ removals, misses, misses_by_cause: { evicted } }) {
  if (!removals.evicted) return "A larger cache would not help: nothing was evicted";
  return misses ? `${percent(evicted / misses)} of misses are for evicted entries` : "";
}

export class Details {
  /**
   * @param {string} name the name of the cache
   * @param {Object} site ``mayOperate`` and ``mayInspect``, ``reasons`` (sentences by reason), the functions ``clear``
   *   and ``purge`` of a button and the cache's figures, ``mark`` of a stretch of time, ``compare`` of a release, and
   *   ``inspect`` and ``confirmed``: see ``Inspection``
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
    part(this.root, "verdict-link").addEventListener("click", () => this.goTo(this.cache.sentence));
    this.releases = part(this.root, "releases");
    this.releases.addEventListener("change", () => site.compare(this.releases.value));
    this.inspection = new Inspection(part(this.root, "inspection"), name, site);
    this.reasons = new BusiestPaths(part(this.root, "reasons"));
    this.full = new BusiestPaths(part(this.root, "full"));
    this.charts = new Charts(this.root, name, site.mark);
    this.groups = new Groups(part(this.root, "groups"), name, site);
    this.workers = new Workers(part(this.root, "workers"));
  }

  forget() {
    this.charts.forget();
    this.inspection.forget();
    this.root.remove();
  }

  /** Shows the figures of a span, which has a name. Most are present only in answers to requests that name the cache. */
  show(cache, { at, span }, spanName) {
    this.cache = cache;
    this.clear.hidden = !this.site.mayOperate;
    this.inspection.root.hidden = !(this.site.mayInspect && cache.is_shared);
    part(this.root, "body").hidden = !cache.workers;
    if (!cache.workers) return;
    this.showVerdict(cache);
    this.showTiles(cache);
    this.showTotals(cache);
    this.groups.show(cache.groups, cache);
    this.showComparison(cache, at);
    this.showStore(cache);
    this.showPages(cache);
    this.showRehearsal(cache);
    this.hideZeros();
    this.charts.show(cache, span, spanName);
    this.workers.show(cache, at);
    this.showSettings(cache.settings);
  }

  write(figure, text) {
    write(this.figures.get(figure), text);
  }

  /** Writes beside the name of a folded section what it is about. */
  sumUp(section, ...texts) {
    write(part(part(this.root, section), "gist"), texts.filter(Boolean).join(" · "));
  }

  /** Shows the sentence of the server, with a link to the section that shows the same in figures. */
  showVerdict({ sentence: { state, text, place, group }, comparison }) {
    set(part(this.root, "verdict"), { "data-state": state });
    write(part(this.root, "verdict-text"), text);
    write(part(this.root, "compared"), comparison === null ? "" : sentenceOf(comparison));
    const link = part(this.root, "verdict-link");
    link.hidden = place === null;
    const name = () => part(this.root, place).querySelector("h3, .what").textContent;
    if (place !== null) write(link, `Show “${opensGroup({ place, group }) ? group : name()}”`);
  }

  /** Unfolds a section, and any group of keys in it, scrolls to it and moves the focus there. */
  goTo({ place, group }) {
    const section = part(this.root, opensGroup({ place, group }) ? "groups" : place);
    if (opensGroup({ place, group })) this.groups.open(group);
    if (section.open === false) section.open = true;
    section.scrollIntoView();
    section.querySelector("summary, h3").focus({ preventScroll: true });
  }

  showTiles({ figures, now, total, times, store }) {
    const ratio = figures.answered_ratio ?? figures.hit_ratio;
    this.write("ratio_label", store ? "Hit ratio, with store" : "Hit ratio");
    this.write("hit_ratio", unless(ratio, percent));
    const stale = figures.stale_ratio ?? 0;
    const shares = ratio === null ? {} : { here: figures.hit_ratio, store: ratio - figures.hit_ratio, stale,
      missed: 1 - ratio - stale };
    for (const name of ["here", "store", "stale"]) fillBar(part(this.root, `band-${name}`), shares[name]);
    const named = Object.entries(shares).filter(([name, share]) => share > 1e-9 && (store || name !== "here"));
    this.write("shares", named.map(([name, share]) => `${percent(share)} ${name}`).join(" · "));
    this.write("requests_per_second", unless(figures.requests_per_second, rate));
    this.write("requests_note", figures.requests ? plural(figures.requests, "look-up") : "");
    this.write("computing", seconds(total.load_seconds));
    this.write("computing_note", total.loads ? `${plural(total.loads, "load")}, p90 ${estimate(times.loads.p90)}` : "");
    part(this.root, "band-here").parentElement.hidden = ratio === null;
    this.showSize(now, total);
  }

  /** Shows the memory, or the entries if the memory is not known, and the bound that is closer. */
  showSize({ entries, max_entries: mostEntries, bytes: memory, max_bytes: mostBytes, in_workers: workers }, total) {
    const most = mostEntries ? `${count(entries)} of ${count(mostEntries)} entries` : plural(entries, "entry", "entries");
    const kept = workers ? `${most} in ${plural(workers, "worker")}` : most;
    this.write("memory_label", memory === null ? "Entries now" : "Memory now");
    this.write("memory", memory === null ? count(entries) : bytes(memory));
    this.write("max_memory", memory !== null && mostBytes ? `of ${bytes(mostBytes)}` : "");
    this.write("entries_note", memory === null && !mostEntries ? "" : kept);
    this.write("larger_note", mostEntries || mostBytes ? wouldLargerHelp(total) : "");
    const meter = part(this.root, "memory-tile").querySelector(".meter");
    const share = Math.min(1, fullness(this.cache));
    meter.hidden = !mostEntries && !mostBytes;
    set(meter, { "aria-valuenow": share * 100, "aria-valuetext": percent(share) });
    fillBar(meter.firstElementChild, share);
  }

  showTotals({ total, times }) {
    for (const name of COUNTS) this.write(name, count(total[name]));
    this.write("load_seconds", duration(total.load_seconds));
    this.showTimes("load", times.loads);
    // Assume that each hit saved a load of average duration.
    const loads = total.loads + total.load_failures;
    this.write("saved_seconds", loads ? `≈${duration(total.hits * total.load_seconds / loads)}` : NOTHING);
    this.write("evicted_bytes", unless(total.evicted_bytes, bytes));
    this.showCauses("misses", total.misses_by_cause);
    this.showCauses("removals", total.removals);
    this.sumUp("misses", plural(total.misses, "miss", "misses"));
    this.sumUp("loads", `p90 ${estimate(times.loads.p90)}`);
    this.sumUp("removals", plural(sumOf(total.removals), "removal"));
  }

  /** Shows the causes that occurred, the most frequent one first. */
  showCauses(section, numbers) {
    const rows = sortedPairs(numbers);
    const table = part(this.root, section).querySelector("table");
    table.hidden = !rows.length;
    const sum = sumOf(numbers);
    fillTable(table.querySelector("tbody"), rows.map(([cause, n]) => [causeName(cause), count(n), percent(n / sum)]));
  }

  showTimes(figure, times) {
    for (const p of [50, 90, 99]) this.write(`${figure}_p${p}`, estimate(times[`p${p}`]));
  }

  /** Shows the figures before and after a deploy, and lets the reader choose the deploy. */
  showComparison({ comparison, marks }, at) {
    const releases = marks.filter((mark) => mark.kind === "release");
    part(this.root, "comparison").hidden = comparison === null && !releases.length;
    const isKnown = comparison !== null && comparison.before !== null;
    part(this.root, "sides").hidden = !isKnown;
    write(part(this.root, "compared-sentence"), comparison === null || isKnown ? "" : comparison.sentence);
    const choices = releases.reverse().map((mark) => [mark.at, `${moment(mark.at, at)}, ${mark.text}`]);
    const options = [...choices, ["none", "None"]].map(([value, text]) => node("option", { value }, text));
    if (this.releases.textContent !== options.map((each) => each.text).join("")) this.releases.replaceChildren(...options);
    if (document.activeElement !== this.releases) this.releases.value = comparison?.at ?? "none";
    if (!isKnown) return;
    const { before, after, groups, seconds: length } = comparison;
    const figures = part(this.root, "compared-figures");
    write(figures.querySelector("caption"), `${length < 600 ? `${length} s` : duration(length)} before and after ${minute(comparison.at)}`);
    const rows = COMPARED.map(([name, text]) => [name, text(before), text(after)]);
    fillTable(figures.querySelector("tbody"), rows.filter(([, ...texts]) => !texts.every((text) => ZEROS.has(text))));
    const changed = part(this.root, "compared-groups");
    changed.parentElement.hidden = !groups.length;
    fillTable(changed.querySelector("tbody"), groups.map(({ name, cause, ...misses }) => (
      [groupName(name), unless(misses.before, percent), unless(misses.after, percent),
        cause === null ? NOTHING : causeName(cause)])));
  }

  showStore({ store, total, times }) {
    part(this.root, "store").hidden = store === null;
    if (store === null) return;
    const { breakers, open_breakers: open, trackers, trusted } = store;
    for (const name of OF_STORE) this.write(`store_${name}`, count(store[name]));
    this.showTimes("store", times.store_reads);
    this.write("store_write_time", unless(store.write_ms, milliseconds));
    this.write("store_stale", count(total.stale_hits));
    const closed = breakers ? "closed" : this.cache.worker_count ? "none, without FAIL_SAFE" : NOTHING;
    this.mark("store_breaker", open, breakers, "open", closed);
    this.mark("store_tracking", trackers - trusted, trackers, "not", trackers ? "yes" : NOTHING);
    this.sumUp("store", open && "breaker open", store.errors && plural(store.errors, "error"),
      store.reads && `read p90 ${estimate(times.store_reads.p90)}`);
  }

  showPages({ pages }) {
    part(this.root, "pages").hidden = pages === null;
    if (pages === null) return;
    part(this.root, "purge").hidden = !this.site.mayOperate;
    const { not_stored: reasons, not_stored_paths: paths, full_variants: full, bytes_sent: sent, ...counts } = pages;
    for (const [name, n] of Object.entries(counts)) this.write(`pages_${name}`, count(n));
    this.write("pages_bytes_sent", bytes(sent));
    this.write("pages_not_stored", count(sumOf(reasons)));
    part(this.root, "pages-reasons").hidden = !sumOf(reasons);
    this.reasons.show(sortedPairs(reasons).map(([why, n]) => [why, count(n), this.site.reasons[why] ?? "", paths[why] ?? {}]));
    this.full.show(Object.entries(full).map(([field, removed]) => [`Too many values of ${field}`, "",
      "Variants of these pages were removed since the start, because a page may have 32.", removed]));
    this.sumUp("pages", `${count(counts.fresh)} fresh`, `${count(sumOf(reasons))} not stored`);
  }

  /** Shows the results by view, and each difference and reason. Texts of pages come from strangers, too. */
  showRehearsal({ rehearsal }) {
    const root = part(this.root, "rehearsal");
    root.hidden = rehearsal === null;
    if (rehearsal === null) return;
    write(part(root, "sentence"), rehearsal.sentence);
    write(part(root, "block"), rehearsal.block);
    part(root, "block").hidden = !rehearsal.block;
    write(part(root, "mode"), rehearsal.mode === null ? "" : `Mode: ${rehearsal.mode}`);
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

  /** Hides the rows of figures that are zero or unknown, and sections without any other row. */
  hideZeros() {
    for (const row of this.root.querySelectorAll("dl > div")) row.hidden = ZEROS.has(row.lastElementChild.textContent);
    for (const section of ["misses", "loads", "removals"].map((name) => part(this.root, name))) {
      section.hidden = !section.querySelector("dl > :not([hidden]), tbody > *");
    }
  }

  showSettings(settings) {
    const root = part(this.root, "settings");
    const body = root.querySelector("tbody");
    fillTable(body, settings);
    root.hidden = !settings.length;
  }
}
