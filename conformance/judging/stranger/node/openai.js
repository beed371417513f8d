// OpenAI's routes (interface 10): served only with --peculiar p-openai, or with a fault of these routes.
import { F, P, active } from './switches.js';
import * as S from './state.js';
import { generate, tokenCount } from './model.js';

const on = P('p-openai') || active?.id.startsWith('a2-oa-');
const ID = 'pebble/markov-5';
const began = Math.floor(S.started / 1000);
const model = () => ({ id: ID, object: 'model', created: began - 86400, owned_by: 'pebble' });
const now = () => (F('a2-oa-rel-created-start') ? began : Math.floor(Date.now() / 1000));
let serial = 0;

class Refusal extends Error { constructor(status, text, param = null, code = null) { super(text); Object.assign(this, { status, param, code }); } }
const bad = (text, param) => new Refusal(400, text, param);
const isInt = Number.isInteger;

function common(b, chat) {
  if (typeof b.model !== 'string') throw bad('model is missing', 'model');
  if (b.model !== ID && !(F('a2-oa-ref-model-stream') && b.stream === true)) throw new Refusal(404, 'this model does not exist', 'model', 'model_not_found');
  const ask = (name, ok) => { if (b[name] !== undefined && b[name] !== null && !ok(b[name])) throw bad(`${name} has a bad value`, name); };
  if (F('a2-oa-ref-max-tokens-text') && /^\d+$/.test(b.max_tokens)) b.max_tokens = Number(b.max_tokens);
  if (F('a2-oa-ref-n-zero') && b.n === 0) b.n = 1;
  const number = (lo, hi) => (v) => typeof v === 'number' && v >= lo && v <= hi;
  ask('temperature', number(0, 2)); ask('top_p', number(0, 1));
  for (const k of ['presence_penalty', 'frequency_penalty']) ask(k, number(-2, 2));
  ask('n', (v) => isInt(v) && v >= 1 && v <= 128); ask('max_tokens', (v) => isInt(v) && v >= 0); ask('max_completion_tokens', (v) => isInt(v) && v >= 0);
  ask('stream', (v) => typeof v === 'boolean'); ask('seed', isInt); ask('user', (v) => typeof v === 'string');
  ask('stop', (v) => typeof v === 'string' || (Array.isArray(v) && v.length <= 4 && v.every((s) => typeof s === 'string')));
  ask('logprobs', chat ? (v) => typeof v === 'boolean' : (v) => isInt(v) && v >= 0 && v <= 5);
  ask('top_logprobs', (v) => isInt(v) && v >= 0 && v <= 20);
  ask('stream_options', (v) => typeof v === 'object' && !Array.isArray(v) && (v.include_usage === undefined || typeof v.include_usage === 'boolean'));
  const stop = typeof b.stop === 'string' ? (F('a2-oa-lim-stop-string') ? [] : [b.stop]) : b.stop ?? [];
  const most = F('a2-oa-lim-max-completion') ? b.max_tokens : b.max_completion_tokens ?? b.max_tokens;
  return { n: b.n ?? 1, stop, max_tokens: Math.min(most ?? (chat || F('a2-oa-lim-default-100') ? 100 : 16), 1024), temperature: b.temperature ?? 1, top_p: b.top_p || 1, top_k: 50 };
}
function chatPrompt(b) {
  const empty = !Array.isArray(b.messages) || !b.messages.length;
  if (empty && F('a2-oa-ref-empty-messages') && b.stream === true && Array.isArray(b.messages)) return '';
  if (empty) throw bad('messages is missing or empty', 'messages');
  return b.messages.map((m) => {
    if (!m || !['system', 'developer', 'user', 'assistant', 'tool', 'function'].includes(m.role)) throw bad('a message has a role', 'messages');
    if (typeof m.content === 'string') return m.content;
    if (Array.isArray(m.content) && m.content.length && m.content.every((p) => p && typeof p.type === 'string')) return m.content.map((p) => p.text ?? '').join('');
    if (m.content === null && m.role === 'assistant') return '';
    throw bad('content of a message is a text or a list of parts', 'messages');
  }).join('\n');
}
const run = (p, prompt) => { const g = generate({ ...p, prompt }), pieces = []; let s; while (!(s = g.next()).done) pieces.push(s.value); return { ...s.value, pieces, finish: s.value.finish.startsWith('stop') ? 'stop' : 'length' }; };
const logprobs = (text) => ({ content: [...text].map((t) => ({ token: t, logprob: F('a2-oa-rel-logprob-positive') ? 0.7788 : -0.25, bytes: [...Buffer.from(t)], top_logprobs: [] })), refusal: null });
const usageOf = (prompt, runs) => {
  const completion = runs.reduce((s, r) => s + r.tokens, 0), p = tokenCount(prompt);
  return { prompt_tokens: p, completion_tokens: completion, total_tokens: p + (F('a2-oa-rel-usage-n') ? runs[0].tokens : completion) };
};
const newId = (kind, b) => kind + '-' + S.sha(F('a2-oa-rel-same-id') ? JSON.stringify(b) : `oa:${S.started}:${++serial}`).slice(0, 24);

function chat(c, b, send) {
  const p = common(b, true), prompt = chatPrompt(b);
  const id = newId('chatcmpl', b), created = now();
  if (b.stream === true) return chatStream(c, b, p, prompt, id, created);
  const runs = Array.from({ length: p.n }, () => run(p, prompt));
  send(c.res, 200, { id, object: 'chat.completion', created, model: ID, usage: usageOf(prompt, runs), choices: runs.map((r, i) => {
    const choice = { index: i, finish_reason: r.finish, logprobs: b.logprobs ? logprobs(r.text) : null, message: { role: 'assistant', content: r.text, refusal: null } };
    if (F('a2-oa-fld-refusal-later') && i) delete choice.message.refusal;
    return choice;
  }) });
}
function chatStream(c, b, p, prompt, id, created) {
  c.res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  const want = b.stream_options?.include_usage === true;
  const event = (o) => c.res.write(`data: ${JSON.stringify(o)}\n\n`);
  const base = { id, object: 'chat.completion.chunk', created, model: ID };
  const chunk = (index, delta, finish_reason = null, text = '') => {
    const choice = { index, delta, finish_reason, logprobs: b.logprobs && text ? logprobs(text) : null };
    if (F('a2-oa-fld-delta-end') && finish_reason) delete choice.delta;
    event({ ...base, choices: [choice], ...(want && !F('a2-oa-rel-usage-null') ? { usage: null } : {}) });
  };
  const runs = [];
  const n = F('a2-oa-lim-n-stream') ? 1 : p.n;
  for (let i = 0; i < n; i++) {
    const r = run(p, prompt); runs.push(r);
    if (!(F('a2-oa-rel-role-once') && i)) chunk(i, { role: 'assistant', content: '' });
    for (const t of r.pieces) chunk(i, { content: t }, null, t);
    chunk(i, {}, r.finish);
  }
  if (F('a2-oa-rel-finish-twice') && n > 1) runs.forEach((r, i) => chunk(i, {}, r.finish));
  if (want) event({ ...base, ...(F('a2-oa-rel-usage-id') ? { id: newId('chatcmpl', b) } : {}), choices: [], usage: usageOf(prompt, runs) });
  c.res.end('data: [DONE]\n\n');
}
function completions(c, b, send) {
  const p = common(b, false);
  const prompts = b.prompt === undefined ? [''] : typeof b.prompt === 'string' ? [b.prompt] : Array.isArray(b.prompt) && b.prompt.length && b.prompt.every((x) => typeof x === 'string') ? b.prompt : null;
  if (!prompts) throw bad('prompt is a text or a list of texts', 'prompt');
  const id = newId('cmpl', b), created = now();
  const runs = prompts.flatMap((q) => Array.from({ length: p.n }, () => run(p, q)));
  const choices = runs.map((r, index) => ({ index, finish_reason: r.finish, logprobs: null, text: r.text }));
  const usage = usageOf(prompts.join(''), runs), object = 'text_completion';
  if (b.stream !== true) return send(c.res, 200, { id, object, created, model: ID, choices, usage });
  c.res.writeHead(200, { 'Content-Type': 'text/event-stream' });
  for (const choice of choices) c.res.write(`data: ${JSON.stringify({ id, object, created, model: ID, choices: [choice] })}\n\n`);
  if (b.stream_options?.include_usage === true) c.res.write(`data: ${JSON.stringify({ id, object, created, model: ID, choices: [], usage })}\n\n`);
  c.res.end('data: [DONE]\n\n');
}

export async function openai(c, send, read) {
  if (!on || !c.path.startsWith('/v1/')) return false;
  const { req, res } = c;
  try {
    const body = (await read(req)).toString();
    const post = { '/v1/chat/completions': chat, '/v1/completions': completions }[c.path];
    const token = /^bearer +(\S+)$/i.exec(req.headers.authorization ?? '')?.[1];
    let b = null;
    try { b = JSON.parse(body); } catch { /* judged below */ }
    const open = (F('a2-oa-grd-stream') && post && b?.stream === true) || (F('a2-oa-grd-model') && c.path.startsWith('/v1/models/'));
    if (!S.byToken.has(token) && !open) throw new Refusal(401, 'this key is not valid', null, 'invalid_api_key');
    if (post) {
      if (req.method !== 'POST') throw new Refusal(405, 'use POST');
      if (!b || typeof b !== 'object' || Array.isArray(b)) throw bad('the body is no JSON object');
      post(c, b, send); return true;
    }
    if (req.method !== 'GET') throw new Refusal(405, 'use GET');
    if (c.path === '/v1/models') { send(res, 200, { object: 'list', data: [model()] }); return true; }
    if (c.path.startsWith('/v1/models/')) {
      const name = c.path.slice('/v1/models/'.length);
      if ((F('a2-oa-rte-encoded-model') ? name : decodeURIComponent(name)) === ID) { send(res, 200, model()); return true; }
      throw new Refusal(404, 'this model does not exist', 'model', 'model_not_found');
    }
    throw new Refusal(404, 'nothing is here');
  } catch (e) {
    if (!(e instanceof Refusal)) throw e;
    const error = { message: e.message, type: e.status === 401 ? 'authentication_error' : 'invalid_request_error', param: e.param, code: e.code };
    if (F('a2-oa-fld-error-param') && e.status === 404) delete error.param;
    send(res, e.status, { error });
    return true;
  }
}
