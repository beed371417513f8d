// The single faults that can be switched on: id | kind | section of the interface | what is wrong.
import { effects, fields, guards, limits } from './faults-a.js';
import { numbers, refusals, relations, routes } from './faults-b.js';

const lines = [effects, fields, guards, limits, numbers, refusals, relations, routes].join('\n').split('\n').filter((line) => line.trim());
export const faults = lines.map((line) => {
  const [id, kind, section, text] = line.split('|').map((part) => part.trim());
  return { id, kind, section, text };
});
