/**
 * Nodes of the page. They are made once and updated in place, so that a refresh keeps the focus and any selection.
 *
 * Names come from users: they are written with textContent and setAttribute, never parsed as markup. Styles are set
 * through the CSSOM alone, because the page runs under a CSP without 'unsafe-inline'.
 */

export const byId = (id) => document.getElementById(id);
export const part = (root, name) => root.querySelector(`[data-part="${name}"]`);
export const stamp = (id) => byId(id).content.firstElementChild.cloneNode(true);

/** Writes a text if it differs. An unchanged text node keeps its selection and needs no layout. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Writes a sentence in which rules to paste are code, so that no line ends within one if the whole rule fits. */
export function writeAdvice(root, text) {
  if (root.textContent === text) return;
  root.replaceChildren(...text.split(/(rules=\[.*?\)\])/).map((each, i) => (i % 2 ? node("code", {}, each) : each)));
}

export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  return node;
}

export function node(tag, attributes = {}, text = "", namespace = "http://www.w3.org/1999/xhtml") {
  const made = set(document.createElementNS(namespace, tag), attributes);
  made.textContent = text;
  return made;
}

export const svg = (tag, attributes, text) => node(tag, attributes, text, "http://www.w3.org/2000/svg");

/** Gives ``parent`` the ``wanted`` children in this order. Nodes in the right place are not moved: that loses the focus. */
export function arrange(parent, wanted) {
  const kept = new Set(wanted);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  wanted.forEach((child, i) => parent.children[i] === child || parent.insertBefore(child, parent.children[i] ?? null));
}

/** Fills the body of a table with rows of texts, and reuses existing rows. The first text of a row is its header. */
export function fillTable(body, rows) {
  while (body.rows.length > rows.length) body.lastElementChild.remove();
  rows.forEach((texts, i) => fillRow(body.rows[i] ?? body.insertRow(), texts));
}

export function fillRow(row, texts) {
  texts.forEach((text, i) => {
    if (!row.cells[i]) row.append(i ? node("td") : node("th", { scope: "row" }));
    write(row.cells[i], text);
  });
  while (row.cells.length > texts.length) row.lastElementChild.remove();
}

/** Fills a list of facts with pairs of a name and a text. */
export function fillFacts(list, facts) {
  while (list.children.length > facts.length) list.lastElementChild.remove();
  facts.forEach(([name, text], i) => {
    if (!list.children[i]) {
      const fact = node("div");
      fact.append(node("dt"), node("dd"));
      list.append(fact);
    }
    write(list.children[i].firstElementChild, name);
    write(list.children[i].lastElementChild, text);
  });
}

/** Returns the pairs of names and numbers above 0, the largest first. */
export const sortedPairs = (numbers) => (
  Object.entries(numbers).filter(([, n]) => n).sort(([, one], [, other]) => other - one));

/** Fills a bar to ``share`` (0 to 1) of its track. */
export function fillBar(bar, share) {
  bar.style.inlineSize = `${(Math.min(1, Math.max(0, share || 0)) * 100).toFixed(1)}%`;
}

/** Makes a screen reader read the text once. It is not visible on the page. */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** A table that a click on a header sorts: texts from A to Z, numbers in descending order. A second click reverses it. */
export class SortedTable {
  /**
   * @param {Element} root the element that contains the table
   * @param {Function[]} values for each column, returns the number or text by which an item is sorted
   * @param {Function} make returns the row of a new item
   * @param {?number} column the column by which the items are sorted at first; null for the order of the server
   */
  constructor(root, values, make, column = null) {
    Object.assign(this, { values, make, column, items: [], rows: new Map(), details: new Map(), reversed: false });
    this.body = root.querySelector("tbody");
    this.heads = [...root.querySelectorAll("thead th")];
    this.heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => this.sortBy(column)));
  }

  /** Sorts by a column. A third click restores the order in which the server sent the items. */
  sortBy(column) {
    if (column !== this.column) [this.column, this.reversed] = [column, false];
    else if (!this.reversed) this.reversed = true;
    else [this.column, this.reversed] = [null, false];
    this.show(this.items);
  }

  /** Shows the rows of ``items``, as pairs of a key and an item. Rows in ``details`` follow those of the same key. */
  show(items, details = this.details) {
    Object.assign(this, { items, details });
    const value = this.values[this.column] ?? (() => 0);
    const isText = items.length > 0 && typeof value(items[0][1]) === "string";
    const compare = isText ? (a, b) => a.localeCompare(b) : (a, b) => b - a;
    const sorted = [...items].sort(([, a], [, b]) => compare(value(a), value(b)) * (this.reversed ? -1 : 1));
    const kept = new Set(items.map(([key]) => key));
    for (const key of this.rows.keys()) if (!kept.has(key)) this.rows.delete(key);
    for (const [key] of sorted) if (!this.rows.has(key)) this.rows.set(key, this.make(key));
    arrange(this.body, sorted.flatMap(([key]) => [this.rows.get(key), details.get(key)].filter(Boolean)));
    const order = isText === this.reversed ? "descending" : "ascending";
    this.heads.forEach((head, i) => set(head, { "aria-sort": i === this.column ? order : "none" }));
  }
}
