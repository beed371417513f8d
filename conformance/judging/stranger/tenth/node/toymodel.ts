import { bad } from "./faults.ts";
import { sha256 } from "./identity.ts";

const WORDS = (
  "the a node layer light river stone green small old wind under over with and then again slowly many " +
  "few paper glass train moves rests grows carries returns opens window garden morning evening. " +
  "north, south, letter number signal memory"
).split(" ");

export interface Generation {
  text: string;
  pieces: string[];
  tokens: number;
  reason: "stop" | "length";
}

/** Prompt tokens: up to three letters or digits, or one other character, each with the spaces before it. */
export function countTokens(text: string): number {
  return (text.match(/\s*(?:[\p{L}\p{N}]{1,3}|[^\s])|\s+/gu) ?? []).length;
}

export interface Sampling {
  maxTokens: number;
  temperature: number;
  topP: number;
  topK: number;
  stop: string[];
}

/** The toy model: a hash of the prompt and the place chooses each token; with temperature so does chance. */
export function generate(prompt: string, s: Sampling): Generation {
  const salt = s.temperature === 0 ? "" : String(Math.random());
  const pieces: string[] = [];
  let text = "";
  let bytes: Buffer = Buffer.alloc(0);
  for (let i = 0; i < s.maxTokens; i++) {
    if (i % 8 === 0) bytes = sha256(`${prompt}|${salt}|${i}`);
    const word = WORDS[bytes.readUInt32BE((i % 8) * 4) % WORDS.length];
    const piece = i === 0 ? word : " " + word;
    pieces.push(piece);
    text += piece;
    const cut = firstStop(text, s.stop, text.length - piece.length);
    if (cut >= 0) return ended(pieces, text, cut, s);
  }
  return { text, pieces, tokens: pieces.length, reason: "length" };
}

function ended(pieces: string[], text: string, cut: number, s: Sampling): Generation {
  const whole = cut;
  const tokens = bad("rel-stop-counts-max") ? s.maxTokens : pieces.length;
  return { text: text.slice(0, whole), pieces: trim(pieces, whole), tokens, reason: "stop" };
}

/** Where the earliest stop sequence begins, if one ends behind `from`. */
function firstStop(text: string, stop: string[], from: number): number {
  let cut = -1;
  const list = bad("eff-stop-first-only") ? stop.slice(0, 1) : stop;
  for (const sequence of list) {
    let at = text.indexOf(sequence, Math.max(0, from - sequence.length));
    if (bad("eff-stop-any-case")) at = text.toLowerCase().indexOf(sequence.toLowerCase());
    if (bad("eff-stop-within-token") && at >= 0 && text.slice(from).trim() !== sequence.trim()) at = -1;
    if (at >= 0 && (cut < 0 || at < cut)) cut = at;
  }
  return cut;
}

/** The pieces whose texts together are the first `length` letters. */
export function trim(pieces: string[], length: number): string[] {
  const kept: string[] = [];
  let left = length;
  for (const piece of pieces) {
    if (left <= 0) break;
    kept.push(piece.slice(0, left));
    left -= piece.length;
  }
  return kept;
}
