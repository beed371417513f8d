import { bad, odd } from "./faults.ts";
import { VERSION, iso, sha256hex } from "./identity.ts";
import * as chain from "./chain.ts";
import {
  ATOMS,
  CHAIN_ID,
  DATASET,
  DEFAULT_PROVIDER,
  FEE,
  GENESIS,
  GENESIS_HASH,
  PRICE,
  SERVING_ROOT,
  SUPPLY,
  VALIDATORS,
  artifacts,
  exactLoss,
  modelHash,
} from "./chaindata.ts";
import { Refusal, invalid, queryInt, route, type Answer, type Ctx, type Route } from "./http.ts";
import { verify } from "./keys.ts";

const missing = (text: string): Refusal => new Refusal(404, "NOT_FOUND", text);
const JSON_TYPE = { "content-type": "application/json" };

function healthz(): Answer {
  if (bad("rte-healthz-catching-up")) return { json: { status: "catching_up", height: chain.height() } };
  return { json: { status: "ready", chain_id: CHAIN_ID, height: chain.height() } };
}

function network(): Answer {
  const tip = chain.tip();
  return {
    json: {
      version: "0.4.0",
      chain_id: CHAIN_ID,
      genesis_hash: GENESIS_HASH,
      height: tip.height,
      block_hash: tip.hash,
      block: {
        height: tip.height,
        hash: bad("rel-network-pair") ? tip.parent_hash : tip.hash,
        time: iso(tip.time),
      },
      training_round: bad("rel-round-behind") ? chain.round() - 3 : chain.round(),
      supply_atoms: String(SUPPLY),
      ready: true,
      node_version: VERSION,
    },
  };
}

function model(): Answer {
  const now = chain.round();
  const root = chain.updates[now - 1].root;
  return {
    json: {
      chain_id: CHAIN_ID,
      genesis_hash: GENESIS_HASH,
      revision: `toy-r${now}`,
      parameters: { frozen: 4416, trained: 192 },
      training_root: root,
      serving_root: SERVING_ROOT,
      losses: { latest: exactLoss(now), first: exactLoss(1) },
      execution_profile: "cpu-float32",
    },
  };
}

function checkpoint(): Answer {
  const update = chain.updates[chain.round() - 1];
  const sha = modelHash(update.round);
  return {
    json: {
      chain_id: CHAIN_ID,
      genesis_hash: GENESIS_HASH,
      round: update.round,
      root: update.root,
      adapter: { sha256: sha, bytes: artifacts.get(sha)!.length, path: "/artifacts/sha256/" + sha },
    },
  };
}

interface Paging {
  limit: number;
  before: number;
}
function paging(query: URLSearchParams, top: number, kind: string): Paging {
  const wanted = queryInt(query, "limit", 20);
  const limit = Math.min(wanted, 100);
  let before = Math.min(queryInt(query, "before", top + 1), top + 1);
  if (bad("lim-training-before-ignored") && kind === "training") before = top + 1;
  if (bad("lim-before-too-low") && query.has("before")) before -= 1;
  if (odd("before-inclusive") && query.has("before")) before = Math.min(before + 1, top + 1);
  if (bad("lim-before-is-offset") && query.has("before"))
    before = Math.max(0, top + 1 - Number(query.get("before")));
  return { limit: bad("lim-native-one-more") ? limit + 1 : limit, before };
}

function training({ query }: Ctx): Answer {
  const { limit, before } = paging(query, chain.round(), "training");
  let list = chain.updates.filter((u) => u.round < before).reverse();
  list = list.slice(0, limit);
  const updates = list.map((u) => ({
    ...u,
    root: bad("rel-update-roots-vary") ? sha256hex(u.root + limit) : u.root,
  }));
  return { json: { updates, index: { round: chain.round(), height: chain.height(), error: null } } };
}

export function blockHead(b: chain.Block): any {
  return {
    height: b.height,
    hash: b.hash,
    parent_hash: b.parent_hash,
    time: iso(b.time),
    tx_count: b.txs.length,
    results: b.results,
  };
}

export function transactionOf(t: chain.Tx): any {
  const { public_key, ...body } = t.body;
  if (bad("fld-block-no-prompt")) delete body.prompt;
  return {
    hash: t.hash,
    type: "inference_request",
    request_id: t.request_id,
    public_key,
    ...body,
    signature: t.signature,
  };
}

function blocks({ query }: Ctx): Answer {
  const { limit, before } = paging(query, chain.height(), "blocks");
  let list = chain.blocks.slice(0, Math.max(0, before - 1)).reverse();
  list = list.slice(0, limit);
  if (bad("rel-blocks-empty-left-out")) list = list.filter((b) => b.txs.length || b.height % 7);
  const shown = list.map(blockHead);
  if (bad("fld-results-null")) for (const b of shown) b.results = null;
  return { json: { blocks: odd("blocks-ascending") ? shown.reverse() : shown, height: chain.height() } };
}

function block({ params }: Ctx): Answer {
  const text = params[0];
  if (!/^\d{1,12}$/.test(text)) throw invalid("the height must be a whole number");
  let at = Number(text);
  if (bad("lim-block-above") && at > chain.height()) at = chain.height();
  const found = chain.blocks[at - 1];
  if (!found) throw missing("there is no such block");
  return { json: { ...blockHead(found), transactions: found.txs.map(transactionOf) } };
}

let lastKey = "";
function account({ query }: Ctx): Answer {
  let key = (query.get("public_key") ?? "").toLowerCase();
  if (!/^0[23][0-9a-f]{64}$/.test(key))
    throw invalid("public_key must be a compressed public key in hexadecimal");
  if (bad("ref-key-03") && key.startsWith("03")) throw invalid("not a valid point");
  if (bad("rel-account-cached")) key = lastKey ||= key;
  const a = chain.accountOf(key);
  const atoms = (n: bigint): any =>
    bad("fld-atoms-decimals") ? (Number(n) / Number(ATOMS)).toFixed(6) : String(n);
  return {
    json: {
      public_key: key,
      spendable_atoms: atoms(a.spendable),
      locked_atoms: atoms(a.locked),
      liquid_atoms: atoms(a.spendable + a.locked),
      next_nonce: bad("fld-nonce-last") ? a.nonce - 1 : a.nonce,
    },
  };
}

function validators({ query }: Ctx): Answer {
  const limit = queryInt(query, "limit", 50);
  const offset = queryInt(query, "offset", 0);
  const list = VALIDATORS.slice(offset, offset + limit).map((v) => ({
    ...v,
    owner: bad("fld-owner-null") ? null : v.owner,
    bond_atoms: v.bond_atoms,
  }));
  return { json: { validators: list, total: VALIDATORS.length, limit, offset } };
}

function inference(): Answer {
  return {
    json: {
      chain_id: CHAIN_ID,
      genesis_hash: GENESIS_HASH,
      serving_root: SERVING_ROOT,
      default_provider: DEFAULT_PROVIDER,
      heartbeat: { state: "alive", height: chain.height() },
      price_atoms: String(PRICE),
      fee_atoms: String(FEE),
      queue_length: chain.queue().length,
    },
  };
}

function jobOf(query: URLSearchParams): chain.Job {
  const id = (query.get("id") ?? "").toLowerCase();
  if (!/^[0-9a-f]{64}$/.test(id)) throw invalid("id must be a request id of 64 hexadecimal digits");
  const job = chain.jobs.get(id);
  if (job) return job;
  throw missing("there is no such request among those that are kept");
}

export function record(job: chain.Job): any {
  const { prompt, provider, max_tokens, expires_height } = job.body;
  const shown: any = {
    request_id: job.request_id,
    state: job.state,
    public_key: job.public_key,
    transaction_hash: job.tx_hash,
    prompt,
    provider,
    max_tokens,
    expires_height,
    height: job.height,
  };
  if (bad("rel-record-prompt")) shown.prompt = (prompt ?? "").toLowerCase();
  if (job.state === "completed") {
    shown.completed_height = job.ended;
    shown.response = bad("rel-response-changes") ? chain.respond(job) : job.response;
  }
  if (job.state === "expired") {
    shown.expired_height = job.ended;
    if (!bad("fld-no-refund-record")) shown.refund = job.refund;
  }
  return shown;
}

const request = ({ query }: Ctx): Answer => {
  const job = jobOf(query);
  return { json: record(job) };
};

function artifact({ params }: Ctx): Answer {
  let sha = params[0].toLowerCase();
  if (bad("ref-artifact-prefix"))
    sha = [...artifacts.keys()].find((k) => k.startsWith(sha.slice(0, 16))) ?? sha;
  if (!/^[0-9a-f]{64}$/.test(sha)) throw invalid("the digest must have 64 hexadecimal digits");
  const bytes = artifacts.get(sha);
  if (!bytes) throw missing("there is no such artifact");
  return { raw: new Uint8Array(bytes), headers: { "content-type": "application/octet-stream" } };
}

function workStatus(): Answer {
  return {
    json: {
      sponsor: null,
      stages: [
        { stage: "train", available: true },
        { stage: "evaluate", available: false },
      ],
      attempts_remaining: 3,
      round: chain.round(),
    },
  };
}

/** The message of a worker, if it is signed by its own key; a fault may let others pass. */
function workMessage(raw: string, forgedPasses: boolean, unsignedPasses: boolean): any {
  let body: any;
  try {
    body = JSON.parse(raw);
  } catch {
    throw invalid("the body is not JSON");
  }
  const message = body?.message;
  if (typeof message !== "object" || message === null || Array.isArray(message)) {
    if (unsignedPasses) return undefined;
    throw invalid("the body must have a message");
  }
  if (unsignedPasses && body.signature === undefined) return undefined;
  if (!verify("work", message, body.signature, message.public_key)) {
    if (forgedPasses && body.signature) return undefined;
    throw new Refusal(401, "UNAUTHORIZED", "the signature is not valid");
  }
  if (message.chain_id !== CHAIN_ID) throw new Refusal(409, "CONFLICT", "the message is for another chain");
  return message;
}

function poll({ raw }: Ctx): Answer {
  const message = workMessage(raw, bad("grd-forged-poll"), false);
  if (message && message.type !== "work_poll") throw invalid("type must be work_poll");
  return { json: { work: null, retry_after: 5, round: chain.round() } };
}

function result({ raw }: Ctx): Answer {
  const message = workMessage(raw, bad("grd-forged-result"), bad("grd-unsigned-result"));
  if (!message) return { json: { accepted: true } };
  if (message.type !== "work_result") throw invalid("type must be work_result");
  throw missing("there is no such work");
}

export function nativeRoutes(): void {
  const add = (method: string, path: string | RegExp, run: Route["run"], body?: "json" | "any"): void => {
    const label =
      method + " " + (typeof path === "string" ? path : path.source.replaceAll("\\", "").split("(")[0]);
    route({ method, path, label, run, body, native: true });
  };
  add("GET", "/healthz", healthz);
  add("GET", "/api/network", network);
  add("GET", "/api/model", model);
  add("GET", "/api/model/checkpoint.json", checkpoint);
  add("GET", "/api/training", training);
  add("GET", "/api/blocks", blocks);
  add("GET", /^\/api\/block\/([^/]+)$/, block);
  add("GET", "/api/account", account);
  add("GET", "/api/validators", validators);
  add("GET", "/api/inference", inference);
  add("GET", "/api/inference/request", request);
  const file = (bytes: Buffer) => (): Answer => ({ raw: new Uint8Array(bytes), headers: JSON_TYPE });
  add("GET", "/network/genesis.json", file(GENESIS));
  const dataset = bad("rel-dataset-reformatted")
    ? Buffer.from(JSON.stringify(JSON.parse(DATASET.toString()), null, 1))
    : DATASET;
  add("GET", "/network/dataset.json", file(dataset));
  add("GET", /^\/artifacts\/sha256\/([^/]+)$/, artifact);
  add("GET", "/work/status", workStatus);
  add("POST", "/work/poll", poll, "any");
  if (!bad("rte-no-work-result")) add("POST", "/work/result", result, "any");
}

export const page = (title: string): Answer => ({
  raw: `<!doctype html><title>${title}</title><p>${title}</p>\n`,
  headers: { "content-type": "text/html; charset=utf-8" },
});
