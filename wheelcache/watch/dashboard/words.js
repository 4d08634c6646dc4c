/** Formats numbers, times and plurals for the page. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const hundredths = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const inLocalTime = (options) => new Intl.DateTimeFormat("en-GB", options);
const minutes = inLocalTime({ hour: "2-digit", minute: "2-digit" });
const instants = inLocalTime({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const days = inLocalTime({ day: "numeric", month: "short" });

export const NOTHING = "–";
export const unless = (value, format) => (value === null || value === undefined ? NOTHING : format(value));
export const count = (n) => whole.format(n);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const rate = (n) => (n < 10 ? hundredths.format(n) : n < 1e5 ? whole.format(n) : short.format(n));
export const compact = (n) => short.format(n);
export const threeDigits = (n) => digits.format(n);
export const milliseconds = (ms) => (ms >= 1000 ? duration(ms / 1000)
  : ms >= 1 || ms === 0 ? `${threeDigits(ms)} ms` : `${threeDigits(ms * 1000)} µs`);
export const seconds = (s) => (s ? milliseconds(s * 1000) : "0 s");
export const clock = (at) => instants.format(new Date(at * 1000));
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
export const minute = (at) => minutes.format(new Date(at * 1000));

/** Formats a ratio. Only a ratio without a miss is "100%", and only one without a hit is "0%"; 0.9996 is "99.9%". */
export function percent(ratio) {
  if (ratio === 0 || ratio === 1) return `${ratio * 100}%`;
  return `${Math.min(99.9, Math.max(0.1, ratio * 100)).toFixed(1)}%`;
}

export function duration(s) {
  if (s < 120) return `${threeDigits(s)} s`;
  if (s < 7200) return `${s < 600 ? threeDigits(s / 60) : Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

export const bytePower = (n) => (n < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(n) / 10)));

export function bytes(n) {
  const power = bytePower(n);
  return `${threeDigits(n / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** Formats a moment in the viewer's time zone, with the day unless it is the day of ``now``. */
export function moment(at, now) {
  const [then, today] = [new Date(at * 1000), new Date(now * 1000)];
  return then.toDateString() === today.toDateString() ? clock(at) : `${days.format(then)}, ${clock(at)}`;
}

/** Formats an estimate in milliseconds, between the bounds of the histogram. */
export function estimate(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  const [least, most] = [0.01, 10000];
  return ms <= least ? `<${milliseconds(least)}` : ms >= most ? `>${milliseconds(most)}`
    : `≈${milliseconds(Number(ms.toPrecision(2)))}`;
}

const { causes: CAUSES } = JSON.parse(document.getElementById("config").textContent);

/** Returns the cause of a miss or a removal, as it begins a line. */
export const causeName = (cause) => CAUSES[cause] ?? `${cause[0].toUpperCase()}${cause.slice(1)}`;

/** Returns the name of a group of keys: empty for all keys of no group, null for all groups that are not shown alone. */
export const groupName = (name) => (name === null ? "all others" : name || "other keys");
