/** Formats numbers, times and plurals for the page. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const hundredths = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const inLocalTime = (options) => new Intl.DateTimeFormat("en-GB", options);
const minutes = inLocalTime({ hour: "2-digit", minute: "2-digit" });
const seconds = inLocalTime({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
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
export const clock = (at) => seconds.format(new Date(at * 1000));
export const minute = (at) => minutes.format(new Date(at * 1000));

/** Formats a ratio. Only a ratio without a miss is "100%", and only one without a hit is "0%"; 0.9996 is "99.9%". */
export function percent(ratio) {
  if (ratio === 0 || ratio === 1) return `${ratio * 100}%`;
  return `${Math.min(99.9, Math.max(0.1, ratio * 100)).toFixed(1)}%`;
}

export function duration(s) {
  if (s < 120) return `${threeDigits(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
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

/** Estimates a percentile as Prometheus' histogram_quantile does: values are spread evenly within a bucket. */
export function percentile({ bounds, counts }, share) {
  const sum = counts.reduce((a, b) => a + b, 0);
  if (!sum) return NOTHING;
  let left = sum * share;
  for (const [i, high] of bounds.entries()) {
    const low = bounds[i - 1] ?? 0;
    const estimate = low + (high - low) * (left / counts[i]);
    if (left <= counts[i] && !i) return `<${milliseconds(high * 1000)}`;
    if (left <= counts[i]) return `≈${milliseconds(Number((estimate * 1000).toPrecision(2)))}`;
    left -= counts[i];
  }
  return `>${milliseconds(bounds.at(-1) * 1000)}`;
}
