// What the files faults2_*.js share: a fault is a line there, and a switch F('id') where the behaviour is, or a function on one answer.
import { FAULTS } from './faults.js';
export const add = (kind) => (id, section, sentence, what, extra = {}) => FAULTS.push({ id: `a2-${id}`, kind, section, sentence, what, ...extra });
export const on = (name, fn) => ({ on: name, fn });
export const message = (name, from, to) => ({ schema: (text) => {
  const line = text.split('\n').find((l) => l.startsWith(`message ${name} `));
  if (!line?.includes(from)) throw new Error(`schema fault does not fit: ${name} ${from}`);
  return text.replace(line, line.replace(from, to));
} });
