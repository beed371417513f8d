// The toy language model of POST /inference: words that follow from the prompt.
import { fault, peculiar } from './switches.js';
import { hex } from './state.js';

const WORDS = ['river', 'stone', 'amber', 'light', 'field', 'north', 'quiet', 'wheel', 'salt', 'garden',
  'copper', 'winter', 'paper', 'harbor', 'violet', 'thread', 'mountain', 'lantern', 'meadow', 'silver',
  'echo', 'timber', 'feather', 'orchard', 'glass', 'ember', 'pebble', 'window', 'canyon', 'velvet', 'crane', 'dune'];
if (peculiar('foreign-words')) WORDS.forEach((word, n) => { WORDS[n] = `${word.slice(0, 3)}é${'漢字仮名'[n % 4]}`; });
if (peculiar('emoji-words')) WORDS.forEach((word, n) => { WORDS[n] = `${word}😀`; });

function draw(seed, position, temperature, topK) {
  const digest = hex(`${seed}/${position}`);
  if (temperature === 0) return WORDS[parseInt(digest.slice(0, 6), 16) % WORDS.length];
  const candidates = Math.max(1, Math.min(topK, WORDS.length));
  const chosen = Math.floor(Math.random() * candidates);
  return WORDS[(parseInt(digest.slice(0, 6), 16) + chosen) % WORDS.length];
}

/** Prompt tokens are characters; a generated token is a word with the space before it. */
export function generate(body, streamed) {
  const promptTokens = [...body.prompt].length + (peculiar('prompt-token-more') ? 1 : 0);
  let most = body.max_tokens ?? 100;
  if (fault('default-max-tokens-128') && body.max_tokens === undefined) most = 128;
  if (fault('one-token-too-many')) most += 1;
  if (fault('stream-ignores-max-tokens') && streamed) most = Math.max(most, 100);
  if (fault('prompt-counts-towards-max')) most = Math.max(0, most - promptTokens);
  if (fault('max-tokens-zero-default') && most === 0) most = 100;
  let stops = body.stop ?? [];
  if (fault('stop-only-first')) stops = stops.slice(0, 1);
  if (fault('stop-ignored-in-stream') && streamed) stops = [];
  const natural = peculiar('ends-early') ? 3 + (promptTokens % 7) : Infinity;
  const seed = hex(body.prompt);
  const pieces = [];
  let text = '';
  let reason = peculiar('reason-max-tokens') ? 'max_tokens' : 'length';
  for (let position = 0; position < most; position += 1) {
    if (position >= natural) { reason = 'stop'; break; }
    const word = draw(seed, position, body.temperature ?? 1, body.top_k ?? 50);
    const piece = position === 0 && !peculiar('text-begins-with-space') ? word : ` ${word}`;
    pieces.push(piece);
    text += piece;
    const ends = stops.map((stop) => {
      if (fault('stop-any-case')) return text.toLowerCase().indexOf(stop.toLowerCase());
      if (fault('stop-within-token-only')) return piece.includes(stop) ? text.lastIndexOf(stop) : -1;
      return text.indexOf(stop);
    }).filter((index) => index >= 0);
    if (ends.length) {
      const stop = stops.find((one) => text.includes(one)) ?? '';
      text = text.slice(0, Math.min(...ends) + (peculiar('stop-included') ? stop.length : 0));
      reason = 'stop';
      break;
    }
  }
  let completion = pieces.length;
  const counted = completion;
  // The pieces of a stream together are the text, which may be shorter after a stop.
  const events = [];
  let rest = text;
  for (const piece of pieces) {
    const part = rest.slice(0, piece.length);
    if (part) events.push(part);
    rest = rest.slice(piece.length);
  }
  if (rest) events.push(rest);
  return { text, events, reason, promptTokens, completion, counted, asked: most };
}
