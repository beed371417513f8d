// POST /inference: its parameters, its price, its result and its stream.
import { fault, peculiar, sleep } from './switches.js';
import { figures, newId, tokens as accounts, CURRENCY } from './state.js';
import { units } from './money.js';
import { Refusal, accountOf, bad, written } from './http.js';
import { generate } from './generate.js';

const isInt = (value) => Number.isInteger(value);
const HIGHEST = peculiar('low-max-tokens') ? 512 : 2048;

function range(name, value, type, allowed) {
  if (value === undefined) return;
  if (type === 'int' ? !isInt(value) : typeof value !== type) throw bad(`${name} has the wrong type.`);
  if (!allowed(value)) throw bad(`${name} is out of its range.`);
}

export function checkBody(body, streamed) {
  if (body === null || typeof body !== 'object' || Array.isArray(body)) throw bad('The body is not an object.');
  if (fault('prompt-optional') && body.prompt === undefined) body.prompt = 'Hello';
  if (typeof body.prompt !== 'string' || !body.prompt) throw bad('prompt must be a string with at least one letter.');
  if (fault('prompt-emoji-refused') && /[\u{10000}-\u{10ffff}]/u.test(body.prompt)) throw bad('prompt is no text.');
  if (fault('max-tokens-fraction-accepted') && typeof body.max_tokens === 'number') body.max_tokens = Math.floor(body.max_tokens);
  if (fault('wrong-type-default') && body.max_tokens !== undefined && !isInt(body.max_tokens)) delete body.max_tokens;
  if (fault('temperature-wrapped-in-stream') && streamed && typeof body.temperature === 'object') delete body.temperature;
  range('max_tokens', body.max_tokens, 'int', (v) => v >= 0 && v <= HIGHEST);
  range('temperature', body.temperature, 'number', (v) => {
    if (fault('temperature-zero-refused')) return v > 0 && v <= 2;
    if (fault('temperature-two-refused')) return v >= 0 && v < 2;
    if (fault('temperature-no-maximum')) return v >= 0;
    return v >= 0 && v <= 2;
  });
  range('top_p', body.top_p, 'number', (v) => v > 0 && v <= 1);
  range('top_k', body.top_k, 'int', (v) => v >= 1 && (!fault('top-k-above-vocabulary-refused') || v <= 32));
  if (fault('stream-object-truthy')) body.stream = Boolean(body.stream);
  range('stream', body.stream, 'boolean', () => true);
  if (body.stop !== undefined) {
    if (fault('stop-empty-array-refused') && body.stop.length === 0) throw bad('stop is empty.');
    if (!Array.isArray(body.stop) || body.stop.some((one) => typeof one !== 'string' || !one)) {
      throw bad('stop must be an array of texts.');
    }
  }
}

export function costOf(result) {
  const perToken = peculiar('dear-generations') ? 20_000 : 1_000;
  if (peculiar('free-generations')) return 0;
  return result.promptTokens * 10 + result.completion * perToken;
}

function charge(account, cost, result, streamed) {
  let payer = account;
  if (fault('charge-first-account')) payer = accounts.get('tok-a');
  if (fault('generation-overdraws') ? false : cost > payer.available) {
    throw new Refusal(402, 'INSUFFICIENT_BALANCE', 'Too little is available for this generation.',
      { required: units(cost), available: units(payer.available) });
  }
  let taken = cost;
  if (fault('charge-stream-tenfold') && streamed) taken = cost * 10;
  if (fault('charge-never')) taken = 0;
  payer.available -= taken;
  if (taken > 0 && !peculiar('charges-not-listed')) {
    payer.history.push({ id: newId('tx'), type: 'inference', amount: -units(taken), timestamp: new Date().toISOString() });
  }
}

let counting = 0;
function count(result, latency, streamed) {
  if (fault('stream-not-counted') && streamed) return;
  if (fault('counted-one-at-a-time') && counting > 1) return;
  figures.requests += 1;
  let tokens = result.counted;
  if (fault('asked-tokens-counted')) tokens = result.asked;
  if (fault('stream-tokens-counted-twice') && streamed) tokens *= 2;
  figures.tokens += tokens;
  figures.latencies.push(fault('latency-in-seconds') ? latency / 1000 : latency);
  figures.recent.push(Date.now());
}

const round = (value) => Math.floor(value * 100) / 100;
let lastResult = 'res-0';

export async function inference(request, reply) {
  const begun = performance.now();
  const account = accountOf(request, '/inference');
  const body = request.body;
  const streamed = body?.stream === true;
  try {
    checkBody(body, streamed);
  } catch (error) {
    if (!(fault('stream-refused-in-event') && streamed)) throw error;
    return reply.type('text/event-stream').send(`data: ${JSON.stringify({ error: { code: error.code, message: error.message } })}\n\n`);
  }
  const result = generate(body, streamed);
  const cost = costOf(result);
  if (fault('unpaid-stream-in-event') && streamed && cost > account.available) {
    return reply.type('text/event-stream').send('data: {"error":{"code":"INSUFFICIENT_BALANCE","message":"Too little"}}\n\n');
  }
  charge(account, cost, result, streamed);
  counting += 1;
  if (fault('fails-when-busy') && counting > 2) {
    counting -= 1;
    throw new Refusal(500, 'INTERNAL', 'The model is busy.');
  }
  const queued = performance.now();
  await sleep(result.completion * 0.3 + (fault('counted-one-at-a-time') ? 30 : 1) + (peculiar('slow-generation') ? 400 : 0));
  const inferenceMs = performance.now() - queued;
  count(result, performance.now() - begun, streamed);
  counting -= 1;
  const usage = {
    prompt_tokens: result.promptTokens,
    completion_tokens: result.completion,
    total_tokens: result.promptTokens + result.completion,
  };
  if (fault('prompt-tokens-constant')) { usage.prompt_tokens = 12; usage.total_tokens = 12 + result.completion; }
  if (fault('total-tokens-wrong')) usage.total_tokens = result.completion;
  if (streamed && !fault('stream-flag-ignored')) return stream(result, usage, reply);
  const full = {
    id: newId('inf'),
    text: result.text,
    tokens_generated: result.completion,
    finish_reason: result.reason,
    usage,
    cost: { amount: units(cost), currency: CURRENCY },
    timing: { queue_ms: round(queued - begun), inference_ms: round(inferenceMs), total_ms: round(performance.now() - begun) },
  };
  if (fault('total-ms-below-inference')) full.timing.total_ms = full.timing.queue_ms;
  if (fault('timing-microseconds')) for (const key of Object.keys(full.timing)) full.timing[key] *= 1000;
  if (fault('timing-missing')) delete full.timing;
  if (fault('cost-in-atoms')) full.cost.amount = cost;
  if (fault('id-repeated')) full.id = 'inf-' + result.promptTokens + '-' + result.completion;
  if (fault('text-renamed')) { full.output = full.text; delete full.text; }
  return reply.type('application/json').send(written(full));
}

async function stream(result, usage, reply) {
  const json = (value) => JSON.stringify(value, null, fault('event-on-several-lines') ? 1 : 0);
  let index = fault('index-from-one') ? 1 : 0;
  const events = [];
  let pieces = result.events;
  if (peculiar('stream-of-letters')) pieces = [...result.text];
  if (peculiar('stream-in-one-event') && result.text) pieces = [result.text];
  let soFar = '';
  for (const piece of pieces) {
    soFar += piece;
    const event = { token: fault('stream-cumulative') ? soFar : piece, index };
    events.push(event);
    index += fault('index-stands-still') && index === 3 ? 0 : 1;
  }
  const last = { token: '[DONE]', finish_reason: result.reason, usage };
  if (fault('done-without-usage')) delete last.usage;
  if (fault('stream-usage-prompt-extra')) { usage.prompt_tokens += 1; usage.total_tokens += 1; }
  if (!fault('no-final-event')) events.push(last);
  const lines = events.map((event) => {
    if (fault('events-one-newline')) return `data: ${json(event)}\n`;
    return `data: ${json(event)}\n\n`;
  });
  if (fault('openai-done-line')) lines.push('data: [DONE]\n\n');
  const raw = reply.raw;
  reply.hijack();
  let type = peculiar('stream-charset') ? 'text/event-stream; charset=utf-8' : 'text/event-stream';
  raw.writeHead(200, { 'content-type': type, 'cache-control': 'no-cache' });
  if (peculiar('stream-in-one-write')) raw.write(lines.join(''));
  else {
    for (const line of lines) {
      if (peculiar('stream-split-writes')) {
        raw.write(line.slice(0, 5));
        await sleep(2);
        raw.write(line.slice(5));
      } else raw.write(line);
    }
  }
  raw.end();
  return reply;
}
