// The toy chain behind the native API: genesis, blocks, updates, accounts, inference requests.
import { createHash, createPublicKey, verify } from 'node:crypto';
import { fault, peculiar, sleep } from './switches.js';
import { hex } from './state.js';

export const keyOf = (name, prefix = '02') => prefix + hex(`key of ${name}`);
export const CHAIN_ID = 'toy-native-4';
export const dataset = Buffer.from(JSON.stringify({
  name: 'toy-words', tokens: Array.from({ length: 256 }, (_, n) => (n * 37 + 11) % 97),
}));
export const digestOf = (bytes) => createHash('sha256').update(bytes).digest('hex');
const manifest = Buffer.from(JSON.stringify({ files: [{ name: 'dataset.json', sha256: digestOf(dataset) }] }));
const weights = Buffer.from(Array.from({ length: 4096 }, (_, n) => (n * n + 7) % 251));
export const artifacts = new Map([dataset, manifest, weights].map((bytes) => [digestOf(bytes), bytes]));

export const validators = ['north', 'south', 'east'].map((name, n) => ({
  owner: keyOf(name), public_key: keyOf(`${name} signer`, '03'), power: 30 - 5 * n, bond_atoms: String((3 - n) * 50_000_000_000),
}));
const genesis = {
  chain_id: CHAIN_ID, genesis_time: '2026-01-01T00:00:00Z', version: '0.4.0', dataset_sha256: digestOf(dataset),
  artifacts: { manifest_sha256: digestOf(manifest), weights_sha256: digestOf(weights) },
  supply_atoms: '5000000000000000', validators,
};
export const genesisBytes = Buffer.from(`${JSON.stringify(genesis, null, 2)}\n`);
export const GENESIS_HASH = digestOf(genesisBytes);
export const PROVIDERS = { ready: keyOf('provider one'), silent: keyOf('provider two') };
export const PRICE = peculiar('native-price-zero') ? 0 : 2_500;
export const FEE = 400;

export const accounts = new Map();
export function native(key) {
  return accounts.get(key) ?? { spendable: 0n, locked: 0n, nonce: 0 };
}
accounts.set(keyOf('alice'), { spendable: 90_000_000_000n, locked: 0n, nonce: 66 });
accounts.set(keyOf('bob'), { spendable: 12_345_678_901_234_567n, locked: 0n, nonce: 66 });
accounts.set(keyOf('north'), { spendable: 7_000_000n, locked: 150_000_000_000n, nonce: 3 });

export const blocks = [];
export const updates = [];
export const requests = new Map();
export const finished = [];
const KEPT = fault('finished-jobs-64') ? 64 : 128;

export const height = () => blocks.length;
const T0 = Date.parse('2026-01-01T00:00:00Z');

function finish(request, status, at) {
  request.status = status;
  if (status === 'completed') {
    request.completed_at_height = at;
    request.response = { text: `An answer to: ${request.prompt}`, tokens: 6 };
  } else {
    request.refund = { atoms: request.total_atoms, to: request.public_key, height: at };
  }
  finished.push(request.request_id);
  while (finished.length > KEPT) requests.delete(finished.shift());
}

/** Makes the next block from transactions that passed their check. */
export function makeBlock(transactions, time) {
  const at = blocks.length + 1;
  const previous = blocks.at(-1)?.hash ?? GENESIS_HASH;
  const hash = hex(`${previous} ${at} ${transactions.map((one) => one.hash)}`);
  for (const one of transactions) {
    if (one.type === 'inference_request') {
      requests.set(one.request_id, {
        request_id: one.request_id, status: 'pending', prompt: one.prompt, max_tokens: one.max_tokens, provider: one.provider,
        public_key: one.public_key, price_atoms: one.price_atoms, total_atoms: one.total_atoms, checkpoint: one.checkpoint,
        expires_at_height: one.expires_at_height, submitted_at_height: at, transaction_hash: one.hash,
      });
    }
    if (one.type === 'training_update') updates.push({ ...one.update, height: at });
  }
  blocks.push({
    height: at, hash, previous_hash: previous, time: new Date(time).toISOString(), transactions,
    results: transactions.map((one) => ({ transaction_hash: one.hash, code: 0, log: '' })),
  });
}

const inference = (n, who, expires) => ({
  type: 'inference_request', hash: hex(`tx inference ${n}`), request_id: `req_${hex(`request ${n}`).slice(0, 32)}`,
  chain_id: CHAIN_ID, public_key: keyOf(who), nonce: Math.floor(n / 2), provider: PROVIDERS.ready,
  checkpoint: hex('serving root'), prompt: `Question ${n}: what is ${n} plus ${n}?`, max_tokens: 16 + (n % 5),
  price_atoms: String(PRICE), fee_atoms: String(FEE), total_atoms: String(PRICE + FEE), expires_at_height: expires,
});
let made = 0;
for (let at = 1; at <= 96; at += 1) {
  const transactions = [];
  if (at % 4 === 0) {
    const round = at / 4;
    transactions.push({
      type: 'training_update', hash: hex(`tx update ${round}`), public_key: keyOf('worker'),
      update: {
        round, loss: (4 - round * 0.0625).toFixed(6), training_root: hex(`training root ${round}`), model_root: hex(`model root ${round}`),
      },
    });
  }
  if (at > 30) for (let n = 0; n < 2; n += 1) {
    const waits = at > 94;
    transactions.push(inference(made, made % 2 ? 'bob' : 'alice', waits ? 1_000_000 : at + 6));
    made += 1;
  }
  makeBlock(transactions, T0 + at * 60_000);
  for (const request of [...requests.values()]) {
    if (request.status !== 'pending' || request.expires_at_height > 900_000) continue;
    const number = Number(/\d+/.exec(request.prompt)[0]);
    if (number % 13 === 5) { if (request.expires_at_height <= at) finish(request, 'expired', at); }
    else if (request.submitted_at_height < at) finish(request, 'completed', at);
  }
}
for (const one of requests.values()) {
  if (one.status === 'pending') accounts.get(one.public_key).locked += BigInt(one.total_atoms);
}
export const newestRound = () => updates.at(-1).round;

// ---- signed messages -------------------------------------------------------------------------------------------------

export const canonical = (value) => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`;
};

/** True if `signature` (hex) is the Ed25519 signature of the rest under `public_key` ("ed" + 64 hex digits). */
export function signed(message) {
  const { signature, ...rest } = message;
  if (typeof signature !== 'string' || !/^ed[0-9a-f]{64}$/.test(message.public_key ?? '')) return false;
  const der = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), Buffer.from(message.public_key.slice(2), 'hex')]);
  try {
    const key = createPublicKey({ key: der, format: 'der', type: 'spki' });
    return verify(null, Buffer.from(canonical(rest)), key, Buffer.from(signature, 'hex'));
  } catch { return false; }
}
// The account of the public test key that sign.js signs with.
export const TEST_KEY = 'ed' + '8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c';
accounts.set(TEST_KEY, { spendable: 500_000_000n, locked: 0n, nonce: 0 });

let working = false;
const waiting = [];
async function work() {
  if (working) return;
  working = true;
  for (;;) {
    await sleep(250);
    makeBlock(waiting.splice(0), Date.now());
    const at = height();
    for (const request of [...requests.values()]) {
      if (request.status !== 'pending' || request.expires_at_height > 900_000) continue;
      const owner = accounts.get(request.public_key);
      const cost = BigInt(request.total_atoms);
      const due = request.expires_at_height <= at;
      if (due) {
        finish(request, 'expired', at);
        owner.locked -= cost;
        if (!fault('native-refund-lost')) owner.spendable += cost;
      } else if (due || (request.provider === PROVIDERS.ready && request.submitted_at_height < at - 1 && !fault('native-never-completes'))) {
        finish(request, 'completed', at);
        owner.locked -= cost;
      }
    }
    if (!waiting.length && ![...requests.values()].some((one) => one.status === 'pending' && one.expires_at_height < 900_000)) break;
    if (height() > 5000) break;
  }
  working = false;
}

/** The preliminary check of a transaction: a code above 0 is a refusal. */
export function broadcast(message) {
  const no = (log) => ({ code: 1, log, hash: '' });
  if (message === null || typeof message !== 'object' || message.type !== 'inference_request') return no('not an inference request');
  if (!fault('native-signature-unchecked') && !signed(message)) return no('the signature does not fit');
  if (!fault('native-chain-unchecked') && message.chain_id !== CHAIN_ID) return no('another chain');
  const owner = accounts.get(message.public_key);
  if (!owner) return no('no such account');
  if (message.nonce !== owner.nonce) return no(`the next nonce is ${owner.nonce}`);
  if (!Number.isInteger(message.expires_at_height)) return no('no expiry');
  if (message.expires_at_height <= height() && !fault('native-past-expiry-accepted')) return no('already expired');
  if (typeof message.prompt !== 'string' || !Number.isInteger(message.max_tokens)) return no('no prompt or maximum');
  if (message.price_atoms !== String(PRICE)) return no('another price');
  if (message.checkpoint !== hex('serving root')) return no('another checkpoint is served');
  const total = BigInt(PRICE + FEE);
  if (owner.spendable < total) return no('too little to spend');
  const hash = hex(canonical(message));
  const id = `req_${hex(`request of ${hash}`).slice(0, 32)}`;
  if (!fault('native-nonce-stays')) owner.nonce += 1;
  owner.spendable -= total;
  owner.locked += total;
  const { signature, ...content } = message;
  const transaction = { ...content, hash, request_id: id, fee_atoms: String(FEE), total_atoms: String(total) };
  requests.set(id, { request_id: id, status: 'pending', prompt: message.prompt, max_tokens: message.max_tokens,
    provider: message.provider, public_key: message.public_key, price_atoms: message.price_atoms, total_atoms: String(total),
    checkpoint: message.checkpoint, expires_at_height: transaction.expires_at_height, submitted_at_height: height() + 1,
    transaction_hash: hash });
  waiting.push(transaction);
  work();
  return { code: 0, log: '', hash, request_id: id };
}
