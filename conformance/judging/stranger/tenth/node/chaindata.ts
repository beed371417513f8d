import { HIDDEN, MY_LAYERS, TOTAL_LAYERS, VOCABULARY, STARTED, iso, sha256, sha256hex } from "./identity.ts";
import { publicKeyOf } from "./keys.ts";

// What the chain began with. All of it is the same in every run.
export const CHAIN_ID = "tenth-toynet-1";
export const PRICE = 2_000n; // atoms for a request
export const FEE = 100n;
export const ATOMS = 1_000_000n;
export const GENESIS_TIME = "2026-01-01T00:00:00.000Z";
export const DEFAULT_PROVIDER = sha256hex("provider of the toy network");

export const DATASET = Buffer.from(
  JSON.stringify({
    name: "toy-dataset",
    tokenizer: "letters",
    vocabulary: VOCABULARY,
    sequences: Array.from({ length: 16 }, (_, i) => [...sha256("sequence " + i)].map((b) => b % VOCABULARY)),
  }),
);

const balances: Record<string, bigint> = { user: 50n * ATOMS, history: 20n * ATOMS, second: 5n * ATOMS };
export const ACCOUNT_KEYS: Record<string, string> = Object.fromEntries(
  Object.keys(balances).map((name) => [name, publicKeyOf(name)]),
);
export const VALIDATORS = ["one", "two", "three"].map((name, i) => ({
  owner: publicKeyOf("validator " + name),
  power: 30 - i * 5,
  bond_atoms: String(BigInt(30 - i * 5) * ATOMS),
}));
const validatorBalances = VALIDATORS.map((v, i): [string, bigint] => [v.owner, BigInt(i + 1) * ATOMS]);
export const ALLOCATIONS: [string, bigint][] = [
  ...Object.entries(balances).map(([name, atoms]): [string, bigint] => [ACCOUNT_KEYS[name], atoms]),
  ...validatorBalances,
];
const bonds = VALIDATORS.reduce((sum, v) => sum + BigInt(v.bond_atoms), 0n);
export const SUPPLY = ALLOCATIONS.reduce((sum, [, atoms]) => sum + atoms, 0n) + bonds;

/** Weights of a layer, as float32: what a hash of its name and of the round gives. */
export function layerWeights(index: number, round: number): Float32Array {
  const weights = new Float32Array(HIDDEN * 2);
  for (let i = 0; i < weights.length; i++) {
    if (i % 8 === 0) block = sha256(`layer ${index} weights ${i}`);
    weights[i] = (block.readUInt32LE((i % 8) * 4) / 0xffff_ffff - 0.5) * (1 - round / 100_000);
  }
  return weights;
}
let block: Buffer = Buffer.alloc(32);

/** The safetensors form of the layers: the length of the header, the header in JSON, the values. */
export function stateDictionary(layers: number[], round: number): Buffer {
  const header: any = {};
  const parts: Buffer[] = [];
  let at = 0;
  for (const index of layers) {
    const w = layerWeights(index, round);
    const bytes = Buffer.from(w.buffer, w.byteOffset, w.byteLength);
    header[`layers.${index}.weight`] = {
      dtype: "F32",
      shape: [2, HIDDEN],
      data_offsets: [at, at + bytes.length],
    };
    parts.push(bytes);
    at += bytes.length;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, ...parts]);
}

const everyLayer = Array.from({ length: TOTAL_LAYERS }, (_, i) => i);
export const adapter = (round: number): Buffer => stateDictionary(everyLayer, round);
export const adapterRoot = (round: number): string => sha256hex("root:" + sha256hex(adapter(round)));
export const modelHash = (round: number): string => sha256hex(adapter(round));

export const BASE_MODEL = stateDictionary(everyLayer, 0);
export const SERVED_ROUND = 4;
export const SERVING_ROOT = adapterRoot(SERVED_ROUND);

export const GENESIS = Buffer.from(
  JSON.stringify({
    chain_id: CHAIN_ID,
    genesis_time: GENESIS_TIME,
    version: "0.4.0",
    dataset_sha256: sha256hex(DATASET),
    model_sha256: sha256hex(BASE_MODEL),
    fixed_price_atoms: String(PRICE),
    fee_atoms: String(FEE),
    supply_atoms: String(SUPPLY),
    validators: VALIDATORS,
    allocations: ALLOCATIONS.map(([public_key, atoms]) => ({ public_key, atoms: String(atoms) })),
  }),
);
export const GENESIS_HASH = sha256hex(GENESIS);

export const artifacts = new Map<string, Buffer>(
  [DATASET, BASE_MODEL, GENESIS].map((bytes): [string, Buffer] => [sha256hex(bytes), bytes]),
);

/** The loss of an update, exactly as the chain has it. */
export const exactLoss = (round: number): string => (1.2 + 3 / (1 + round / 10)).toFixed(9);

export const ROLES = { held: MY_LAYERS, started: iso(STARTED) };
