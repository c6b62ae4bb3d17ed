// Numbers, sizes, durations and times as text.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number): string {
  if (!Number.isFinite(value) || value < 0) return "–";
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${UNITS[unit]}`;
}

export function millis(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return "–";
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
  return span(value);
}

const NUMBER = new Intl.NumberFormat("en");

export function count(value: number): string {
  return NUMBER.format(value);
}

/** A rate with at most three digits. */
export function rate(value: number): string {
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  return value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** A duration in its largest unit: "3 min", "2 d". */
export function span(value: number): string {
  const seconds = Math.max(0, Math.round(value / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** "3 min ago", "in 2 d", "just now". */
export function relative(at: number, now: number): string {
  const distance = now - at;
  if (Math.abs(distance) < 5_000) return "just now";
  return distance > 0 ? `${span(distance)} ago` : `in ${span(-distance)}`;
}

/** A price in its smallest unit. */
export function price(amountMinor: number, currency: string): string {
  try {
    const format = new Intl.NumberFormat("en", { style: "currency", currency });
    const digits = format.resolvedOptions().maximumFractionDigits ?? 2;
    return format.format(amountMinor / 10 ** digits);
  } catch {
    return `${amountMinor} ${currency}`;
  }
}

/** `project.created` as words. */
export function words(name: string): string {
  const text = name.replace(/[._-]+/g, " ").trim();
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A CSV document, whose cells a spreadsheet never reads as a formula. */
export function csv(rows: readonly (readonly string[])[]): string {
  const cell = (text: string) => {
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/**
 * The time from the start of the day `from` to the end of the day `to` in the reader's zone; days are
 * like `2026-01-31`. Another text is no limit.
 */
export function dayRange(from: string, to: string): { readonly start: number | undefined; readonly end: number | undefined } {
  // Days are not always 24 hours long.
  return { start: midnight(from, 0), end: midnight(to, 1) };
}

function midnight(day: string, later: number): number | undefined {
  const parts = /^(\d{4})-(\d{2})-(\d{2})$/.exec(day);
  if (parts === null) return undefined;
  return new Date(Number(parts[1]), Number(parts[2]) - 1, Number(parts[3]) + later).getTime();
}

// Made once: `toLocaleString` takes a quarter of a millisecond to make one, for each time of a list.
const LOCAL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const LOCAL_DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const LOCAL_MINUTES = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const LOCAL_SECONDS = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hour12: false });

/** A time in the reader's zone. */
export const localTime = (date: Date): string => LOCAL.format(date);

/** A day of this year in the reader's zone. */
export const localDay = (date: Date): string => LOCAL_DAY.format(date);

/** Hours and minutes in the reader's zone. */
export const localMinutes = (date: Date): string => LOCAL_MINUTES.format(date);

/** Hours, minutes and seconds in the reader's zone. */
export const localSeconds = (date: Date): string => LOCAL_SECONDS.format(date);

/** A time in the reader's zone and in UTC, for display on hover. */
export function bothZones(date: Date): string {
  return `${localTime(date)} · ${date.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC")}`;
}
