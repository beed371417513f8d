import { F, P } from './switches.js';
const pad = (n, w = 2) => String(n).padStart(w, '0');
// ISO 8601 in UTC, with microseconds and the offset written out
export function stamp(ms = Date.now()) {
  if (F('l-timestamp-rfc1123')) return new Date(ms).toUTCString();
  if (F('l-timestamp-berlin')) return new Date(ms + 3600e3).toISOString().replace('Z', '+01:00');
  if (F('l-timestamp-local-as-utc')) return new Date(ms + 2 * 3600e3).toISOString();
  if (F('l-timestamp-space')) return new Date(ms).toISOString().slice(0, 19).replace('T', ' at ');
  if (P('p-time-seconds')) return new Date(ms).toISOString().slice(0, 19) + 'Z';
  if (P('p-time-nanos')) return new Date(ms).toISOString().slice(0, 23) + '000000Z';
  return new Date(ms).toISOString().slice(0, 23) + '000+00:00';
}
export function day(ms = Date.now()) {
  const d = new Date(ms);
  if (F('l-date-german')) return `${pad(d.getUTCDate())}.${pad(d.getUTCMonth() + 1)}.${d.getUTCFullYear()}`;
  if (F('l-date-as-datetime')) return d.toISOString().slice(0, 10) + 'T00:00:00Z';
  if (F('l-date-slashes')) return `${d.getUTCFullYear()}/${pad(d.getUTCMonth() + 1)}/${pad(d.getUTCDate())}`;
  return d.toISOString().slice(0, 10);
}
export const DAY = 86400e3;
export const today = () => Math.floor(Date.now() / DAY) * DAY;
