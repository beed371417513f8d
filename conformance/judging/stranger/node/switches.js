// Command line, and the two kinds of switches: --fault (one) and --peculiar (any number).
import { FAULTS } from './faults.js';
import './faults2_http.js';
import './faults2_money.js';
import './faults2_grpc.js';
import './faults2_native.js';
import './faults2_openai.js';
import { PECULIARITIES } from './peculiar.js';

const opt = { port: 8000, fault: null, peculiar: [], tokens: [], expired: [], peers: [], diverged: false, host: '0.0.0.0' };
const argv = process.argv.slice(2);
for (let i = 0; i < argv.length; i++) {
  const a = argv[i];
  const v = () => { if (i + 1 >= argv.length) { console.error(`${a} needs a value`); process.exit(2); } return argv[++i]; };
  if (a === '--port') opt.port = Number(v());
  else if (a === '--fault') opt.fault = v();
  else if (a === '--peculiar') opt.peculiar.push(...v().split(','));
  else if (a === '--token') opt.tokens.push(v());
  else if (a === '--expired') opt.expired.push(v());
  else if (a === '--peer') opt.peers.push(v());
  else if (a === '--host') opt.host = v();
  else if (a === '--diverged') opt.diverged = true;
  else { console.error(`unknown option ${a}`); process.exit(2); }
}
if (!Number.isInteger(opt.port) || opt.port < 1 || opt.port > 64535) { console.error('bad --port'); process.exit(2); }
if (!opt.tokens.length) opt.tokens = ['tok-a', 'tok-b'];
if (!opt.expired.length) opt.expired = ['tok-x'];

const known = new Map(FAULTS.map((f) => [f.id, f]));
if (opt.fault && !known.has(opt.fault)) { console.error(`unknown fault ${opt.fault}`); process.exit(2); }
for (const p of opt.peculiar) if (!PECULIARITIES.some((q) => q.id === p)) { console.error(`unknown peculiarity ${p}`); process.exit(2); }
if (opt.peculiar.includes('p-diverged') || opt.fault === 'l-working-while-diverged') opt.diverged = true;

export const options = opt;
export const active = opt.fault ? known.get(opt.fault) : null;
export const F = (id) => opt.fault === id;
export const P = (id) => opt.peculiar.includes(id);
// A fault of a single answer is a function on that answer: faults.js names the answer in `on`.
export function spoil(name, value, context) {
  if (!active || active.on !== name) return value;
  const r = active.fn(value, context);
  return r === undefined ? value : r;
}
export const schemaEdit = (text) => (active && active.schema ? active.schema(text) : text);
