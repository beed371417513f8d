import { bad, odd, patched } from "./faults.ts";
import { EXPIRED, accounts, type Account } from "./money.ts";
import { traffic } from "./metrics.ts";

export interface Ctx {
  req: Request;
  path: string;
  query: URLSearchParams;
  params: string[];
  body: any;
  raw: string;
  account: Account;
  token: string;
}
export interface Answer {
  status?: number;
  json?: any;
  raw?: BodyInit;
  headers?: Record<string, string>;
}
type Handler = (ctx: Ctx) => Answer | Promise<Answer>;

export interface Route {
  method: string;
  path: string | RegExp;
  label: string;
  run: Handler;
  auth?: boolean;
  body?: "json" | "any";
  native?: boolean;
}

/** A refusal in the form of the node API. */
export class Refusal extends Error {
  constructor(
    public status: number,
    public code: string,
    message: string,
    public details?: object,
  ) {
    super(message);
  }
}
export const invalid = (message: string): Refusal => new Refusal(400, "INVALID_REQUEST", message);

const routes: Route[] = [];
const index = new Map<string, Route>();
export function route(r: Route): void {
  routes.push(r);
  if (typeof r.path === "string") index.set(r.method + " " + r.path, r);
}

const MAX_BODY = 1024 * 1024;

function errorBody(e: Refusal): any {
  const error: any = { code: e.code, message: e.message };
  if (e.details) error.details = e.details;
  return { error };
}

/** A limit of requests for each token: in one second no more than this. */
const PER_SECOND = 400;
const windows = new Map<string, { second: number; count: number }>();
function limitRate(token: string): void {
  const second = Math.floor(Date.now() / 1000);
  const w = windows.get(token);
  if (!w || w.second !== second) {
    windows.set(token, { second, count: 1 });
    return;
  }
  w.count += 1;
  const most = bad("lim-retry-after-hour") ? 250 : PER_SECOND;
  if (w.count <= most) return;
  const seconds = bad("lim-retry-after-hour") ? 3600 : 1;
  throw new Refusal(429, "RATE_LIMITED", "Too many requests", { retry_after: seconds });
}

let lastAccount: Account | undefined;
let whileGenerating = (): boolean => false;
export function watchGenerations(watch: () => boolean): void {
  whileGenerating = watch;
}

function authenticate(req: Request, label: string, url: URL): { account: Account; token: string } {
  let header = req.headers.get("authorization") ?? "";
  if (bad("grd-token-in-query") && url.searchParams.has("token"))
    header = "Bearer " + url.searchParams.get("token");
  const match = /^(\S+) +(\S+)$/.exec(header.trim());
  const scheme = bad("grd-any-scheme") ? true : match?.[1].toLowerCase() === "bearer";
  let token = match && scheme ? match[2] : "";
  if (bad("grd-bare-token") && accounts[header.trim()]) token = header.trim();
  if (bad("grd-token-case")) token = token.toLowerCase();
  if (bad("grd-token-prefix")) token = Object.keys(accounts).find((t) => token.startsWith(t)) ?? token;
  if (bad("grd-token-cut") && token.length >= 4)
    token = Object.keys(accounts).find((t) => t.startsWith(token)) ?? token;
  if (bad("grd-empty-token") && /^bearer\s*$/i.test(header.trim())) token = "tok-a";
  let account = Object.hasOwn(accounts, token) ? accounts[token] : undefined;
  const open: Record<string, string> = {
    "grd-open-unstake": "POST /wallet/unstake",
    "grd-open-patch": "PATCH /config",
  };
  for (const [id, where] of Object.entries(open))
    if (bad(id) && label === where) account ??= accounts["tok-a"];
  if (bad("grd-expired-reads") && EXPIRED.has(token) && req.method === "GET") account = accounts["tok-a"];
  if (bad("grd-expired-writes") && EXPIRED.has(token) && label === "POST /wallet/send")
    account = accounts["tok-a"];
  if (bad("grd-expired-infers") && EXPIRED.has(token) && label === "POST /inference")
    account = accounts["tok-a"];
  if (bad("grd-last-account") && !header) account = lastAccount;
  if (bad("grd-while-generating") && !header && whileGenerating()) account = lastAccount;
  if (bad("grd-query-skips") && url.searchParams.has("limit") && label === "GET /proofs")
    account ??= accounts["tok-a"];
  if (bad("grd-b-refused-send") && token === "tok-b" && label === "POST /wallet/send") account = undefined;
  if (!account) {
    const expired = EXPIRED.has(token);
    const code = bad("ref-expired-code") && expired ? "TOKEN_EXPIRED" : "UNAUTHORIZED";
    const details = bad("fld-401-details") ? { token: token.slice(0, 3) } : undefined;
    const message = expired ? "The access token has expired" : "A valid access token is needed";
    throw new Refusal(401, code, message, details);
  }
  lastAccount = account;
  return { account, token };
}

async function wantsStream(req: Request): Promise<boolean> {
  const body = await req
    .clone()
    .json()
    .catch(() => ({}));
  return body?.stream === true;
}

async function readBody(req: Request, r: Route): Promise<{ raw: string; body: any }> {
  const raw = await req.text();
  traffic.received += raw.length;
  if (raw.length > MAX_BODY) throw new Refusal(413, "TOO_LARGE", "The body is too large");
  if (r.body === "any") return { raw, body: undefined };
  try {
    const body = JSON.parse(raw);
    if (typeof body !== "object" || body === null || Array.isArray(body))
      throw invalid("The body must be an object");
    return { raw, body };
  } catch (e) {
    if (e instanceof Refusal) throw e;
    throw invalid("The body is not JSON");
  }
}

function respond(label: string, answer: Answer, ctx: any): Response {
  const status = answer.status ?? 200;
  const headers: Record<string, string> = { date: new Date().toUTCString(), ...answer.headers };
  if (odd("header-extra")) headers["x-request-id"] = crypto.randomUUID();
  if (answer.raw !== undefined) return new Response(answer.raw, { status, headers });
  let json = status < 400 ? patched(label, answer.json, ctx) : answer.json;
  if (status >= 400) json = patched("error " + status, json, ctx);
  if (odd("extra-fields") && json && typeof json === "object" && !Array.isArray(json)) {
    json = { ...json, _links: { self: label }, extra: null };
  }
  if (odd("reversed-fields") && json && typeof json === "object" && !Array.isArray(json)) {
    json = Object.fromEntries(Object.entries(json).reverse());
  }
  let text = odd("pretty") ? JSON.stringify(json, null, 2) + "\n" : JSON.stringify(json);
  if (bad("rte-nan-loss") && label === "GET /network") text = text.replace(/"loss":[\d.]+/, '"loss":NaN');
  if (bad("rte-twice-key") && label === "GET /layers") text = text.replace('"index":', '"index":0,"index":');
  if (odd("escaped")) text = text.replace(/\//g, "\\/");
  traffic.sent += text.length;
  headers["content-type"] ??= odd("charset") ? "application/json; charset=utf-8" : "application/json";
  if (bad("rte-text-plain") && label === "GET /proofs") headers["content-type"] = "text/plain;charset=utf-8";
  return new Response(text, { status, headers });
}

function find(method: string, path: string): { found?: Route; params: string[]; other: boolean } {
  const direct = index.get(method + " " + path);
  if (direct) return { found: direct, params: [], other: false };
  let other = false;
  for (const r of routes) {
    const match = typeof r.path === "string" ? (r.path === path ? [path] : null) : r.path.exec(path);
    if (!match) continue;
    if (r.method === method || r.method === "*") return { found: r, params: [...match].slice(1), other };
    other = true;
  }
  return { params: [], other };
}

export async function handle(req: Request): Promise<Response> {
  const url = new URL(req.url);
  let path = url.pathname;
  if (path.length > 1 && path.endsWith("/") && !odd("strict-slash")) path = path.slice(0, -1);
  const head = req.method === "HEAD";
  const { found, params, other } = find(head ? "GET" : req.method, path);
  const ctx: any = { req, path, query: url.searchParams, params, url };
  const label = found?.label ?? "none";
  try {
    if (!found) {
      if (bad("rte-unknown-200")) return respond(label, { json: {} }, ctx);
      if (other) throw new Refusal(405, "METHOD_NOT_ALLOWED", "The route does not have this method");
      throw new Refusal(404, "NOT_FOUND", "There is no such route");
    }
    const early = bad("grd-body-first") && found.auth && found.body === "json";
    if (early) Object.assign(ctx, await readBody(req, found));
    const open = bad("grd-stream-open") && label === "POST /inference" && !req.headers.has("authorization");
    if (open && (await wantsStream(req))) {
      Object.assign(ctx, { account: accounts["tok-a"], token: "tok-a" });
    } else if (found.auth) {
      Object.assign(ctx, authenticate(req, label, url));
      limitRate(ctx.token);
    }
    if (found.body && !early) Object.assign(ctx, await readBody(req, found));
    if (odd("slow") && Math.random() < 0.2) await Bun.sleep(400);
    return respond(label, await found.run(ctx), ctx);
  } catch (e) {
    return failure(e, label, ctx, found);
  }
}

function failure(e: unknown, label: string, ctx: any, found?: Route): Response {
  const refusal = e instanceof Refusal ? e : new Refusal(500, "INTERNAL", "The node has failed");
  if (!(e instanceof Refusal)) console.error(e);
  const native = found ? found.native : !ctx.path.startsWith("/api/v1/");
  const body = native ? { error: refusal.message } : errorBody(refusal);
  const headers: Record<string, string> = {};
  if (refusal.status === 429) headers["retry-after"] = "1";
  if (refusal.status === 401) headers["www-authenticate"] = "Bearer";
  if (bad("rte-error-html") && refusal.status === 404) {
    return new Response("<html><body>Not found</body></html>", {
      status: 404,
      headers: { "content-type": "text/html" },
    });
  }
  return respond(label, { status: refusal.status, json: body, headers }, ctx);
}

/** A whole number in the query, or the default; anything else is refused. */
export function queryInt(query: URLSearchParams, name: string, fallback: number, least = 0): number {
  const text = query.get(name);
  if (text === null || text === "") return fallback;
  if (!/^[+-]?\d{1,15}$/.test(text) || Number(text) < least) {
    throw invalid(`${name} must be a whole number from ${least}`);
  }
  return Number(text);
}
