import { bad, odd } from "./faults.ts";
import { VERSION, iso } from "./identity.ts";
import * as chain from "./chain.ts";
import { CHAIN_ID, GENESIS_HASH, VALIDATORS } from "./chaindata.ts";
import { route, type Answer, type Ctx } from "./http.ts";
import { blockHead, record, transactionOf } from "./nativeapi.ts";

class RpcError extends Error {
  constructor(
    public code: number,
    message: string,
  ) {
    super(message);
  }
}

/** The parameters by name; a list has them in this order. */
function named(params: any, names: string[]): any {
  if (params === undefined || params === null) return {};
  if (Array.isArray(params))
    return Object.fromEntries(params.slice(0, names.length).map((v, i) => [names[i], v]));
  if (typeof params !== "object") throw new RpcError(-32602, "params must be an object or a list");
  return params;
}

function heightOf(params: any): number {
  const { height } = named(params, ["height"]);
  if (height === undefined || height === null) return chain.height();
  const n = typeof height === "string" && /^\d{1,12}$/.test(height) ? Number(height) : height;
  if (!Number.isInteger(n) || n < 1 || n > chain.height())
    throw new RpcError(-32602, "there is no such height");
  return n;
}

function status(): any {
  const tip = chain.tip();
  return {
    node_info: { network: bad("rel-rpc-chain") ? "toynet" : CHAIN_ID, version: VERSION },
    sync_info: {
      latest_block_height: String(tip.height),
      latest_block_hash: tip.hash,
      latest_block_time: iso(tip.time),
      genesis_hash: GENESIS_HASH,
      catching_up: false,
    },
  };
}

function block(params: any): any {
  if (bad("ref-rpc-block-needs-height") && named(params, ["height"]).height === undefined) {
    throw new RpcError(-32602, "height is needed");
  }
  let at = heightOf(params);
  if (bad("rel-rpc-block-latest")) at = chain.height();
  const b = chain.blocks[at - 1];
  const hash = b.hash;
  return { block_id: { hash }, block: { ...blockHead(b), hash, transactions: b.txs.map(transactionOf) } };
}

function validators(params: any): any {
  return { block_height: String(heightOf(params)), validators: VALIDATORS, total: String(VALIDATORS.length) };
}

function query(params: any): any {
  const { path, data } = named(params, ["path", "data", "height", "prove"]);
  const answer = (code: number, log: string, value?: any): any => ({
    response: {
      code,
      log,
      height: String(chain.height()),
      value: value === undefined ? null : Buffer.from(JSON.stringify(value)).toString("base64"),
    },
  });
  if (typeof path !== "string" || path.length > 64) throw new RpcError(-32602, "path must be a text");
  if (data !== undefined && (typeof data !== "string" || data.length > 1024))
    throw new RpcError(-32602, "data is hex");
  if (path === "/jobs" && !bad("rte-no-jobs")) return answer(0, "", chain.queue().map(record));
  if (path === "/job") {
    const job = chain.jobs.get((data ?? "").replace(/^0x/, "").toLowerCase());
    return job ? answer(0, "", record(job)) : answer(1, "there is no such job");
  }
  return answer(2, "there is no such path");
}

function broadcast(params: any): any {
  const { tx } = named(params, ["tx"]);
  if (typeof tx !== "string" || tx.length > 32_768 || !/^[A-Za-z0-9+/]+={0,2}$/.test(tx)) {
    throw new RpcError(-32602, "tx must be base64");
  }
  return { data: "", codespace: "", ...chain.broadcast(Buffer.from(tx, "base64")) };
}

const METHODS: Record<string, (params: any) => any> = {
  status,
  block,
  validators,
  abci_query: query,
  broadcast_tx_sync: broadcast,
};

function method(name: string): (params: any) => any {
  if (bad("grd-rpc-engine")) {
    if (name === "net_info") return () => ({ listening: true, peers: [] });
    if (name === "dump_consensus_state") return () => ({ round_state: { height: String(chain.height()) } });
    if (name === "unconfirmed_txs") return () => ({ n_txs: "0", txs: [] });
    if (name === "genesis") return () => ({ genesis: { chain_id: CHAIN_ID } });
  }
  if (bad("grd-rpc-commit") && name === "broadcast_tx_commit") return broadcast;
  if (!Object.hasOwn(METHODS, name)) throw new RpcError(-32601, "the method is not allowed");
  return METHODS[name];
}

function rpc({ raw }: Ctx): Answer {
  let id: any = null;
  try {
    let call: any;
    try {
      call = JSON.parse(raw);
    } catch {
      throw new RpcError(-32700, "the body is not JSON");
    }
    if (typeof call !== "object" || call === null || Array.isArray(call) || typeof call.method !== "string") {
      throw new RpcError(-32600, "the body is not a call");
    }
    id = call.id ?? null;
    return { json: { jsonrpc: "2.0", id, result: method(call.method)(call.params) } };
  } catch (e) {
    if (!(e instanceof RpcError)) throw e;
    const status =
      e.code === -32601 && odd("rpc-403") ? 403 : e.code === -32700 || e.code === -32600 ? 400 : 200;
    return { status, json: { jsonrpc: "2.0", id, error: { code: e.code, message: e.message } } };
  }
}

export function rpcRoutes(): void {
  const path = "/rpc";
  route({ method: "POST", path, label: "POST /rpc", run: rpc, body: "any", native: true });
}
