// Numbers, sizes, durations and instants as text. What is not known is a dash.

export const UNKNOWN = "–";

const known = (value) => value !== null && value !== undefined;

/** Return a count with separators. */
export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : UNKNOWN;
}

/** Return a count in at most four characters and a unit: 1234567 is 1.2 M. */
export function short(value) {
  if (!known(value)) return UNKNOWN;
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) {
      const scaled = value / (unit === "k" ? 1e3 : size);
      return `${scaled >= 100 ? scaled.toFixed(0) : scaled.toFixed(1)} ${unit}`;
    }
  }
  return count(value);
}

/** Return a rate in rows per second. */
export function rate(value) {
  if (!known(value)) return UNKNOWN;
  return `${value > 0 && value < 10 ? value.toFixed(1) : short(value)}/s`;
}

/** Return a share as a percentage. */
export function percent(value) {
  return known(value) ? `${Math.round(value * 100)} %` : UNKNOWN;
}

/** Return a size in bytes. */
export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  }
  return `${count(value)} B`;
}

/** Return a duration in its one or two greatest units: 65 seconds are 1m 5s. */
export function duration(milliseconds) {
  if (!known(milliseconds)) return UNKNOWN;
  const value = Math.abs(milliseconds);
  const sign = milliseconds < 0 ? "−" : "";
  if (value === 0) return "0 s";
  if (value < 1000) return `${sign}${Math.round(value)} ms`;
  if (value < 10_000) return `${sign}${(value / 1000).toFixed(1)} s`;
  const units = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];
  const seconds = Math.round(value / 1000);
  const at = units.findIndex(([, size]) => seconds >= size);
  const [unit, size] = units[at];
  const rest = at + 1 < units.length ? Math.floor((seconds % size) / units[at + 1][1]) : 0;
  return `${sign}${Math.floor(seconds / size)}${unit}${rest ? ` ${rest}${units[at + 1][0]}` : ""}`;
}

/** Return an instant in UTC, in whole seconds. */
export function instant(milliseconds) {
  if (!known(milliseconds)) return UNKNOWN;
  const date = new Date(milliseconds);
  // Drains end with the greatest time there is, which no calendar has.
  if (Number.isNaN(date.getTime()) || date.getUTCFullYear() > 9999) return "end of time";
  return date.toISOString().replace("T", " ").replace(/\.\d+Z$/, "Z");
}
