import { bad, odd, patched } from "./faults.ts";
import { CURRENCY } from "./identity.ts";
import { invalid, route, watchGenerations, type Answer, type Ctx } from "./http.ts";
import { count, inference as counted, traffic } from "./metrics.ts";
import { charge, newId, settle, units, accounts, type Account } from "./money.ts";
import { countTokens, generate, type Generation, type Sampling } from "./toymodel.ts";
import { tooLittle } from "./wallet.ts";

// Prices in millionths of a unit.
export const PRICE_PROMPT = 100; // 0.0001 per token
export const PRICE_COMPLETION = 500; // 0.0005 per token
export const MOST_TOKENS = 8192;
const MOST_PROMPT = 200_000;
const MOST_STOPS = 16;

function number(
  body: any,
  name: string,
  fallback: number,
  least: number,
  most: number,
  whole: boolean,
): number {
  let value = body[name];
  if (value === undefined) return fallback;
  if (bad("ref-array-of-one") && Array.isArray(value) && value.length === 1) value = value[0];
  if (typeof value !== "number" || !Number.isFinite(value) || (whole && !Number.isInteger(value))) {
    throw invalid(`${name} must be a ${whole ? "whole " : ""}number`);
  }
  if (bad("lim-temperature-clamped") && name === "temperature") return Math.min(2, Math.max(0, value));
  if (value < least || value > most) throw invalid(`${name} must be from ${least} to ${most}`);
  return value;
}

function read(body: any): Sampling & { prompt: string; stream: boolean } {
  let prompt = body.prompt;
  if (typeof prompt !== "string" || prompt === "") throw invalid("prompt must be a text");
  if (prompt.length > MOST_PROMPT) throw invalid("prompt is too long");
  let stream = body.stream ?? false;
  if (bad("ref-stream-truthy")) stream = Boolean(stream);
  if (typeof stream !== "boolean") throw invalid("stream must be true or false");
  let stop = body.stop ?? [];
  if (!Array.isArray(stop) || stop.length > MOST_STOPS || stop.some((s) => typeof s !== "string" || !s)) {
    throw invalid(`stop must be a list of up to ${MOST_STOPS} texts`);
  }
  const most = bad("lim-temperature-one") ? 1 : 2;
  const temperature = number(body, "temperature", 1, 0, most, false);
  const topP = number(body, "top_p", 1, 0, 1, false);
  if (topP === 0) throw invalid("top_p must be above 0");
  const topK = number(body, "top_k", 50, bad("lim-top-k-ten") ? 10 : 1, 1000, true);
  const fallback = bad("lim-default-128") ? 128 : 100;
  let maxTokens = number(body, "max_tokens", fallback, odd("max-tokens-zero") ? 0 : 1, MOST_TOKENS, true);
  if (bad("lim-one-token-more")) maxTokens += 1;
  if (bad("lim-context-shared")) maxTokens = Math.max(1, maxTokens - countTokens(prompt));
  if (bad("eff-stream-no-stop") && stream) stop = [];
  return { prompt, stream, maxTokens, temperature, topP, topK, stop };
}

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

function usageOf(prompt: string, made: Generation, stream: boolean): Usage {
  let p = countTokens(prompt);
  if (bad("rel-stream-prompt-tokens") && stream) p += 1;
  return { prompt_tokens: p, completion_tokens: made.tokens, total_tokens: p + made.tokens };
}

const round3 = (ms: number): number => Math.floor(ms * 1000) / 1000;

/** The other account, for faults that mix the two up. */
const other = (a: Account): Account => (a === accounts["tok-a"] ? accounts["tok-b"] : accounts["tok-a"]);

let current = "";
let generating = 0;
const isGenerating = (): boolean => generating > 0;

async function infer({ body, account }: Ctx): Promise<Answer> {
  const began = performance.now();
  const countedBefore = { total: counted.total, tokens: counted.tokens };
  const wanted = read(body);
  current = wanted.prompt;
  if (bad("eff-texts-crossed")) await Bun.sleep(3);
  const made = generate(bad("eff-texts-crossed") ? current : wanted.prompt, wanted);
  const usage = usageOf(wanted.prompt, made, wanted.stream);
  const cost = countTokens(wanted.prompt) * PRICE_PROMPT + made.tokens * PRICE_COMPLETION;
  settle(account);
  const payer = bad("eff-charge-other") ? other(account) : account;
  if (payer.available < cost) {
    if (bad("ref-stream-402-event") && wanted.stream) {
      const error = { error: { code: "INSUFFICIENT_BALANCE", message: "The balance is too low" } };
      return { raw: `data: ${JSON.stringify(error)}\n\n`, headers: { "content-type": "text/event-stream" } };
    }
    throw tooLittle(cost, account.available);
  }
  const id = newId("inf_");
  const queued = performance.now();
  generating += 1;
  charge(payer, bad("eff-charge-rounded") ? Math.ceil(cost / 10_000) * 10_000 : cost, id);
  await Bun.sleep(bad("eff-count-race") ? 20 : bad("grd-while-generating") ? 200 : 2);
  if (bad("eff-count-race")) Object.assign(counted, countedBefore);
  generating -= 1;
  const done = performance.now();
  count(bad("rel-metrics-max-tokens") ? wanted.maxTokens : made.tokens, done - began, wanted.stream);
  if (wanted.stream) return stream(made, usage);
  const queue = round3(queued - began);
  const inference = round3(done - queued);
  const total = round3(queue + inference);
  return {
    json: {
      id,
      text: made.text,
      tokens_generated: made.tokens,
      finish_reason: made.reason,
      usage,
      cost: { amount: units(bad("rel-cost-shown-less") ? Math.floor(cost / 10) : cost), currency: CURRENCY },
      timing: { queue_ms: queue, inference_ms: inference, total_ms: total },
    },
  };
}

function tokenEvents(made: Generation): any[] {
  let pieces = made.pieces;
  if (odd("stream-letters")) pieces = [...made.pieces.join("")];
  if (bad("eff-stream-stripped")) pieces = pieces.map((p) => p.trim());
  const first = bad("fld-index-from-one") ? 1 : 0;
  return pieces.map((token, i) => ({ token, index: i + first }));
}

function stream(made: Generation, usage: Usage): Answer {
  const final: any = { token: "[DONE]", finish_reason: made.reason, usage };
  if (bad("rel-final-usage-max")) final.usage = { ...usage, completion_tokens: usage.completion_tokens + 1 };
  const events = tokenEvents(made).map((e) => patched("token event", e));
  events.push(patched("final event", final));
  const line = (e: any): string => {
    const json = bad("rte-sse-pretty") ? JSON.stringify(e, null, 1) : JSON.stringify(e);
    return `data: ${json}\n\n`;
  };
  let texts = events.map(line);
  if (bad("rte-sse-openai-done")) texts.push("data: [DONE]\n\n");
  if (bad("rte-sse-last-blank")) texts = [...texts.slice(0, -1), texts.at(-1)!.replace(/\n+$/, "\n")];
  if (odd("sse-crlf")) texts = texts.map((t) => t.replaceAll("\n", "\r\n"));
  const encoder = new TextEncoder();
  let next = 0;
  const body = new ReadableStream({
    async pull(controller) {
      if (next >= texts.length) return controller.close();
      const chunk = texts.slice(next, next + 32).join("");
      next += 32;
      traffic.sent += chunk.length;
      controller.enqueue(encoder.encode(chunk));
    },
  });
  const type = odd("sse-charset") ? "text/event-stream; charset=utf-8" : "text/event-stream";
  return { raw: body, headers: { "content-type": type, "cache-control": "no-cache" } };
}

export function inferenceRoutes(): void {
  watchGenerations(isGenerating);
  route({
    method: "POST",
    path: "/api/v1/inference",
    label: "POST /inference",
    body: "json",
    run: infer,
    auth: true,
  });
}
