// Amounts are kept as whole numbers of atoms; the node API shows whole units.
export const ATOMS = 1_000_000;

export const units = (atoms) => atoms / ATOMS;

/** Atoms of a JSON number, or null if it is no amount. */
export function atomsOf(value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return null;
  const atoms = Math.round(value * ATOMS);
  if (!Number.isSafeInteger(atoms)) return null;
  if (Math.abs(value * ATOMS - atoms) > 1e-3) return null;
  return atoms;
}

const DAY = 86_400_000;
export const dateOf = (ms) => new Date(ms).toISOString().slice(0, 10);
export const addDays = (date, days) => dateOf(Date.parse(`${date}T00:00:00Z`) + days * DAY);
export const daysBetween = (from, to) =>
  Math.round((Date.parse(`${to}T00:00:00Z`) - Date.parse(`${from}T00:00:00Z`)) / DAY);
