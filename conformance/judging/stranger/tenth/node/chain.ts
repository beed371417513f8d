import { bad, odd } from "./faults.ts";
import { STARTED, iso, sha256hex } from "./identity.ts";
import {
  ACCOUNT_KEYS,
  ALLOCATIONS,
  CHAIN_ID,
  DEFAULT_PROVIDER,
  FEE,
  GENESIS_HASH,
  PRICE,
  SERVING_ROOT,
  adapter,
  adapterRoot,
  artifacts,
  exactLoss,
  modelHash,
} from "./chaindata.ts";
import { canonical, makeTransaction, requestIdOf, verify } from "./keys.ts";
import { generate } from "./toymodel.ts";

export const BLOCK_MS = 1500;
const FIRST_HEIGHTS = 120;
export const ROUND_BLOCKS = 15;
export const KEPT = 128;
const COST = PRICE + FEE;

export interface Tx {
  hash: string;
  request_id: string;
  body: any;
  signature: string;
  public_key: string;
}
export interface Block {
  height: number;
  time: number;
  hash: string;
  parent_hash: string;
  txs: Tx[];
  results: any[];
}
export interface Update {
  round: number;
  height: number;
  loss: string;
  root_before: string;
  root: string;
}
export interface Job {
  request_id: string;
  tx_hash: string;
  body: any;
  public_key: string;
  state: "pending" | "completed" | "expired";
  height: number;
  ended: number;
  response?: any;
  refund?: any;
}
interface Account {
  spendable: bigint;
  locked: bigint;
  nonce: number;
}

export const blocks: Block[] = []; // block n is at n - 1
export const updates: Update[] = [];
export const jobs = new Map<string, Job>();
const ended: string[] = [];
const accounts = new Map<string, Account>(
  ALLOCATIONS.map(([key, atoms]) => [key, { spendable: atoms, locked: 0n, nonce: 0 }]),
);
let mempool: Tx[] = [];
const seen = new Set<string>();

export const height = (): number => blocks.length;
export const tip = (): Block => blocks[blocks.length - 1];
export const round = (): number => updates.length;
export const accountOf = (key: string): Account =>
  accounts.get(key) ?? { spendable: 0n, locked: 0n, nonce: 0 };
export const queue = (): Job[] => [...jobs.values()].filter((j) => j.state === "pending");

function addUpdate(at: number): void {
  const number = updates.length + 1;
  updates.push({
    round: number,
    height: at,
    loss: exactLoss(number),
    root_before: adapterRoot(number - 1),
    root: adapterRoot(number),
  });
  const bytes = adapter(number);
  artifacts.set(modelHash(number), bytes);
}

function finish(job: Job, at: number): void {
  const account = accounts.get(job.public_key)!;
  if (!bad("eff-lock-stays")) account.locked -= COST;
  if (job.state === "expired" && !bad("eff-no-refund")) account.spendable += COST;
  job.ended = at;
  ended.push(job.request_id);
  const kept = bad("lim-hundred-jobs") ? 100 : odd("jobs-kept-longer") ? 512 : KEPT;
  while (ended.length > kept) jobs.delete(ended.shift()!);
}

export function respond(job: Job): any {
  const made = generate(job.body.prompt, {
    maxTokens: job.body.max_tokens,
    temperature: bad("rel-response-changes") ? 1 : 0,
    topP: 1,
    topK: 50,
    stop: [],
  });
  return { text: made.text, tokens: made.tokens, finish_reason: made.reason, provider: job.body.provider };
}

/** Jobs are answered two blocks after the one that has them, if their provider answers at all. */
function advanceJobs(at: number): void {
  for (const job of queue()) {
    const answers = job.body.provider === DEFAULT_PROVIDER;
    if (answers && at >= job.height + (odd("slow-jobs") ? 5 : 2) && at < job.body.expires_height) {
      job.state = "completed";
      job.response = respond(job);
      finish(job, at);
    } else if (at >= job.body.expires_height) {
      job.state = "expired";
      job.refund = { amount_atoms: String(COST), public_key: job.public_key, height: at };
      finish(job, at);
    }
  }
}

function makeBlock(time: number): void {
  const at = blocks.length + 1;
  const txs = mempool;
  mempool = [];
  const parent = at === 1 ? GENESIS_HASH : tip().hash;
  const results = txs.map((t) => ({ tx_hash: t.hash, request_id: t.request_id, code: 0, log: "accepted" }));
  const hash = sha256hex(canonical({ at, parent, time: iso(time), txs: txs.map((t) => t.hash) }));
  blocks.push({ height: at, time, hash, parent_hash: parent, txs, results });
  for (const t of txs) jobs.get(t.request_id)!.height = at;
  if (at % ROUND_BLOCKS === 0) addUpdate(at);
  advanceJobs(at);
}

export interface Verdict {
  code: number;
  log: string;
  hash: string;
  request_id?: string;
}

const FIELDS: Record<string, (v: any) => boolean> = {
  chain_id: (v) => typeof v === "string",
  public_key: (v) => typeof v === "string",
  nonce: (v) => Number.isSafeInteger(v) && v >= 0,
  provider: (v) => typeof v === "string" && /^[0-9a-f]{64}$/.test(v),
  checkpoint: (v) => typeof v === "string",
  prompt: (v) => typeof v === "string" && v.length > 0 && v.length <= 4000,
  max_tokens: (v) => Number.isInteger(v) && v >= 1 && v <= 256,
  price_atoms: (v) => typeof v === "string",
  fee_atoms: (v) => typeof v === "string",
  expires_height: (v) => Number.isSafeInteger(v),
};

/** The preliminary check of a transaction; one that passes waits for the next block. */
export function broadcast(bytes: Buffer): Verdict {
  const hash = sha256hex(bytes);
  const refuse = (code: number, log: string): Verdict => ({ code, log, hash });
  if (bytes.length > 16_384) return refuse(1, "the transaction is too long");
  let tx: any;
  try {
    tx = JSON.parse(bytes.toString("utf8"));
  } catch {
    return refuse(1, "the transaction cannot be decoded");
  }
  const body = tx?.body;
  if (typeof body !== "object" || body === null) return refuse(1, "the transaction cannot be decoded");
  for (const [name, ok] of Object.entries(FIELDS))
    if (!ok(body[name])) return refuse(2, `${name} is not valid`);
  if (Object.keys(body).length !== Object.keys(FIELDS).length) return refuse(2, "there are unknown fields");
  const genuine = verify("request", body, tx.signature, body.public_key);
  if (!genuine && !bad("grd-forged-request")) return refuse(3, "the signature is not valid");
  if (body.chain_id !== CHAIN_ID && !bad("ref-other-chain")) return refuse(4, "the chain is another one");
  const id = requestIdOf(body);
  const account = accountOf(body.public_key);
  const again = seen.has(id);
  if (again && !bad("eff-replay-charges")) return refuse(5, "the request is known already");
  if (body.nonce !== account.nonce && !again) return refuse(6, `the next nonce is ${account.nonce}`);
  if (body.expires_height <= height() && !bad("ref-past-expiry"))
    return refuse(7, "the request has expired already");
  if (body.expires_height > height() + 10_000) return refuse(7, "the request expires too late");
  if (body.checkpoint !== SERVING_ROOT) return refuse(8, "the checkpoint is not the one that is served");
  if (body.price_atoms !== String(PRICE) || body.fee_atoms !== String(FEE))
    return refuse(9, "the price is another one");
  if (account.spendable < COST) return refuse(10, "the account has too little");
  if (bad("ref-past-expiry") && body.expires_height <= height()) body.expires_height = height() + 30;
  accept({ hash, request_id: id, body, signature: tx.signature, public_key: body.public_key }, account);
  return { code: 0, log: "", hash, request_id: bad("rel-hash-is-id") ? hash : id };
}

function accept(tx: Tx, account: Account): void {
  seen.add(tx.request_id);
  if (bad("rel-hash-is-id")) tx.request_id = tx.hash;
  account.spendable -= COST;
  account.locked += COST;
  account.nonce += 1;
  mempool.push(tx);
  jobs.set(tx.request_id, {
    request_id: tx.request_id,
    tx_hash: tx.hash,
    body: tx.body,
    public_key: tx.public_key,
    state: "pending",
    height: height() + 1,
    ended: 0,
  });
}

const TOPICS = ["the river", "a stone bridge", "the old mill", "green glass", "winter light", "a paper boat"];

/** The blocks before this run, with the requests of one account; every tenth of those was not answered. */
function history(): void {
  let nonce = 0;
  for (let at = 1; at <= FIRST_HEIGHTS; at++) {
    const many = at > 20 && at < FIRST_HEIGHTS - 10 ? 1 + (at % 2) : 0;
    for (let i = 0; i < many; i++) {
      const unanswered = nonce % 10 === 9;
      const body = {
        chain_id: CHAIN_ID,
        public_key: ACCOUNT_KEYS.history,
        nonce,
        checkpoint: SERVING_ROOT,
        provider: unanswered ? sha256hex("nobody") : DEFAULT_PROVIDER,
        prompt: `Write about ${TOPICS[nonce % TOPICS.length]}, part ${nonce}.`,
        max_tokens: 12,
        price_atoms: String(PRICE),
        fee_atoms: String(FEE),
        expires_height: at + 6,
      };
      const tx = makeTransaction(body, "history");
      accept(
        { ...tx, body, signature: JSON.parse(tx.bytes.toString()).signature, public_key: body.public_key },
        accounts.get(body.public_key)!,
      );
      nonce += 1;
    }
    makeBlock(STARTED - (FIRST_HEIGHTS - at + 1) * BLOCK_MS);
  }
}

export function startChain(): void {
  history();
  const every = odd("fast-blocks") ? 500 : BLOCK_MS;
  setInterval(() => {
    if (odd("quiet-chain") && !mempool.length && !queue().length) return;
    makeBlock(Date.now());
  }, every);
}
