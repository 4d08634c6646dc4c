/** The dashboard's page: requests the figures every few seconds, shows them, and handles the buttons. */

import { Overview } from "./caches.js";
import { choose, chosen, nameOfSpan, nameOfStretch, query, readAddress } from "./chosen.js";
import { Details } from "./details.js";
import { announce, byId, fillTable, node, set, write } from "./nodes.js";
import { clock, duration, moment, plural, zone } from "./words.js";

const config = JSON.parse(byId("config").textContent);

const LONGEST_WAIT = 3; // seconds between two attempts while requests fail
const ANSWER_WITHIN = 10; // seconds
const TOAST = 15; // seconds for which a message about success is shown
const SHORT_LIST = 3; // events, unless there is an incident or the reader asks for all
const SPAN_TO_NAME = 60; // seconds from which an event also shows its first occurrence

const poll = { timer: 0, asking: false, again: false, refresh: 3, received: 0, answered: Date.now(), problem: null };
const view = { figures: null, details: null, allEvents: null };

// --- the server

/** A failed request, with a message for the user of the page. */
class Failure extends Error {
  constructor(message, { login = false, silent = false } = {}) {
    super(message);
    Object.assign(this, { login, silent });
  }
}

/** Requests the JSON at ``url``. A redirect is not followed, because it leads to a login page. */
async function ask(url, options = {}) {
  let response;
  try {
    const signal = AbortSignal.timeout(ANSWER_WITHIN * 1000);
    response = await fetch(url, { ...options, redirect: "manual", cache: "no-store", signal,
      headers: { Accept: "application/json", ...options.headers } });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Failure(late ? `no answer within ${ANSWER_WITHIN} s` : "the server cannot be reached", { silent: true });
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  if (response.type === "opaqueredirect" || [401, 403].includes(response.status)) {
    throw new Failure(answer?.error ?? "you have to log in again", { login: true });
  }
  const status = response.ok ? "the answer was not JSON" : `the server answered ${response.status}`;
  throw new Failure(answer?.error ?? status);
}

/** Requests the figures, shows them or an error, and schedules the next request. A hidden page requests nothing. */
async function refresh() {
  clearTimeout(poll.timer);
  if (document.hidden) return;
  if (poll.asking) {
    poll.again = true; // the reader has chosen something else during the request
    return;
  }
  poll.asking = true;
  poll.again = false;
  try {
    const asked = query();
    const figures = await ask(`figures.json${asked}`);
    if (asked === query()) show(figures);
    showFresh();
  } catch (error) {
    if (!(error instanceof Failure)) console.error(error);
    showOutdated(error instanceof Failure ? error : new Failure("this page could not display the figures"));
  }
  poll.asking = false;
  const wait = poll.problem ? Math.min(LONGEST_WAIT, poll.refresh) : poll.refresh;
  clearTimeout(poll.timer);
  poll.timer = setTimeout(refresh, poll.again ? 0 : wait * 1000);
}

// --- the page

const overview = new Overview((name) => select(name, { byReader: true }));

function select(name, { byReader = false } = {}) {
  if (view.details?.name !== name) {
    view.details?.forget();
    view.details = new Details(name, { mayOperate: config.may_operate, mayInspect: config.may_inspect, clear: clearCache,
      purge: purgePages, reasons: config.reasons, inspect: send, confirmed,
      mark: (...stretch) => chooseSpan(chosen.span, stretch), compare: (release) => change({ compare: release }) });
    byId("details").append(view.details.root);
  }
  if (!byReader) chosen.cache = name;
  if (!byReader) return;
  change({ cache: name, ...(chosen.cache !== name && { compare: null }) });
  showCaches();
  if (byId("details").getBoundingClientRect().top > innerHeight / 2) byId("details").scrollIntoView();
}

/** Changes what the reader has chosen, in the address, too, and requests its figures. */
function change(choice) {
  choose(choice);
  showChosen();
  refresh();
}

function chooseSpan(span, stretch = null) {
  change({ span, stretch, compare: null });
  announce(stretch ? nameOfStretch(...stretch, view.figures.at) : nameOfSpan(span));
}

function showChosen() {
  for (const button of byId("spans").children) {
    set(button, { "aria-pressed": !chosen.stretch && Number(button.dataset.span) === chosen.span });
  }
  byId("back").hidden = !chosen.stretch;
  write(byId("back"), `Back to ${nameOfSpan(chosen.span).toLowerCase()}`);
}

/** Names the span of all figures of the page, and the start of the figures if it is later than that of the span. */
function showSpan({ span: { from, until, step, earliest }, at }) {
  view.span = chosen.stretch ? nameOfStretch(from, until, at) : nameOfSpan(chosen.span);
  write(byId("span-name"), view.span);
  write(byId("span-note"), earliest > from + step ? `Figures since ${moment(earliest, at)}` : "");
}

/** Selects the cache whose details the server sent: the one in the address, or the server's choice. */
function selectFirst(caches) {
  const first = caches.find((cache) => cache.workers) ?? caches[0];
  poll.again = !first.workers; // the address names an unknown cache
  select(first.name);
}

function show(figures) {
  view.figures = figures;
  poll.refresh = Math.max(1, figures.refresh);
  for (const cache of figures.caches) {
    cache.problems = figures.problems.filter((each) => each.cache === cache.name).map((each) => each.text);
  }
  showSpan(figures);
  const selected = figures.caches.find((cache) => cache.name === chosen.cache);
  if (selected) select(selected.name);
  else {
    view.details?.forget();
    [chosen.cache, view.details] = [null, null];
    if (figures.caches.length) selectFirst(figures.caches);
  }
  showCaches();
  showProblems(figures);
  showAdvice(figures);
  showEvents(figures);
  byId("empty").hidden = figures.caches.length > 0;
  write(byId("title"), figures.title);
  write(byId("updated-line"), `Updated ${clock(figures.at)} by worker ${figures.this_worker}`);
  write(byId("zone"), `Times are in ${zone()}`);
}

function showCaches() {
  overview.show(view.figures.caches, chosen.cache);
  const cache = view.figures.caches.find((each) => each.name === chosen.cache);
  if (cache) view.details.show(cache, view.figures, view.span);
}

/** Shows the worst problem, or that there is none, in the first line, and the other problems below. */
function showProblems({ headline, problems }) {
  const state = problems.length ? "bad" : "good";
  if (byId("status").dataset.state !== state) announce(headline);
  set(byId("status"), { "data-state": state });
  write(byId("headline"), headline);
  const items = problems.slice(1).map(({ cache, sentence }) => {
    const item = node("li");
    const link = node(cache === null ? "span" : "button", cache === null ? {} : { type: "button" }, sentence);
    if (cache !== null) link.addEventListener("click", () => select(cache, { byReader: true }));
    item.append(link);
    return item;
  });
  const list = byId("problems");
  if (list.textContent !== items.map((item) => item.textContent).join("")) list.replaceChildren(...items);
  const mark = problems.length ? `▲ ${problems.length} · ` : "";
  document.title = `${mark}Caches of ${view.figures.title} – wheelcache`;
}

/** Shows which keys miss needlessly, in sentences. */
function showAdvice({ advice }) {
  const list = byId("advice");
  if (list.textContent !== advice.join("")) list.replaceChildren(...advice.map((sentence) => node("li", {}, sentence)));
}

const KINDS = { cleared: "Cleared", deleted: "Entries deleted", inspected: "Inspected", purge: "Purged",
  "load failed": "Load failed", "store failed": "Store failed", started: "Started", exited: "Exited", killed: "Ended abruptly" };

/** Shows the recent events, newest first: all of them during an incident, otherwise a few until the user wants all. */
function showEvents({ events, problems, at }) {
  const showsAll = view.allEvents ?? problems.length > 0;
  const shown = showsAll ? events : events.slice(0, SHORT_LIST);
  const rows = shown.map((event) => {
    const [first, last] = [moment(event.since, at), moment(event.at, at)];
    const isLong = event.at - event.since > SPAN_TO_NAME;
    const since = event.kind === "store failed" ? `, from ${first} to ${last}` : isLong ? ` since ${first}` : "";
    const cache = event.cache ?? (event.kind === "cleared" ? "all" : "");
    return [last, KINDS[event.kind] ?? event.kind, cache, event.text + since];
  });
  const body = byId("events").querySelector("tbody");
  fillTable(body, rows);
  shown.forEach((event, i) => set(body.rows[i].cells[1], { "data-kind": event.kind }));
  byId("events").hidden = events.length === 0;
  const more = byId("events-more");
  more.hidden = events.length <= SHORT_LIST;
  set(more, { "aria-expanded": showsAll });
  write(more, showsAll ? "Show only the latest" : `Show all ${events.length}`);
}

function showFresh() {
  if (poll.problem) announce("The figures are up to date again.");
  Object.assign(poll, { received: performance.now(), answered: Date.now(), problem: null });
  document.body.dataset.state = "fresh";
  byId("banner").hidden = true;
}

function showOutdated(failure) {
  const isNew = poll.problem?.message !== failure.message;
  poll.problem = failure;
  document.body.dataset.state = failure.login ? "login" : "old";
  byId("login").hidden = !failure.login;
  byId("retry").hidden = failure.login;
  showAge();
  byId("banner").hidden = false;
  showNoFigures(failure);
  if (isNew) announce(byId("headline").textContent);
}

/** Replaces the first line and the title of the tab, which may be wrong by now, and the list of problems. */
function showNoFigures({ silent, message }) {
  const since = moment(poll.answered / 1000, Date.now() / 1000);
  const line = silent ? `The server has not answered since ${since}` : `No new figures since ${since}: ${message}`;
  set(byId("status"), { "data-state": "bad" });
  write(byId("headline"), line);
  byId("problems").replaceChildren();
  byId("advice").replaceChildren();
  document.title = `▲ ${line} – wheelcache`;
}

/** Shows the age of the figures in the banner. It is not a live region; the announcer reads its text once. */
function showAge() {
  if (!poll.problem) return;
  const age = Math.round((performance.now() - poll.received) / 1000);
  const figures = poll.received ? `Figures are ${age < 120 ? `${age} s` : duration(age)} old` : "No figures yet";
  const time = view.figures && poll.received ? `, of ${clock(view.figures.at)}` : "";
  write(byId("banner-text"), `${figures}${time}: ${poll.problem.message}.`);
}

// --- actions

/** Asks the user, and resolves to true or false. Escape and Cancel decline; the browser returns the focus to the button. */
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

/** Posts a request, with the header that other sites cannot send, and without which the server refuses it. */
const send = (url, fields) => ask(url, { method: "POST", headers: { "Wheelcache-Dashboard": "1" },
  body: new URLSearchParams(fields) });

/** Posts a request, and shows the answer. The button is not disabled during the request, as it would lose the focus. */
async function post(button, url, fields) {
  if (button.ariaBusy === "true") return;
  button.ariaBusy = "true";
  try {
    const { message } = await send(url, fields);
    say(message, "done");
    refresh();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    say(`That did not work: ${error.message}`, "failed");
  } finally {
    button.ariaBusy = "false";
  }
}

/** Shows a message. The empty toast stays in the tree, since a live region that appears with its text may not be read. */
function say(text, kind) {
  clearTimeout(poll.toast);
  if (text && kind === "done") poll.toast = setTimeout(() => say("", ""), TOAST * 1000);
  byId("toast").dataset.kind = kind;
  byId("dismiss").hidden = !text;
  byId("message").textContent = text;
}

async function clearCache(button, { name, clear_effect: effect, now }) {
  const text = `${plural(now.entries, "entry", "entries")} will be removed. ${effect}`;
  if (await confirmed(`Clear “${name}”?`, text, "Clear")) post(button, "clear", { cache: name });
}

const purgePages = (button, { name }, target) => post(button, "purge", { cache: name, target });

function followAddress() {
  readAddress();
  showChosen();
  refresh();
}

byId("spans").addEventListener("click", ({ target }) => target.dataset.span && chooseSpan(Number(target.dataset.span)));
byId("back").addEventListener("click", () => {
  chooseSpan(chosen.span);
  byId("spans").querySelector('[aria-pressed="true"]').focus(); // the pressed button disappears
});
byId("events-more").addEventListener("click", () => {
  view.allEvents = byId("events-more").getAttribute("aria-expanded") !== "true";
  showEvents(view.figures);
});
byId("confirm-no").addEventListener("click", () => byId("confirm").close("no"));
byId("confirm-yes").addEventListener("click", () => byId("confirm").close("yes"));
byId("retry").addEventListener("click", refresh);
byId("dismiss").addEventListener("click", () => say("", ""));
document.addEventListener("visibilitychange", refresh);
window.addEventListener("online", refresh);
window.addEventListener("hashchange", followAddress);
setInterval(showAge, 1000);
followAddress();
