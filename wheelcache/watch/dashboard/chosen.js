/** The cache, the span and the compared release that the reader has chosen. A link to the page's address shows the same. */

import { clock, minute, moment } from "./words.js";

const NAMES = { 600: "Last 10 minutes", 3600: "Last hour", 21600: "Last 6 hours", 86400: "Last 24 hours" };
const FIRST = 3600; // seconds

/**
 * ``span`` is in seconds before now. ``stretch`` is a marked one, as [from, until], or null. ``compare`` is the time of a
 * release or "none"; null lets the server choose.
 */
export const chosen = { cache: null, span: FIRST, stretch: null, compare: null };

/** Reads the address. Invalid parts of it are ignored. */
export function readAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d+(\.\d+)?$/.test(fields.get(name)) ? Number(fields.get(name)) : null);
  const [from, until, span] = ["from", "until", "span"].map(number);
  chosen.cache = fields.get("cache");
  chosen.stretch = from !== null && until > from ? [from, until] : null;
  chosen.span = NAMES[span] ? span : FIRST;
  chosen.compare = fields.get("compare") === "none" ? "none" : number("compare");
}

function fieldsOf(ofCache) {
  const { cache, span, stretch, compare } = chosen;
  return new URLSearchParams({ ...(cache !== null && { [ofCache]: cache }), ...(compare !== null && { compare }),
    ...(stretch ? { from: stretch[0], until: stretch[1] } : { span }) });
}

/** Changes the choice and the address. */
export function choose(changes) {
  Object.assign(chosen, changes);
  history.replaceState(null, "", `#${fieldsOf("cache")}`);
}

export const query = () => `?${fieldsOf("details")}`;

/** Returns the name of a span in seconds before now. */
export const nameOfSpan = (span) => NAMES[span];

/** Returns the name of a stretch: its start, with the day unless it is today, and its end. */
export function nameOfStretch(from, until, now) {
  if (from % 60 || until % 60) return `${moment(from, now)} to ${clock(until)}`;
  return `${moment(from, now).replace(clock(from), minute(from))} to ${minute(until)}`;
}
