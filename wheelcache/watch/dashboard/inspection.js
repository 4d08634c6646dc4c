/** The form that finds, samples and deletes the entries of one cache. The workers answer within seconds. */

import { fillTable, node, part, set, write } from "./nodes.js";
import { bytes, count, duration, percent, plural } from "./words.js";

const WAIT = 500; // milliseconds between two requests for answers
const LOOKS = 5; // at the entries that were used last
const SHOWN = 20; // hottest entries
const FORMATS = { Size: bytes, "Time left": duration };
export const CUT = "…"; // the end of a key that the server cut or hid in part

const pause = () => new Promise((resolve) => { setTimeout(resolve, WAIT); });

/** Asks the workers, and yields their answers as they arrive. */
export async function* answersOf(ask, fields) {
  const { token } = await ask("inspect", fields);
  for (;;) {
    const answer = await ask("answers", { token });
    yield answer;
    if (answer.is_over) return;
    await pause();
  }
}

export class Inspection {
  /**
   * @param {Element} root the part of the page, of the cache ``name``
   * @param {Object} site ``inspect``, which requests the JSON of ``inspect`` or ``answers`` with fields, or throws an
   *   error for the user; ``confirmed``, which asks the user about a deletion; and ``mayOperate``, without which the user
   *   may not delete entries
   */
  constructor(root, name, { inspect: ask, confirmed, mayOperate: mayDelete }) {
    Object.assign(this, { root, name, ask, confirmed, mayDelete, search: 0, target: null });
    this.form = root.querySelector("form");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.find({ kind: this.form.elements.kind.value, text: this.form.elements.text.value });
    });
    part(root, "delete").addEventListener("click", () => this.delete());
    part(root, "sample").addEventListener("click", () => this.sample());
    root.addEventListener("click", ({ target }) => {
      if (target.dataset.key !== undefined) this.findKey(target.dataset.key);
    });
  }

  forget() {
    this.search += 1;
  }

  findKey(text) {
    this.form.elements.kind.value = "key";
    this.form.elements.text.value = text;
    this.find({ kind: "key", text });
    this.focusForm();
  }

  /** Moves the focus to the form, since the button that was pressed disappears. */
  focusForm() {
    this.form.querySelector("button").focus();
  }

  find(target) {
    this.run({ ...target, action: "find" }, (answer) => this.showTable(answer), () => { this.target = target; });
  }

  async delete() {
    const { kind, text } = this.target;
    const what = { key: "The key", pattern: "All keys that match the pattern", tag: "All entries of the tag" }[kind];
    const shown = text.length > 200 ? `${text.slice(0, 200)}${CUT}` : text;
    const effect = `${what} “${shown}” will be deleted from ${this.name}, in all workers.`;
    if (!(await this.confirmed("Delete entries?", effect, "Delete"))) return;
    this.run({ kind, text, action: "delete" }, (answer) => this.showTable(answer), () => {});
    this.focusForm();
  }

  /** Looks several times, and counts in how many looks at a worker an entry was among those that were used last. */
  async sample() {
    const counts = new Map();
    let looks = 0;
    this.hideTables();
    const add = (answer) => {
      this.showTable(answer);
      if (!answer.is_over) return;
      looks += answer.workers;
      for (const [key, workers] of Object.entries(answer.latest)) counts.set(key, (counts.get(key) ?? 0) + workers);
      this.showHottest(counts, looks);
    };
    for (let look = 1; look <= LOOKS; look += 1) {
      const isLast = look === LOOKS;
      if (!(await this.run({ action: "sample" }, add, () => {}, isLast ? "" : `, look ${look} of ${LOOKS}`))) return;
      if (!looks) return; // no worker has answered
    }
  }

  /** Asks the workers, and shows their answers as they arrive. Returns whether there was no error and no newer search. */
  async run(fields, show, done, note = "") {
    this.search += 1;
    const search = this.search;
    const isOld = () => search !== this.search;
    this.target = null;
    part(this.root, "delete").hidden = true;
    if (fields.action !== "sample") this.hideTables();
    this.root.ariaBusy = "true";
    this.say("Asking the workers …");
    try {
      for await (const answer of answersOf(this.ask, { ...fields, cache: this.name })) {
        if (isOld()) return false;
        show(answer);
        this.say([answer.text + note, ...answer.failures].join(". "), answer.failures.length > 0);
      }
      done();
      part(this.root, "delete").hidden = this.target === null || !this.mayDelete;
      return true;
    } catch (error) {
      if (!isOld()) this.say(`That did not work: ${error.message}`, true);
      return false;
    } finally {
      if (!isOld()) this.root.ariaBusy = "false";
    }
  }

  say(text, isBad = false) {
    write(part(this.root, "state"), text);
    set(part(this.root, "state"), { "data-state": isBad ? "bad" : "good" });
  }

  hideTables() {
    for (const name of ["found", "hottest"]) part(this.root, name).hidden = true;
  }

  showTable({ heads, rows, is_over: isOver }) {
    if (!rows.length && !isOver) return; // the last look is still shown
    const format = (cell, i) => (typeof cell === "number" ? (FORMATS[heads[i]] ?? count)(cell) : cell);
    this.fill("found", heads, rows.map((row) => row.map(format)), heads[0] === "Key");
  }

  showHottest(counts, looks) {
    const sorted = [...counts].sort(([, one], [, other]) => other - one).slice(0, SHOWN);
    this.fill("hottest", ["Key", "Used recently"], sorted.map(([key, n]) => [key, percent(n / looks)]), true);
    const method = `the share of ${plural(looks, "look")} at the 64 entries of a worker that were used last`;
    write(part(this.root, "hottest").querySelector("caption"), `The hottest entries, estimated: ${method}`);
  }

  fill(name, heads, rows, areKeys) {
    const box = part(this.root, name);
    box.hidden = !rows.length;
    const head = box.querySelector("thead tr");
    const body = box.querySelector("tbody");
    if (head.textContent !== heads.join("")) {
      head.replaceChildren(...heads.map((text) => node("th", { scope: "col" }, text)));
      body.replaceChildren();
    }
    fillTable(body, rows);
    if (areKeys) rows.forEach(([key], i) => this.link(body.rows[i].cells[0], key));
  }

  /** Makes the key in a cell a button that finds it, unless only a part of the key is known. */
  link(cell, key) {
    if (key.endsWith(CUT) || cell.firstElementChild?.dataset.key === key) return;
    const button = node("button", { type: "button", title: "Find" }, key);
    button.dataset.key = key;
    cell.replaceChildren(button);
  }
}
