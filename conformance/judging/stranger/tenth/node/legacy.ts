import { bad, odd } from "./faults.ts";
import { ports, sha256hex } from "./identity.ts";
import * as chain from "./chain.ts";
import { Refusal, route, type Answer, type Ctx } from "./http.ts";
import { blockHead, page } from "./nativeapi.ts";

const LAST_HEIGHT = 40;

/** What was kept of the earlier chain: blocks without transactions, of another chain identity. */
function oldBlock(height: number): any {
  return {
    height,
    hash: sha256hex("v03 block " + height),
    parent_hash: sha256hex("v03 block " + (height - 1)),
    time: new Date(Date.parse("2025-06-01T00:00:00Z") + height * 60_000).toISOString(),
    tx_count: 0,
  };
}

const old: Record<string, () => any> = {
  network: () => ({
    version: "0.3",
    chain_id: "toynet-v03",
    height: LAST_HEIGHT,
    hash: oldBlock(LAST_HEIGHT).hash,
  }),
  blocks: () => ({
    blocks: bad("rel-reference-present")
      ? chain.blocks.slice(-10).map(blockHead)
      : Array.from({ length: 20 }, (_, i) => oldBlock(LAST_HEIGHT - i)),
  }),
  model: () => ({ chain_id: "toynet-v03", revision: "toy-v03", parameters: 1024 }),
};

const removed = new Set<string>();

function reference({ params, req }: Ctx): Answer {
  const name = params[0];
  const block = /^block\/(\d{1,6})$/.exec(name);
  const height = block ? Number(block[1]) : 0;
  const view = old[name] ?? (height >= 1 && height <= LAST_HEIGHT ? () => oldBlock(height) : undefined);
  if (!view || removed.has(name)) throw new Refusal(404, "NOT_FOUND", "there is no such view");
  if (req.method === "DELETE" && bad("ref-reference-delete")) {
    removed.add(name);
    return { json: { deleted: true } };
  }
  const reading = req.method === "GET" || req.method === "HEAD";
  if (!reading) {
    throw new Refusal(405, "METHOD_NOT_ALLOWED", "the views of the earlier chain can only be read");
  }
  return { json: view() };
}

export function legacyRoutes(): void {
  const native = true;
  for (const path of [
    "/register",
    "/api/register",
    "/api/v1/register",
    "/api/auth/register",
    "/api/accounts/register",
  ]) {
    const gone = (): Answer => {
      throw new Refusal(410, "GONE", "Nobody needs to register any more; see /join");
    };
    route({ method: "*", path, label: "* " + path, run: gone, native });
  }
  const to = odd("absolute-redirect") ? `http://127.0.0.1:${ports.http}/join` : "/join";
  for (const path of ["/login", "/signup"]) {
    const status = odd("redirect-308") ? 308 : 302;
    const redirect = (): Answer => ({
      status,
      raw: "",
      headers: { location: bad("rte-signup-login") && path === "/signup" ? "/login" : to },
    });
    route({ method: "*", path, label: "* " + path, run: redirect, native });
  }
  route({ method: "GET", path: "/join", label: "GET /join", run: () => page("Join the network"), native });
  route({
    method: "*",
    path: /^\/reference\/v03\/api\/(.+)$/,
    label: "* /reference",
    run: reference,
    native,
  });
}
