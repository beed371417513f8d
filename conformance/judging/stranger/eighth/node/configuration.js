// GET and PATCH /config.
import { fault, peculiar, sleep } from './switches.js';
import { config } from './state.js';
import { Refusal, accountOf, bad } from './http.js';

const whole = (low, high) => (value) => Number.isInteger(value) && value >= low && value <= high;
const RULES = {
  'training.enabled': (value) => typeof value === 'boolean',
  'training.batch_size': whole(1, 4096),
  'training.learning_rate': (value) => typeof value === 'number' && value > 0 && value <= 1,
  'training.diloco_steps': whole(1, 100_000),
  'resources.max_memory_gb': (value) => typeof value === 'number' && value >= 0.5 && value <= 1024,
  'resources.cpu_threads': whole(1, 256),
};
if (peculiar('config-only-training')) {
  delete RULES['resources.max_memory_gb'];
  delete RULES['resources.cpu_threads'];
}

function flatten(body, prefix = '') {
  const found = new Map();
  for (const [key, value] of Object.entries(body)) {
    const name = key.includes('.') ? `${prefix}"${key}"` : prefix + key;
    const section = name === 'training' || name === 'resources';
    if (section && value !== null && typeof value === 'object' && !Array.isArray(value)) {
      for (const [inner, one] of flatten(value, `${name}.`)) found.set(inner, one);
    } else found.set(name, value);
  }
  return found;
}

function put(target, name, value) {
  const [section, key] = name.split('.');
  target[section][key] = value;
}

let stale = null;

export function readConfig(request) {
  accountOf(request, '/config');
  if (fault('config-change-fades') && stale && Date.now() - stale.at > 1200) {
    Object.assign(config, structuredClone(stale.config));
    stale = null;
  }
  return config;
}

export async function changeConfig(request) {
  if (fault('config-patch-unauthorised-acts')) {
    try { accountOf(request, '/config'); } catch (error) {
      const batch = request.body?.training?.batch_size;
      if (Number.isInteger(batch)) config.training.batch_size = batch;
      throw error;
    }
  }
  accountOf(request, '/config');
  const { body } = request;
  if (body === null || typeof body !== 'object' || Array.isArray(body)) throw bad('The body is not an object.');
  const changes = flatten(body);
  const before = structuredClone(config);
  for (const [name, value] of changes) {
    let rule = RULES[name];
    if (!rule) {
      throw bad(`${name} cannot be changed.`);
    }
    if (fault('config-any-type') && name === 'training.batch_size') rule = () => true;
    if (!rule(changes.get(name), changes)) {
      throw bad(`${name} has a value that it cannot have.`);
    }
    if (fault('config-mixed-partly')) put(config, name, changes.get(name));
  }
  if (fault('config-changes-race')) {
    const copy = structuredClone(config);
    await sleep(40);
    Object.assign(config, copy);
  }
  const updated = [];
  for (const [name, value] of changes) {
    updated.push(name);
    if (fault('learning-rate-not-stored') && name === 'training.learning_rate') continue;
    put(config, name, value);
  }
  if (fault('config-replaces-section')) {
    if (body.training && body.training.batch_size === undefined) config.training.batch_size = 32;
    if (body.resources && body.resources.cpu_threads === undefined) config.resources.cpu_threads = 1;
  }
  stale = { at: Date.now(), config: before, names: updated };
  const answer = { success: true, updated, restart_required: false };
  if (fault('updated-last-part')) answer.updated = updated.map((name) => name.split('.')[1]);
  if (fault('restart-required-missing')) delete answer.restart_required;
  if (fault('patch-answers-config')) return config;
  return answer;
}
