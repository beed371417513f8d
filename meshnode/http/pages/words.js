// Numbers, times and identifiers as people read them.

const whole = new Intl.NumberFormat("en");

export const count = (value) => whole.format(value);
export const short = (identifier, length = 8) => (identifier ? identifier.slice(0, length) : "");
export const clip = (text, length = 16) => (text.length > length ? `${text.slice(0, length)}…` : text);

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < 4) { value /= 1024; unit += 1; }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export const ms = (value) => (value >= 1000 ? `${(value / 1000).toFixed(1)} s` : value >= 100 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`);

/** Atoms, as text or BigInt, in whole units. */
export function units(atoms) {
  const value = BigInt(atoms), sign = value < 0n ? "-" : "", size = value < 0n ? -value : value;
  const rest = (size % 1000000n).toString().padStart(6, "0").replace(/0+$/, "");
  return sign + (size / 1000000n).toString().replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
}

/** Whole units, as people type them, in atoms; null if they cannot be read. */
export function atoms(text) {
  const match = /^\s*(\d{1,12})(?:\.(\d{1,6}))?\s*$/.exec(text);
  return match && BigInt(match[1]) * 1000000n + BigInt((match[2] ?? "").padEnd(6, "0"));
}

export function since(time) {
  const seconds = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h ago` : new Date(time).toISOString().slice(0, 10);
}

export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

/** Ascending numbers as ranges: `0-3, 7`. */
export function ranges(numbers) {
  const found = [];
  for (const n of numbers) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n; else found.push([n, n]);
  }
  return found.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}
