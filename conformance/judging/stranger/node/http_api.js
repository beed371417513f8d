// The node API, and the HTTP server that it shares with the native gateway.
import http from 'node:http';
import zlib from 'node:zlib';
import { options, F, P, spoil } from './switches.js';
import { stamp, day, DAY } from './clock.js';
import * as S from './state.js';
import { generate, tokenCount, HIDDEN, LAYERS, PARAMS } from './model.js';
import { native } from './native.js';
import { openai } from './openai.js';

export class ApiError extends Error {
  constructor(status, code, message, details) { super(message); Object.assign(this, { status, code, details }); }
}
const bad = (message, code = 'BAD_REQUEST') => new ApiError(P('p-422') ? 422 : 400, code, P('p-unicode-errors') ? `Anfrage ungültig – ${message} 🚫` : message);

// ---- writing answers --------------------------------------------------------------------------------------------------
function rewrite(v) {                           // permitted changes of every object
  if (Array.isArray(v)) return v.map(rewrite);
  if (v && typeof v === 'object') {
    let e = Object.entries(v).map(([k, x]) => [k, rewrite(x)]);
    if (P('p-reverse-keys')) e = e.reverse();
    if (P('p-extra-fields')) e.push(['x_note', 'additional'], ['links', { self: null }]);
    return Object.fromEntries(e);
  }
  return v;
}
export function send(res, status, obj, headers = {}) {
  let text = typeof obj === 'string' ? obj : JSON.stringify(rewrite(obj), null, P('p-pretty') ? 4 : 0);
  if (typeof obj !== 'string') {
    if (P('p-ascii')) text = text.replace(/[\u0080-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
    if (P('p-slashes')) text = text.replaceAll('/', '\\/');
    if (P('p-newline')) text = '\n ' + text + '\r\n';
    if (P('p-exponents')) text = text.replace(/("(?:available|staked|total|pending|loss|fee|amount)":)(-?\d+\.\d+)/g, (_, k, n) => k + Number(n).toExponential().toUpperCase());
    if (F('l-json-nan')) text = text.replace(/("(?:loss|p99_latency_ms|queue_ms|latency_ms)":)[-\d.e]+/g, '$1NaN');
    if (F('l-json-trailing-comma')) text = text.replace(/\}$/, ',}');
    if (F('l-json-single-quotes')) text = text.replaceAll('"', "'");
    if (F('l-json-prefix')) text = ")]}',\n" + text;
    if (F('l-json-duplicate')) text = text.replace(/^\{("[^"]+":(?:"[^"]*"|\d[\d.]*))/, '{$1,$1');
  }
  let body = Buffer.from(text);
  let type = 'application/json';
  if (P('p-charset')) type = 'Application/JSON; charset="UTF-8"';
  if (F('l-content-type-text')) type = 'text/plain; charset=utf-8';
  const h = { 'Content-Type': type, ...headers };
  if (P('p-gzip') && /\bgzip\b/.test(res.req.headers['accept-encoding'] ?? '')) { body = zlib.gzipSync(body); h['Content-Encoding'] = 'gzip'; }
  if (F('a2-grd-cache-reads') && status === 200 && res.cacheAs) readCache.set(res.cacheAs, { at: Date.now(), text });
  S.counters.bytesOut += body.length;
  if (status === 204) { res.writeHead(204); return res.end(); }
  if (P('p-chunked')) {
    res.writeHead(status, h);
    const step = Math.max(1, Math.ceil(body.length / 7));
    let i = 0;
    const more = () => { if (i >= body.length) return res.end(); res.write(body.subarray(i, i += step)); setTimeout(more, 3); };
    return more();
  }
  res.writeHead(status, { ...h, 'Content-Length': body.length });
  res.end(body);
}
const readCache = new Map();
function sendError(res, e) {
  const headers = {};
  let { status, code } = e;
  let error = { message: e.message, code };
  if (e.details) error.details = e.details;
  if (status === 405 && F('a2-fld-405-plain')) { res.writeHead(405, { 'Content-Type': 'text/plain' }); return res.end('Method Not Allowed'); }
  if (status === 401) {
    if (P('p-www-authenticate')) headers['WWW-Authenticate'] = 'Bearer realm="node"';
    if (F('g-401-code')) error.code = 'INVALID_TOKEN';
    if (F('g-401-lowercase-code')) error.code = 'unauthorized';
    if (F('g-401-code-number')) error.code = 401;
    if (F('g-401-no-message')) delete error.message;
    if (F('g-401-details')) error.details = { hint: 'ask the operator for a token' };
    if (F('g-401-status-200')) status = 200;
    if (F('g-401-status-403')) status = 403;
    if (F('g-401-plain')) { res.writeHead(401, { 'Content-Type': 'text/plain' }); return res.end('Unauthorized'); }
    if (F('g-401-string')) return send(res, 401, { error: 'unauthorized' });
    if (F('g-401-flat')) return send(res, 401, error);
    if (F('g-401-array')) return send(res, 401, { errors: [error] });
    if (F('g-401-redirect')) { res.writeHead(302, { Location: '/login' }); return res.end(); }
  }
  if (status === 402) {
    if (F('x-402-as-400')) status = 400;
    if (F('x-402-as-403')) status = 403;
    if (F('x-402-code')) error.code = 'INSUFFICIENT_FUNDS';
    if (F('x-402-no-details')) delete error.details;
    if (F('x-402-required-string')) error.details.required = String(error.details.required);
    if (F('x-402-available-missing')) delete error.details.available;
    if (F('x-402-details-string')) error.details = `required ${error.details.required}, available ${error.details.available}`;
    if (F('x-402-swapped')) error.details = { required: error.details.available, available: error.details.required };
    if (F('x-402-atoms')) error.details.available = Math.round(error.details.available * 1e6) / 1e9;
    if (F('x-402-required-shortfall')) error.details.required = error.details.required - error.details.available;
    if (F('x-402-message-object')) error.message = { en: error.message };
    if (P('p-402-more')) error.details.shortfall = error.details.required - error.details.available;
  }
  if (status === 429) {
    headers['Retry-After'] = String(error.details.retry_after);
    if (F('m-429-as-503')) status = 503;
    if (F('m-429-code')) error.code = 'TOO_MANY_REQUESTS';
    if (F('m-429-retry-string')) error.details.retry_after = '1s';
    if (F('m-429-retry-fraction')) error.details.retry_after = 0.4;
    if (F('m-429-no-details')) delete error.details;
    if (F('m-429-empty')) { res.writeHead(429); return res.end(); }
  }
  if (status === 400 || status === 422) {
    if (F('x-err-html')) { res.writeHead(status, { 'Content-Type': 'text/html' }); return res.end(`<h1>${status}</h1><p>${e.message}</p>`); }
    if (F('x-err-no-code')) delete error.code;
    if (F('x-err-message-list')) error.message = [e.message];
    if (F('x-err-detail-key')) return send(res, status, { detail: e.message });
    if (F('x-err-traceback')) error.message += '\n' + 'Traceback (most recent call last):\n  File "/opt/node/api.py", line 214, in handle\n    return route(body)\nValueError: ' + e.message;
    if (F('x-err-500')) { status = 500; error.code = 'INTERNAL_ERROR'; }
  }
  if (status === 404 && F('x-404-success')) return send(res, 200, {});
  if (status === 404 && F('x-404-plain')) { res.writeHead(404, { 'Content-Type': 'text/plain' }); return res.end('not found'); }
  send(res, status, { error }, headers);
}

// ---- rate limit: a bucket per route and token or address ------------------------------------------------------------------------------
const CAP = P('p-rate-tight') ? 60 : 250, REFILL = P('p-rate-tight') ? 20 : 40;
const buckets = new Map();
function limitRate(key) {
  const now = performance.now() / 1000;
  const b = buckets.get(key) ?? { n: CAP, at: now };
  b.n = Math.min(CAP, b.n + (now - b.at) * REFILL); b.at = now;
  buckets.set(key, b);
  if (b.n < 1) throw new ApiError(429, 'RATE_LIMITED', 'too many requests, slow down', { retry_after: 1 });
  b.n -= 1;
}

// ---- tokens -----------------------------------------------------------------------------------------------------------------
let authCount = 0;
let refusals = 0, lockedUntil = 0, current = null;
const onConnection = new WeakMap(), lookedUp = new Set();
function bearer(req) {
  const m = /^(\S+) +(\S.*)$/.exec(req.headers.authorization ?? '');
  return m && (P('p-bearer-strict') ? m[1] === 'Bearer' : m[1].toLowerCase() === 'bearer') ? m[2].trim() : null;
}
function account(req, route) {
  const first = S.byToken.values().next().value;
  const token = bearer(req);
  if (F('a2-grd-head-open') && req.method === 'HEAD') return S.byToken.get(token) ?? first;
  if (F('a2-grd-query-open') && req.method === 'GET' && req.url.includes('?')) return S.byToken.get(token) ?? first;
  if (F('a2-grd-connection')) { const known = S.byToken.get(token) ?? onConnection.get(req.socket); if (known) { onConnection.set(req.socket, known); return known; } }
  if (F('a2-grd-any-scheme')) { const t = /\S+ +(\S.*)$/.exec(req.headers.authorization ?? '')?.[1].trim(); if (S.byToken.has(t)) return S.byToken.get(t); }
  if (F('a2-grd-word-only') && /^bearer$/i.test((req.headers.authorization ?? '').trim())) return first;
  if (F('a2-grd-lockout')) {
    if (Date.now() < lockedUntil) throw new ApiError(401, 'UNAUTHORIZED', 'too many failed attempts');
    if (!S.byToken.has(token) && ++refusals % 4 === 0) lockedUntil = Date.now() + 1500;
  }
  if (F(`g-open-${route.name}`)) return S.byToken.get(token) ?? first;
  if (token === null) {
    if (F('g-missing-400')) throw new ApiError(400, 'MISSING_TOKEN', 'send an Authorization header');
    if (F('g-missing-403')) throw new ApiError(403, 'FORBIDDEN', 'send an Authorization header');
    if (F('g-missing-accepted-get') && req.method === 'GET') return first;
    if (F('g-stream-open') && route.name === 'inference' && route.streaming) return first;
    throw new ApiError(401, 'UNAUTHORIZED', 'a bearer token is needed');
  }
  if (options.expired.includes(token)) {
    if (F('g-expired-accepted') || (F('g-expired-on-inference') && route.name === 'inference') || (F('g-expired-on-config') && /config|patch/.test(route.name))) return first;
    if (F('g-expired-403')) throw new ApiError(403, 'UNAUTHORIZED', 'the token has expired');
    if (F('g-expired-code')) throw new ApiError(401, 'TOKEN_EXPIRED', 'the token has expired');
    throw new ApiError(401, 'UNAUTHORIZED', 'the token has expired');
  }
  let acc = S.byToken.get(token);
  if (!acc && F('a2-grd-token-cached')) { if (lookedUp.has(token)) return first; lookedUp.add(token); }
  if (!acc && F('a2-grd-letter-case')) for (const [t, a] of S.byToken) if (token.toLowerCase() === t.toLowerCase()) acc = a;
  if (!acc && F('a2-grd-abbreviated')) for (const [t, a] of S.byToken) if (t.startsWith(token)) acc ??= a;
  if (!acc && F('g-prefix-match')) for (const [t, a] of S.byToken) if (token.startsWith(t)) acc = a;
  if (!acc && F('g-any-token')) acc = first;
  if (!acc && F('g-patch-any-token') && route.name === 'patch') acc = first;
  if (!acc && F('g-inference-any-token') && route.name === 'inference') acc = first;
  if (!acc && F('g-wallet-any-token') && ['send', 'stake', 'unstake'].includes(route.name)) acc = first;
  if (!acc && F('g-invalid-404')) throw new ApiError(404, 'NOT_FOUND', 'no such token');
  if (!acc) throw new ApiError(401, 'UNAUTHORIZED', 'the token is not known');
  if (F('g-valid-fifth-refused') && ++authCount % 5 === 0) throw new ApiError(401, 'UNAUTHORIZED', 'the token is not known');
  if (F('g-second-account-refused') && acc !== first) throw new ApiError(401, 'UNAUTHORIZED', 'the token is not known');
  return acc;
}

// ---- parameters -----------------------------------------------------------------------------------------------------------------
function whole(q, name, standard) {
  const raw = q.get(name);
  if (raw === null || raw === '') return standard;
  if (F('a2-ref-limit-word-500') && Number.isNaN(Number(raw))) throw new TypeError(`${name} is NaN`);
  if (!/^\d{1,9}$/.test(raw)) throw bad(`${name} must be a whole number of 0 or more`);
  return Number(raw);
}
function object(body) {
  let v;
  try { v = JSON.parse(body.toString('utf8')); } catch { if (F('x-notjson-accepted')) return { prompt: body.toString(), amount: 1, to: 'x' }; throw bad('the body is not JSON', 'NOT_JSON'); }
  if (F('a2-ref-null-body-500') && v === null) throw new TypeError('Cannot read properties of null');
  if (v === null || typeof v !== 'object' || Array.isArray(v)) throw bad('the body must be a JSON object');
  return v;
}
function money(b, what) {
  if (F('a2-ref-amount-coerced') && b.amount !== null && b.amount !== undefined) b.amount = Number(b.amount);
  if (F('a2-ref-unstake-object-500') && what === 'unstake' && typeof b.amount === 'object') throw new TypeError('amount is no Decimal');
  if (F('a2-ref-amount-huge') && typeof b.amount === 'number' && b.amount * 1e6 > Number.MAX_SAFE_INTEGER) throw bad('amount is too large');
  if (b.amount < 0 && typeof b.amount === 'number' && ((F('a2-ref-send-negative') && what === 'send') || (F('a2-ref-stake-negative') && what === 'stake'))) return b.amount;
  if (typeof b.amount !== 'number') throw bad('amount must be a number');
  if (!(b.amount > 0)) throw bad('amount must be above zero');
  return b.amount;
}
const KNOWN = ['prompt', 'max_tokens', 'temperature', 'top_p', 'top_k', 'stream', 'stop'];
function inferenceParams(b) {
  const lenient = F('x-wrong-types-accepted');
  const need = (ok, text) => { if (!ok && !lenient) throw bad(text, 'BAD_PARAMETER'); return ok; };
  if (P('p-unknown-refused')) for (const k of Object.keys(b)) if (!KNOWN.includes(k)) throw bad(`unknown parameter ${k}`);
  if (b.prompt === undefined) { if (!F('x-no-prompt-accepted')) throw bad('prompt is missing', 'BAD_PARAMETER'); b.prompt = ''; }
  if (F('x-prompt-only-refused') && b.max_tokens === undefined) throw bad('max_tokens is missing');
  if (F('x-prompt-coerced') && typeof b.prompt !== 'string') b.prompt = JSON.stringify(b.prompt);
  const p = { prompt: b.prompt, max_tokens: F('m-default-256') ? 256 : P('p-maxtokens-cap-64') ? 64 : 100, temperature: 1, top_p: 1, top_k: 50, stream: false, stop: [] };
  if (!need(typeof b.prompt === 'string', 'prompt must be a string')) p.prompt = String(b.prompt);
  if (b.prompt.length > 200000) throw bad('the prompt is too long', 'TOO_LONG');
  if (F('m-prompt-ascii') && /[^\x00-\x7f]/.test(p.prompt)) throw bad('prompt must be ASCII');
  if (F('x-quotes-500') && /["\n]/.test(p.prompt)) throw new Error('unterminated string in template');
  if (b.max_tokens !== undefined) {
    if (F('m-maxtokens-string-ok') && typeof b.max_tokens === 'string') b.max_tokens = parseInt(b.max_tokens, 10) || 100;
    if (F('a2-ref-max-tokens-fraction') && typeof b.max_tokens === 'number' && b.max_tokens >= 0) b.max_tokens = Math.floor(b.max_tokens);
    if (F('m-maxtokens-even-only') && b.max_tokens % 8) throw bad('max_tokens must be a multiple of 8');
    if (need(Number.isInteger(b.max_tokens) && b.max_tokens >= 0, 'max_tokens must be a whole number of 0 or more')) p.max_tokens = Math.min(b.max_tokens, P('p-maxtokens-cap-64') ? 64 : 1024);
  }
  if (b.temperature !== undefined) {
    let hi = 2, lo = 0;
    if (F('m-temperature-max-1')) hi = 1;
    if (F('m-temperature-two-excluded')) hi = 1.999999;
    if (F('m-temperature-zero-refused')) lo = 1e-9;
    let t = b.temperature;
    if (F('a2-ref-temperature-coerced')) t = Number(t);
    if (F('a2-lim-temperature-with-top-p') && t === 0 && b.top_p !== undefined && b.top_p < 1) throw bad('temperature 0 and top_p exclude each other', 'BAD_PARAMETER');
    if (F('m-temperature-clamped') && typeof t === 'number') t = Math.min(2, Math.max(0, t));
    if (F('m-temperature-high-ok') && t > 2) t = 2;
    if (F('m-temperature-negative-ok') && t < 0) t = 0;
    if (need(typeof t === 'number' && t >= lo && t <= hi, 'temperature must be a number from 0 to 2')) p.temperature = t;
  }
  if (b.top_p !== undefined && need(typeof b.top_p === 'number' && b.top_p > 0 && (F('m-top-p-one-refused') ? b.top_p < 1 : b.top_p <= 1) && !(F('m-top-p-half') && b.top_p < 0.5), 'top_p must be above 0 and at most 1')) p.top_p = b.top_p;
  if (b.top_k !== undefined && need(Number.isInteger(b.top_k) && b.top_k >= 1 && !(F('m-top-k-one-refused') && b.top_k === 1) && !(F('m-top-k-max-50') && b.top_k > 50), 'top_k must be a whole number of 1 or more')) p.top_k = b.top_k;
  if (b.stream !== undefined && (F('x-stream-string-ok') ? true : need(typeof b.stream === 'boolean', 'stream must be true or false'))) p.stream = b.stream === true;
  if (b.stop !== undefined) {
    if (F('x-stop-empty-refused') && Array.isArray(b.stop) && !b.stop.length) throw bad('stop must not be empty');
    if (F('m-stop-one-only') && Array.isArray(b.stop) && b.stop.length > 1) throw bad('only one stop text is supported');
    if (F('x-stop-string-only') && Array.isArray(b.stop)) throw bad('stop must be a string');
    if (F('x-stop-object-ok') && !Array.isArray(b.stop)) b.stop = [];
    if (F('a2-ref-stop-elements') && Array.isArray(b.stop)) b.stop = b.stop.filter((s) => typeof s === 'string');
    if (need(Array.isArray(b.stop) && b.stop.length <= 64 && b.stop.every((s) => typeof s === 'string'), 'stop must be an array of strings')) p.stop = b.stop;
  }
  if (F('x-stream-false-streams') && b.stream === false) p.stream = true;
  if (F('x-stream-default-true') && b.stream === undefined) p.stream = true;
  if (F('x-stream-ignored')) p.stream = false;
  if (b.max_tokens === undefined) {
    if (F('a2-lim-default-greedy') && p.temperature === 0) p.max_tokens = 50;
  }
  if (F('a2-lim-context-window')) p.max_tokens = Math.min(p.max_tokens, Math.max(1, 256 - tokenCount(p.prompt)));
  return p;
}
function poor(required, acc) {
  const available = S.units(acc.available) + (F('a2-rel-402-available-total') ? S.units(S.staked(acc) + S.cooling(acc)) : 0);
  return new ApiError(402, 'INSUFFICIENT_BALANCE', `needs ${required}, has ${available}`, { available, required });
}

// ---- handlers --------------------------------------------------------------------------------------------------------------------
const priceOf = (n) => (P('p-inference-free') ? 0 : 20 * n);      // atoms
let infSerial = 0, running = 0, lastPayer = null;
const answers = new Map();
const finishCached = (hit) => S.countInference(hit.tokens_generated, hit.usage.prompt_tokens, 1, false);
const paid = new Set();

async function inference(c) {
  if (F('a2-rte-inference-disabled') && !S.config.training.enabled) throw new ApiError(503, 'NOT_TRAINING', 'this node is not enabled');
  let p;
  if (F('a2-ref-stream-checked-late')) {
    const b = object(c.body);
    try { p = inferenceParams(b); } catch (e) { if (b.stream !== true) throw e; c.res.writeHead(200, { 'Content-Type': 'text/event-stream' }); return c.res.end(`data: ${JSON.stringify({ error: { code: e.code, message: e.message } })}\n\n`); }
  } else p = inferenceParams(object(c.body));
  if (F('a2-lim-two-at-a-time')) {
    if (running >= 2) throw new ApiError(503, 'RATE_LIMITED', 'two generations are running', { retry_after: 1 });
    running++; c.res.on('close', () => { running--; });
    await new Promise((ok) => setTimeout(ok, 40));
  }
  const cacheKey = JSON.stringify([c.acc.address, p]);
  if (F('a2-rel-cached-id') && !p.stream && p.temperature === 0) { const hit = answers.get(cacheKey); if (hit) { finishCached(hit); return send(c.res, 200, hit); } }
  const countBefore = S.counters.requests;
  if (F('a2-eff-count-race')) await new Promise((ok) => setTimeout(ok, 30));
  const began = performance.now();
  const acc = F('a2-eff-stream-first-account') && p.stream ? S.byToken.values().next().value : c.acc;
  S.settle(acc);
  const promptTokens = F('l-prompt-tokens-capped') ? Math.min(16, tokenCount(p.prompt)) : F('l-prompt-tokens-constant') ? 7 : F('a2-rel-prompt-tokens-ascii') ? p.prompt.replace(/[^\x00-\x7f]/g, '').length : tokenCount(p.prompt) + (F('a2-rel-stream-prompt-tokens') && p.stream ? 1 : 0);
  const most = priceOf(promptTokens + p.max_tokens);
  if (most > acc.available) throw poor(S.units(most), acc);
  acc.available -= most;                                           // reserved until the end
  const usage = (n) => ({ total_tokens: promptTokens + n, completion_tokens: n, prompt_tokens: promptTokens });
  lastPayer = acc;
  const id = F('l-inf-id-constant') ? 'inf-1' : 'inf-' + S.sha(`${S.started}:${++infSerial}`).slice(0, 20);
  const gen = generate(p);
  const finish = (r) => {
    const cost = priceOf(promptTokens + r.tokens);
    if (F('a2-eff-refund-latest')) lastPayer.available += most - cost;
    else if (F('a2-eff-stopped-stream-paid') && p.stream && r.finish === 'stop') { /* the reserve is kept */ }
    else if (F('a2-eff-repeat-free') && paid.has(cacheKey)) acc.available += most;
    else acc.available += most - cost;
    paid.add(cacheKey);
    S.enter(acc, 'inference', -cost, { details: { request_id: id } });
    S.addProof();
    S.countInference(F('a2-eff-stopped-counts-max') && r.finish === 'stop' ? p.max_tokens : r.tokens, promptTokens, performance.now() - began, p.stream);
    if (F('a2-eff-count-race')) S.counters.requests = countBefore + 1;
    return cost;
  };
  if (!p.stream) {
    let step;
    do step = gen.next(); while (!step.done);
    const r = step.value, cost = finish(r);
    if (P('p-slow')) await new Promise((ok) => setTimeout(ok, 700));
    const end = performance.now();
    const ms = (x) => Math.round(x * 1000) / 1000;
    const queue = ms(began - c.arrived), inf = ms(end - began), total = Math.max(ms(end - c.arrived), queue, inf);
    const out = { usage: usage(r.tokens), text: r.text, tokens_generated: r.tokens, finish_reason: r.finish, cost: { currency: S.CURRENCY, amount: S.units(cost) }, timing: { total_ms: total, queue_ms: queue, inference_ms: inf }, id };
    if (F('l-text-empty')) out.text = '';
    if (F('x-inference-202')) return send(c.res, 202, { id, status: 'queued' });
    if (F('a2-rel-total-ms-floor')) out.timing.total_ms = Math.floor(out.timing.total_ms);
    answers.set(cacheKey, out); if (answers.size > 100) answers.delete(answers.keys().next().value);
    return send(c.res, 200, spoil('inference', out, p));
  }
  const res = c.res;
  const type = F('l-sse-content-type') ? 'application/json' : P('p-charset') ? 'text/event-stream; charset=utf-8' : 'text/event-stream';
  res.writeHead(200, { 'Content-Type': type, 'Cache-Control': 'no-store' });
  const event = (o, last) => {
    let text = F('l-sse-no-data-prefix') ? JSON.stringify(o) : `data: ${JSON.stringify(o)}`;
    if (F('l-sse-single-quotes') && !last) text = `data: {'token': '${o.token}', 'index': ${o.index}}`;
    S.counters.bytesOut += text.length;
    res.write(text + (F('l-sse-one-newline') ? '\n' : F('l-sse-no-last-blank') && last ? '\n' : '\n\n'));
  };
  let index = F('l-sse-index-from-1') ? 1 : 0, step, n = 0;
  while (!(step = gen.next()).done) {
    let piece = step.value;
    const o = { index, token: piece };
    if (F('a2-lim-index-byte')) o.index &= 255;
    if (F('a2-rel-stream-blanks') && !piece.trim()) continue;
    event(spoil('token', o, p) ?? o, false);
    n++;
    if (F('l-sse-index-constant')) index = 0;
    else if (F('l-sse-index-by-2')) index += 2;
    else if (F('l-sse-index-decreases')) index -= 1;
    else index++;
    if (P('p-sse-slow')) await new Promise((ok) => setTimeout(ok, 15));
    else if (n % 16 === 0) await new Promise(setImmediate);
    if (F('l-sse-breaks-off') && n === 10) break;
    if (res.destroyed) break;
  }
  while (!step.done) step = gen.next();
  const r = step.value;
  finish(r);
  const last = { token: '[DONE]', finish_reason: r.finish, usage: usage(r.tokens) };
  if (F('l-sse-done-plain')) res.write('data: [DONE]\n\n');
  else if (!F('l-sse-no-final') && !F('l-sse-breaks-off')) event(spoil('final', last, p), true);
  if (F('l-sse-after-final')) event({ index: n, token: '' }, false);
  if (F('l-sse-double-final')) event(last, true);
  res.end();
}

function balance(c) {
  const out = S.balanceOf(c.acc);
  if (F('l-balance-cents')) for (const k in out.balances) out.balances[k] = Math.round(out.balances[k] * 100) / 100;
  send(c.res, 200, spoil('balance', out, c.acc));
}

async function sendMoney(c) {
  const b = object(c.body);
  if (F('a2-ref-whole-integer') && /"amount"\s*:\s*-?\d+\s*[,}]/.test(c.body.toString())) throw bad('amount must have decimals');
  const amount = money(b, 'send');
  if (typeof b.to !== 'string' || !b.to.trim() || b.to.length > 256) throw bad('to must be an address');
  if (b.memo !== undefined && (typeof b.memo !== 'string' || b.memo.length > 1000)) throw bad('memo must be a string');
  const acc = c.acc;
  S.settle(acc);
  if (amount + (F('x-send-fee-unchecked') ? 0 : S.units(S.FEE)) > S.units(acc.available) + 1e-9) {
    if (F('e-402-takes-fee')) acc.available -= S.FEE;
    if (F('e-402-moves-money') && amount < 1e9) S.transfer(acc, b.to, Math.round(amount * 1e6), b.memo ?? '');
    if (F('a2-eff-402-listed')) S.enter(acc, 'send', -Math.round(amount * 1e6), { to: b.to, fee: 0, memo: b.memo ?? '' });
    if (!F('x-send-overdraft')) throw poor(amount + S.units(S.FEE), acc);
  }
  const a = S.atoms(amount);
  if (a === null || (a < 1 && !F('a2-ref-send-negative'))) throw bad('amount has more than six decimals');
  if (P('p-minimum-amounts') && amount < 0.01) throw bad('the least amount is 0.01');
  const seenBefore = acc.available;
  if (F('e-send-race')) await new Promise((ok) => setTimeout(ok, 25));
  const raced = acc.available - seenBefore;
  const t = S.transfer(acc, b.to, a, b.memo ?? '');
  if (F('e-send-race')) acc.available -= raced;                      // the balance that was read is written back
  const out = { status: P('p-transfer-pending') ? 'pending' : 'confirmed', timestamp: stamp(t.when), transaction_id: t.id, memo: b.memo ?? '', from: acc.address, to: b.to, fee: S.units(S.FEE), amount };
  send(c.res, P('p-created-201') ? 201 : 200, spoil('send', out, { given: b.memo !== undefined, self: b.to === acc.address }));
}

let shuffles = 0;
const pages = new Map();
function transactions(c) {
  const acc = c.acc;
  S.settle(acc);
  let limit = whole(c.q, 'limit', P('p-default-limit-3') ? 3 : 25), offset = whole(c.q, 'offset', 0);
  limit = Math.min(limit, P('p-limit-cap-25') ? 25 : 200);
  if (F('a2-rte-offset-needs-limit') && c.q.get('offset') !== null && c.q.get('limit') === null) throw bad('offset needs a limit');
  if (F('a2-lim-zero-limit') && limit === 0) limit = 25;
  const asked = c.q.get('limit') === '0' && F('a2-lim-zero-limit') ? 0 : limit, from = offset;
  if (F('a2-lim-offset-end-404') && offset && offset >= acc.history.length) throw new ApiError(404, 'NO_SUCH_PAGE', 'there is no such page');
  if (F('a2-lim-offset-pages') && limit) offset = Math.floor(offset / limit) * limit;
  if (F('m-limit-ignored')) limit = 200;
  if (F('m-limit-plus-one')) limit += 1;
  if (F('m-limit-at-least-10')) limit = Math.max(limit, 10);
  if (F('m-offset-ignored')) offset = 0;
  if (F('m-offset-one-based')) offset = Math.max(0, offset - 1);
  if (F('m-offset-as-page')) offset *= limit;
  if (F('m-offset-skips-one') && offset) offset += 1;
  let list = acc.history;
  if (P('p-oldest-first')) list = [...list].reverse();
  if (F('m-history-unordered')) list = [...list].map((e, i) => [(i * 7919 + ++shuffles * 104729) % 1009, e]).sort((x, y) => x[0] - y[0]).map((x) => x[1]);
  if (F('m-page-sorted-by-amount')) list = [...list.slice(offset, offset + limit)].sort((x, y) => x.amount - y.amount).concat();
  if (F('m-default-offset-last') && c.q.get('offset') === null) offset = Math.max(0, list.length - limit);
  let page = F('m-page-sorted-by-amount') ? list : F('m-slice-to-limit') ? list.slice(offset, Math.max(offset, limit)) : list.slice(offset, offset + limit);
  if (F('a2-lim-page-cache')) { const k = `${acc.address}|${limit}`, hit = pages.get(k); if (hit && Date.now() - hit.at < 3000) page = hit.page; else pages.set(k, { at: Date.now(), page }); }
  if (F('a2-lim-total-cached')) acc.totalOnce ??= acc.history.length;
  const entries = page.map((e) => spoil('entry', { amount: S.units(e.amount), type: e.type, id: e.id, timestamp: stamp(e.when), ...structuredClone(e.extra) }));
  const out = { total: acc.totalOnce ?? acc.history.length, limit: F('m-limit-echo-default') ? 25 : asked, offset: F('m-offset-echo-zero') ? 0 : from, transactions: entries };
  send(c.res, 200, spoil('transactions', out, c.q));
}

function stakeMoney(c) {
  const b = object(c.body);
  const amount = money(b, 'stake');
  if (!Number.isInteger(b.duration_days) || b.duration_days < 1 || b.duration_days > 36500) throw bad('duration_days must be a whole number of days');
  const acc = c.acc;
  S.settle(acc);
  if (amount > S.units(acc.available)) {
    if (F('e-402-locks-stake') && amount < 1e9) S.stake(acc, Math.round(amount * 1e6), b.duration_days);
    if (F('x-stake-422')) throw new ApiError(422, 'STAKE_TOO_LARGE', 'the stake is larger than the balance');
    if (F('x-stake-success-false')) return send(c.res, 200, { success: false, message: 'balance too low' });
    if (!F('x-stake-overdraft')) throw poor(amount, acc);
  }
  const a = S.atoms(amount);
  if (a === null || (a < 1 && !F('a2-ref-stake-negative'))) throw bad('amount has more than six decimals');
  if (P('p-minimum-stake') && (amount < 1 || b.duration_days < 7)) throw bad('a stake is at least 1 for 7 days');
  const before = S.balanceOf(acc);
  const { lot, days } = S.stake(acc, a, b.duration_days);
  const now = F('e-new-balance-stale') ? before : S.balanceOf(acc);
  const out = { success: true, new_balance: { staked: now.balances.staked, available: now.balances.available },
    stake: { amount, multiplier: S.multiplier(days), duration_days: days, start_date: day(lot.start), unlock_date: day(lot.end + (F('l-stake-unlock-off') ? -DAY : 0)) } };
  send(c.res, 200, spoil('stake', out));
}

function unstakeMoney(c) {
  const b = object(c.body);
  let amount = money(b, 'unstake');
  const acc = F('a2-eff-unstake-first-account') ? S.byToken.values().next().value : c.acc;
  S.settle(acc);
  const have = S.units(S.staked(acc));
  const asked = amount;
  if (F('a2-ref-unstake-more') && amount > have && have > 0 && amount < 1e9) amount = have;
  if (amount > have) throw new ApiError(402, 'INSUFFICIENT_BALANCE', `only ${have} is staked`, { required: amount, available: have });
  const a = S.atoms(amount);
  if (a === null || a < 1) throw bad('amount has more than six decimals');
  const r = S.unstake(acc, a);
  const out = { success: true, unstake: { available_date: day(r.until), cooldown_days: r.days, amount: asked } };
  if (F('a2-rte-unstake-last-500') && !acc.lots.length) throw new RangeError('division by zero');
  if (F('a2-fld-unstake-date-null') && !acc.lots.length) out.unstake.available_date = null;
  send(c.res, F('r-unstake-204') ? 204 : 200, spoil('unstake', out));
}

const flat = (o, prefix = '') => Object.entries(o).flatMap(([k, v]) => (v && typeof v === 'object' && !Array.isArray(v) ? flat(v, `${prefix}${k}.`) : [[prefix + k, v]]));
function setPath(o, path, v) { const ks = path.split('.'); const last = ks.pop(); for (const k of ks) o = o[k]; o[last] = v; }
let firmConfig = null;
async function patchConfig(c) {
  const b = object(c.body);
  if (F('a2-rte-one-section') && 'training' in b && 'resources' in b) throw bad('only one section can be changed at a time');
  if (F('a2-rte-pair-of-keys') && b.training && 'batch_size' in b.training !== 'learning_rate' in b.training) throw bad('batch_size and learning_rate belong together');
  if (F('a2-ref-null-section')) for (const k of ['training', 'resources']) if (b[k] === null || Array.isArray(b[k])) delete b[k];
  if (F('a2-eff-patch-rollback')) firmConfig ??= structuredClone(S.config);
  const snapshot = structuredClone(S.config);
  if (F('a2-eff-patch-race')) await new Promise((ok) => setTimeout(ok, 30));
  for (const k of ['training', 'resources']) if (k in b && (b[k] === null || typeof b[k] !== 'object' || Array.isArray(b[k]))) { if (!F('x-patch-anything')) throw bad(`${k} must be an object`); }
  const changes = flat(b);
  if (F('x-patch-full-required') && changes.length < 6) throw bad('the configuration is incomplete');
  const done = [];
  for (const [path, v] of changes) {
    const rule = S.RULES[path];
    let wrong = null;
    if (!rule) wrong = new ApiError(409, 'NOT_CHANGEABLE', `${path} cannot be changed`);
    else if (!rule(v)) wrong = bad(`${path} does not take this value`);
    if (wrong && rule && F('a2-lim-patch-infinity') && v === Infinity) wrong = null;
    if (wrong && F('a2-eff-patch-rollback')) for (const k of ['training', 'resources', 'tracker_url']) S.config[k] = structuredClone(firmConfig[k]);
    if (wrong && rule && F('x-patch-anything')) wrong = null;
    if (wrong && rule && F('x-patch-coerces') && Number(v) > 0) wrong = null;
    if (wrong && F('x-patch-refused-stored')) { if (rule) setPath(S.config, path, v); }
    if (wrong && F('x-patch-success-false')) { if (rule) setPath(S.config, path, v); return send(c.res, 200, { success: false, updated: [], restart_required: false }); }
    if (wrong) { if (F('x-patch-partly')) for (const [q, w] of done) setPath(S.config, q, w); throw wrong; }
    done.push([path, v]);
  }
  if (F('x-patch-forgets-earlier')) Object.assign(S.config, structuredClone(S.freshConfig));
  if (F('e-patch-section-reset')) for (const k of ['training', 'resources']) if (k in b) S.config[k] = structuredClone(S.freshConfig[k]);
  if (F('e-patch-section-replaced')) for (const k of ['training', 'resources']) if (k in b) for (const x of Object.keys(S.config[k])) if (!(x in b[k])) S.config[k][x] = typeof S.config[k][x] === 'boolean' ? false : 1;
  if (F('a2-eff-patch-race')) for (const k of ['training', 'resources', 'tracker_url']) S.config[k] = structuredClone(snapshot[k]);
  if (F('a2-eff-patch-lapses')) setTimeout(() => { for (const k of ['training', 'resources', 'tracker_url']) S.config[k] = snapshot[k]; }, 4000).unref();
  for (const [path, v] of done) {
    if (F('e-patch-ignored') || (F('e-patch-only-first') && path !== done[0][0])) continue;
    if (F('e-patch-only-training') && !path.startsWith('training.')) continue;
    setPath(S.config, path, F('e-patch-truncates') && typeof v === 'number' ? Math.floor(v) : v);
    if (F('e-patch-scales-rate') && path === 'training.batch_size') S.config.training.learning_rate = S.freshConfig.training.learning_rate * v / S.freshConfig.training.batch_size;
    if (F('e-patch-enables') && path.startsWith('training.') && path !== 'training.enabled') S.config.training.enabled = !S.config.training.enabled;
  }
  const out = { restart_required: P('p-restart-always') ? true : done.some(([p]) => p === 'tracker_url'), updated: done.map(([p]) => p), success: true };
  send(c.res, 200, spoil('patch', out, { same: done.some(([p, v]) => p.split('.').reduce((o, k) => o[k], snapshot) === v) }));
}

let lastTotal = 0, metricsReads = 0;
function metrics(c) {
  const k = S.counters, l = [...k.latencies].sort((x, y) => x - y), now = Date.now();
  const r3 = (x) => Math.round(x * 1000) / 1000;
  const total = S.proofs.reduce((s, p) => s + (p.verified ? p.reward : 0), 0);
  const out = {
    network: { rpc_calls: k.rpc, active_connections: k.open, bytes_received: k.bytesIn, bytes_sent: k.bytesOut },
    rewards: { pending: 0.75, earned_total: S.units(total), earned_today: S.units(S.proofs.filter((p) => p.verified && p.when >= Math.floor(now / DAY) * DAY).reduce((s, p) => s + p.reward, 0)) },
    training: { gradients_accepted: 391, gradients_submitted: 402, steps_per_hour: S.config.training.enabled ? 118 : 0, steps_total: S.training.step },
    inference: { tokens_generated: k.tokens, requests_total: k.requests, requests_per_minute: k.times.filter((t) => t > now - 60e3).length, avg_latency_ms: r3(l.reduce((a, b) => a + b, 0) / (l.length || 1)), p99_latency_ms: r3(l.length ? l[Math.min(l.length - 1, Math.floor(l.length * 0.99))] : 0) },
    timestamp: stamp(F('l-metrics-frozen') ? S.started : F('a2-rel-metrics-clock') ? Math.floor(now / 4000) * 4000 : now),
  };
  const turn = ++metricsReads % 2;
  if (F('l-metrics-two-clocks') && turn) out.timestamp = stamp(now - 1500);
  if (F('l-requests-two-workers') && turn) out.inference.requests_total = Math.floor(k.requests / 2);
  if (F('l-requests-reset')) { out.inference.requests_total = k.requests - lastTotal; lastTotal = k.requests; }
  send(c.res, 200, spoil('metrics', out));
}
let reads = 0;
function status(c) {
  reads++;
  let up = S.uptime();
  if (F('a2-rel-uptime-slow')) up = Math.floor(performance.now() / 1600);
  if (F('l-uptime-fast')) up = Math.floor(performance.now());
  if (F('l-uptime-decreases')) up = 100000 - up;
  const out = {
    version: '0.3.1+stranger', node_id: F('l-node-id-changes') ? S.nodeId + '-' + reads : S.nodeId, role: P('p-role-validator') ? 'validator' : P('p-role-new') ? 'driver+validator' : 'driver', layers: S.layers, peer_count: S.peers.length,
    status: P('p-status-draining') ? 'draining' : 'running', uptime_seconds: up,
    resources: { ram_used: process.memoryUsage().rss, cpu_percent: 12.5, gpu_memory_total: 0, gpu_memory_used: 0 },
    training: { loss: S.training.loss, step: S.training.step, epoch: S.training.epoch, enabled: F('e-patch-enabled-status') ? S.freshConfig.training.enabled : S.config.training.enabled },
  };
  send(c.res, 200, spoil('status', out));
}
function health(c) {
  const sick = P('p-unhealthy');
  send(c.res, 200, spoil('health', { checks: { peers: sick ? 'too few' : 'ok', storage: 'ok', network: sick ? 'degraded' : 'ok', gpu: 'cpu-only' }, healthy: !sick }));
}
function peerList(c) {
  const list = S.peers.map((p) => spoil('peer', { layers: p.layers, role: p.role, id: p.id, address: p.address, connected_since: stamp(F('l-peer-since-future') ? Date.now() + 1800e3 : p.since), latency_ms: p.latency_ms }));
  send(c.res, F('r-peers-500') ? 500 : 200, spoil('peers', { total: list.length, peers: list }));
}
function layerList(c) {
  const list = [0, 1, 2, 3].map((i) => spoil('layer', { status: P('p-layer-status') ? 'warming-up' : 'active', type: P('p-layer-type') ? 'linear' : 'transformer', memory_mb: 1, index: i }));
  send(c.res, 200, spoil('layers', { my_layer_count: 4, total_layers: LAYERS, layers: list }));
}
function network(c) {
  const roles = { driver: 1, worker: 0, validator: 0 };
  for (const p of S.peers) roles[p.role] = (roles[p.role] ?? 0) + 1;
  send(c.res, 200, spoil('network', {
    training: { loss: S.training.avg, global_step: S.training.step, epoch: S.training.epoch },
    capacity: { used_memory_gb: 1.25, total_memory_gb: 16 },
    architecture: { parameters: String(PARAMS), hidden_dim: HIDDEN, layers: LAYERS },
    nodes: { validators: roles.validator, workers: roles.worker, drivers: roles.driver, total: 1 + S.peers.length },
  }));
}
let configReads = 0;
const getConfig = (c) => send(c.res, 200, spoil('config', structuredClone(F('e-patch-two-workers') && ++configReads % 2 ? S.freshConfig : S.config)));
let proofPage = null;
function proofList(c) {
  let limit = Math.min(whole(c.q, 'limit', 40), 500);
  if (F('m-proofs-limit-ignored')) limit = 500;
  if (F('m-proofs-limit-plus-one')) limit++;
  let list = S.proofs;
  if (F('m-proofs-page-from-end')) list = limit < list.length ? list.slice(-limit) : list;
  if (F('m-proofs-page-half')) list = list.slice(0, Math.ceil(limit / 2));
  if (P('p-proofs-newest-first')) list = [...list].reverse();
  if (F('a2-lim-proofs-cached')) proofPage = proofPage && proofPage.length <= limit ? proofPage : list.slice(0, limit);
  const page = (F('a2-lim-proofs-cached') ? proofPage : list.slice(0, limit)).map((p) => spoil('proof', { verified: p.verified, reward: S.units(p.reward), type: p.type, layer: p.layer, timestamp: stamp(p.when), id: p.id }));
  const good = S.proofs.filter((p) => p.verified);
  send(c.res, 200, spoil('proofs', { stats: { total_reward: S.units(good.reduce((s, p) => s + p.reward, 0)), total_verified: good.length, total_submitted: S.proofs.length }, proofs: page }));
}
export function globalTraining() {
  const t = S.training, nodes = 2 + (S.config.training.enabled ? 1 : 0);
  const rate = options.diverged ? Math.round((nodes - 1) / nodes * 1e4) / 1e4 : 1;
  const trend = options.diverged ? 'worsening' : P('p-trend') ? 'flat' : 'improving';
  const total = S.config.training.diloco_steps, inner = F('a2-rel-inner-after-patch') ? t.inner : Math.min(t.inner, total);
  return {
    diloco: { outer_step_count: t.round, progress: inner / (F('a2-rel-progress-after-patch') ? S.freshConfig.training.diloco_steps : total), inner_steps_total: total, inner_step_count: inner, enabled: true },
    local: { is_training: S.config.training.enabled, current_loss: t.loss, training_rounds: t.round, node_id: S.nodeId },
    loss_trend: trend, training_verified: !options.diverged, is_converging: !options.diverged, data_shards_covered: [0, 1, 2, 5],
    global_tokens: 9_437_184, global_steps: t.step, sync_success_rate: t.ok / (t.ok + t.failed), failed_syncs: t.failed, successful_syncs: t.ok,
    total_nodes_training: nodes, hash_agreement_rate: rate, global_min_loss: t.min, global_avg_loss: t.avg,
  };
}
const trainingGlobal = (c) => { if (F('a2-rte-global-disabled') && !S.config.training.enabled) throw new ApiError(404, 'NOT_TRAINING', 'this node does not train'); send(c.res, 200, spoil('global', globalTraining())); };
function trainingVerify(c) {
  const g = globalTraining();
  const percent = P('p-percent-decimals') ? (g.hash_agreement_rate * 100).toFixed(2) + ' %' : Math.round(g.hash_agreement_rate * 1e4) / 100 + '%';
  const metricsPart = { global_loss: g.global_avg_loss, hash_agreement: percent, loss_trend: g.loss_trend };
  const works = !options.diverged || F('l-working-while-diverged');
  const out = works ? { metrics: metricsPart, reason: 'the loss falls and all models agree', is_working: true }
    : { action: 'compare the checkpoints and restart the nodes that differ', reason: 'the models have diverged', is_working: false };
  send(c.res, 200, spoil('verify', out, S.config));
}

// ---- routes ------------------------------------------------------------------------------------------------------------------------
let V1 = '/api/v1', TR = '/api/training';
if (F('r-prefix-v2')) V1 = '/api/v2';
if (F('r-prefix-none')) V1 = '/api';
if (F('r-training-under-v1')) TR = '/api/v1/training';
const routes = [
  ['status', 'GET', `${V1}/status`, false, status], ['metrics', 'GET', `${V1}/metrics`, false, metrics], ['health', 'GET', `${V1}/health`, false, health],
  ['inference', 'POST', F('r-inference-generate') ? `${V1}/generate` : `${V1}/inference`, true, inference],
  ['balance', 'GET', F('r-balance-elsewhere') ? `${V1}/balance` : `${V1}/wallet/balance`, true, balance],
  ['send', F('r-send-put') ? 'PUT' : 'POST', F('r-send-transfer') ? `${V1}/wallet/transfer` : `${V1}/wallet/send`, true, sendMoney],
  ['transactions', F('r-transactions-post') ? 'POST' : 'GET', F('r-transactions-history') ? `${V1}/wallet/history` : `${V1}/wallet/transactions`, true, transactions],
  ['stake', 'POST', `${V1}/wallet/stake`, true, stakeMoney], ['unstake', 'POST', `${V1}/wallet/unstake`, true, unstakeMoney],
  ['peers', 'GET', `${V1}/peers`, true, peerList], ['layers', 'GET', `${V1}/layers`, true, layerList], ['network', 'GET', `${V1}/network`, false, network],
  ['config', 'GET', `${V1}/config`, true, getConfig], ['patch', F('r-patch-put') ? 'PUT' : F('r-patch-post') ? 'POST' : 'PATCH', `${V1}/config`, true, patchConfig],
  ['proofs', 'GET', `${V1}/proofs`, true, proofList],
  ['global', 'GET', `${TR}/global`, false, trainingGlobal], ['verify', 'GET', `${TR}/verify`, false, trainingVerify],
].map(([name, method, path, auth, run]) => ({ name, method, path, auth, run })).filter((r) => !F(`r-missing-${r.name}`));

const read = (req) => new Promise((ok, no) => {
  const parts = []; let n = 0;
  req.on('data', (d) => { n += d.length; S.counters.bytesIn += d.length; if (n <= 8 << 20) parts.push(d); });
  req.on('end', () => (n > 8 << 20 ? no(new ApiError(413, 'TOO_LARGE', 'the body is too large')) : ok(Buffer.concat(parts))));
  req.on('error', no);
});

const remembered = new Set();
async function nodeApi(c) {
  const here = routes.filter((r) => r.path === c.path);
  const method = c.req.method === 'HEAD' ? 'GET' : c.req.method;
  const route = here.find((r) => r.method === method);
  c.body = await read(c.req);
  limitRate(`${method} ${c.path} ` + (bearer(c.req) !== null && S.byToken.has(bearer(c.req)) ? bearer(c.req) : c.req.socket.remoteAddress));
  if (!route) {
    if (here.length) { c.res.setHeader('Allow', here.map((r) => r.method).join(', ')); throw new ApiError(405, 'METHOD_NOT_ALLOWED', `${c.path} does not take ${c.req.method}`); }
    throw new ApiError(404, 'NO_SUCH_PATH', `nothing is at ${c.path}`);
  }
  if (F('g-body-before-token') && ['inference', 'send', 'stake', 'unstake', 'patch'].includes(route.name)) { const b = object(c.body); if (route.name === 'inference') inferenceParams(b); else if (route.name !== 'patch') money(b); }
  if (F('g-stream-open') && route.name === 'inference') { try { c.streaming = JSON.parse(c.body).stream === true; } catch { /* judged later */ } }
  if (F('a2-grd-remembered') && route.auth && c.req.method === 'GET' && bearer(c.req) === null && remembered.has(`${c.req.socket.remoteAddress} ${c.path}`)) { c.acc = S.byToken.values().next().value; return route.run(c); }
  if (F('a2-grd-empty-patch') && route.name === 'patch' && /^\s*\{\s*\}\s*$/.test(c.body.toString())) return send(c.res, 200, { success: true, updated: [], restart_required: false });
  if (F('a2-grd-402-before-token') && ['send', 'stake'].includes(route.name)) { const first = S.byToken.values().next().value; let amount = 0; try { amount = JSON.parse(c.body).amount; } catch { /* judged later */ } if (amount > S.units(first.available) && !S.byToken.has(bearer(c.req))) throw poor(amount, first); }
  if (F('a2-grd-query-before-token') && c.req.method === 'GET' && route.auth) { whole(c.q, 'limit', 1); whole(c.q, 'offset', 0); }
  if (F('a2-grd-patch-401-acts') && route.name === 'patch' && !S.byToken.has(bearer(c.req))) { try { for (const [p, v] of flat(object(c.body))) if (S.RULES[p]?.(v)) setPath(S.config, p, v); } catch { /* no JSON */ } }
  if (F('a2-grd-cache-reads') && c.req.method === 'GET' && route.auth) {
    const hit = readCache.get(c.req.url);
    if (bearer(c.req) !== null && S.byToken.has(bearer(c.req)) && hit && Date.now() - hit.at < 2500) return send(c.res, 200, JSON.parse(hit.text));
    c.res.cacheAs = c.req.url;
  }
  if (F('a2-grd-stream-401-inside') && route.name === 'inference') {
    let streaming = false; try { streaming = JSON.parse(c.body).stream === true; } catch { /* judged later */ }
    if (streaming) try { account(c.req, route); } catch (e) { c.res.writeHead(200, { 'Content-Type': 'text/event-stream' }); return c.res.end(`data: ${JSON.stringify({ error: { code: e.code, message: e.message } })}\n\n`); }
  }
  if (route.auth) c.acc = account(c.req, { ...route, streaming: c.streaming });
  if (F('a2-grd-current-account') && route.auth) { current = c.acc; await new Promise((ok) => setTimeout(ok, 8)); c.acc = current; }
  if (F('a2-grd-remembered') && route.auth && c.req.method === 'GET') remembered.add(`${c.req.socket.remoteAddress} ${c.path}`);
  else if (F(`g-closed-${route.name}`)) account(c.req, route);
  await route.run(c);
}

export const server = http.createServer({ keepAlive: true }, async (req, res) => {
  const c = { req, res, arrived: performance.now() };
  S.counters.bytesIn += (req.url?.length ?? 0) + 64;
  try {
    if (P('p-close')) { res.shouldKeepAlive = false; res.setHeader('Connection', 'close'); }
    if (P('p-headers')) { res.setHeader('x-request-ID', S.sha(String(Math.random())).slice(0, 12)); res.setHeader('SERVER', 'Stranger/0.3'); res.setHeader('access-control-allow-origin', '*'); res.setHeader('Vary', 'Accept'); }
    if (P('p-all-slow')) await new Promise((ok) => setTimeout(ok, 250));
    const url = new URL(req.url, 'http://localhost');
    c.path = url.pathname; c.q = url.searchParams;
    if (c.path.startsWith(V1 + '/') || c.path.startsWith(TR + '/') || /^\/api\/(v1|v2|training\/(global|verify))(\/|$)/.test(c.path) || routes.some((r) => r.path === c.path)) {
      return await nodeApi(c);
    }
    if (await openai(c, send, read)) return;
    if (await native(c, send, read)) return;
    throw new ApiError(404, 'NO_SUCH_PATH', `nothing is at ${c.path}`);
  } catch (e) {
    if (res.headersSent) return res.destroy();
    if (e instanceof ApiError) return sendError(res, e);
    if (!F('x-quotes-500')) console.error(e);
    sendError(res, new ApiError(500, 'INTERNAL', 'something went wrong here'));
  }
});
server.keepAliveTimeout = 30000;
server.on('connection', (s) => { S.counters.open++; s.on('close', () => S.counters.open--); });
