/** The groups of keys of a cache. A row opens the causes of the misses of its group, its figures and its keys. */

import { CUT, answersOf } from "./inspection.js";
import { SortedTable, announce, fillFacts, node, part, set, sortedPairs, stamp, write } from "./nodes.js";
import { NOTHING, bytes, causeName, count, duration, groupName, milliseconds, percent, plural, seconds,
  unless } from "./words.js";

/** Returns the most frequent cause of a group's misses with its share, or nothing. */
function mainCause({ misses_by_cause: causes, misses }) {
  const [cause, number] = sortedPairs(causes)[0] ?? [];
  return number ? `${causeName(cause)} ${percent(number / misses)}` : "";
}

/** The columns: the name, the value to sort by, and the text of a cell. */
const COLUMNS = [
  ["name", ({ name }) => groupName(name), ({ name }) => groupName(name)],
  ["requests", (group) => group.requests, (group) => count(group.requests)],
  ["hit_ratio", (group) => group.hit_ratio ?? -1, (group) => unless(group.hit_ratio, percent)],
  ["misses", (group) => group.misses, (group) => count(group.misses)],
  ["cause", mainCause, (group) => mainCause(group) || NOTHING],
  ["failures", (group) => group.load_failures, (group) => count(group.load_failures)],
  ["computing", (group) => group.load_seconds, (group) => seconds(group.load_seconds)],
  ["refused", (group) => group.refused, (group) => count(group.refused)],
];
const TIME_COMPUTING = 6; // the column by which groups are sorted at first
const OPTIONAL = { failures: "load_failures", refused: "refused" }; // columns that are hidden if all values are zero

/** The figures of an open group, also those for which the row has no room on a phone: a name, a value, and its format. */
const FIGURES = [
  ["Look-ups", "requests", count],
  ["Hits", "hits", count],
  ["Misses", "misses", count],
  ["Stale answers", "stale_hits", count],
  ["Values stored", "puts", count],
  ["Loads", "loads", count],
  ["Failed loads", "load_failures", count],
  ["Mean time of a load", ({ loads, load_seconds: s }) => loads && (1000 * s) / loads, milliseconds],
  ["Pages not stored", "refused", count],
];

export class Groups {
  /**
   * @param {Element} root the part of the page, of the cache ``name``
   * @param {Object} site ``inspect``, ``confirmed`` and ``mayOperate``: see ``Inspection``; and ``mayInspect``, without
   *   which no keys are shown
   */
  constructor(root, name, site) {
    Object.assign(this, { root, name, site, opened: new Map(), wanted: null });
    this.table = new SortedTable(root, COLUMNS.map(([, value]) => value), (group) => this.make(group), TIME_COMPUTING);
  }

  /** Makes the row of a group. Names come from keys, and so perhaps from strangers: they are only ever texts. */
  make(name) {
    const row = node("tr", { "data-group": name });
    COLUMNS.forEach(([column], i) => row.append(node(i ? "td" : "th", { "data-column": column, ...(!i && { scope: "row" }) })));
    row.cells[0].append(node("button", { type: "button", "aria-expanded": false }, groupName(name)));
    row.addEventListener("click", () => this.toggle(name));
    return row;
  }

  show(groups, { is_shared: isShared }) {
    this.root.hidden = !groups.length;
    this.isShared = isShared;
    this.groups = new Map(groups.map((group) => [group.name, group]));
    for (const [column, figure] of Object.entries(OPTIONAL)) {
      this.root.toggleAttribute(`data-without-${column}`, !groups.some((group) => group[figure]));
    }
    for (const name of this.opened.keys()) if (!this.groups.has(name)) this.opened.delete(name);
    this.arrange();
    for (const group of groups) this.fill(group);
    if (this.wanted !== null) this.open(this.wanted);
  }

  arrange() {
    this.table.show([...this.groups], this.opened);
  }

  fill(group) {
    const row = this.table.rows.get(group.name);
    COLUMNS.slice(1).forEach(([, , text], i) => write(row.cells[i + 1], text(group)));
    row.querySelector('[data-column="failures"]').toggleAttribute("data-bad", group.load_failures > 0);
    set(row.querySelector("button"), { "aria-expanded": this.opened.has(group.name) });
    const details = this.opened.get(group.name);
    if (!details) return;
    const causes = sortedPairs(group.misses_by_cause);
    fillFacts(part(details, "causes"), causes.map(([cause, n]) => (
      [causeName(cause), `${count(n)} · ${percent(n / group.misses)}`])));
    part(details, "causes").parentElement.hidden = !causes.length;
    const figures = FIGURES.map(([name, value, format]) => [name, value.call ? value(group) : group[value], format]);
    fillFacts(part(details, "figures"), figures.filter(([, value]) => value).map(([name, value, format]) => [name, format(value)]));
  }

  toggle(name) {
    if (this.opened.delete(name)) this.arrange();
    else this.open(name);
    this.fill(this.groups.get(name));
  }

  /** Opens a group and moves the focus to it, or waits until it is there. */
  open(name) {
    this.wanted = this.groups?.has(name) ? null : name;
    if (this.wanted !== null || this.opened.has(name)) return;
    const details = node("tr", { class: "details" });
    const cell = node("td", { colspan: COLUMNS.length });
    cell.append(stamp("group"));
    details.append(cell);
    this.opened.set(name, details);
    this.arrange();
    this.fill(this.groups.get(name));
    if (this.site.mayInspect && this.isShared) this.listKeys(name, part(details, "keys"));
  }

  /** Asks the workers for the keys of a group, and shows them. */
  async listKeys(name, root) {
    root.hidden = false;
    const say = (text) => write(part(root, "state"), text);
    say("Asking the workers …");
    try {
      const fields = { action: "find", kind: "group", text: name, cache: this.name };
      for await (const answer of answersOf(this.site.inspect, fields)) {
        say([answer.text, ...answer.failures].join(". "));
        root.querySelector("ul").replaceChildren(...answer.rows.map((row) => this.item(row, say)));
      }
    } catch (error) {
      say(`That did not work: ${error.message}`);
    }
  }

  item([key, size, left, workers], say) {
    const item = node("li");
    const facts = [bytes(size), typeof left === "number" ? `${duration(left)} left` : left, ...(workers > 1 ? [plural(workers, "worker")] : [])];
    item.append(node("code", {}, key), node("span", { class: "note" }, facts.join(" · ")));
    if (this.site.mayOperate && !key.endsWith(CUT)) {
      const button = node("button", { type: "button", "aria-label": `Delete ${key}` }, "Delete");
      button.addEventListener("click", () => this.deleteKey(key, item, say));
      item.append(button);
    }
    return item;
  }

  async deleteKey(key, item, say) {
    const effect = `The key “${key}” will be deleted from ${this.name}, in all workers.`;
    if (!(await this.site.confirmed("Delete the key?", effect, "Delete"))) return;
    try {
      const fields = { action: "delete", kind: "key", text: key, cache: this.name };
      for await (const { failures } of answersOf(this.site.inspect, fields)) if (failures.length) say(failures.join(". "));
      item.closest("tr").previousElementSibling.querySelector("button").focus(); // the pressed button disappears
      item.remove();
      announce(`${key} was deleted`);
    } catch (error) {
      say(`That did not work: ${error.message}`);
    }
  }
}
