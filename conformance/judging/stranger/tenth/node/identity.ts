import { createHash } from "node:crypto";

export const sha256 = (data: string | Uint8Array): Buffer => createHash("sha256").update(data).digest();
export const sha256hex = (data: string | Uint8Array): string => sha256(data).toString("hex");
export const sha1 = (data: string | Uint8Array): Buffer => createHash("sha1").update(data).digest();

// The key is a public one; nothing here is secret.
export const NODE_PUBLIC_KEY = Buffer.concat([Buffer.from([2]), sha256("toy node of the network")]);
export const NODE_ID = sha1(NODE_PUBLIC_KEY);
export const NODE_NAME = NODE_ID.toString("hex");

export const VERSION = "1.3.0";
export const CURRENCY = "TNT";
export const TOTAL_LAYERS = 6;
export const MY_LAYERS = [0, 1, 2, 5];
export const HIDDEN = 16;
export const VOCABULARY = 32;
export const DATA_SHARDS = [0, 1, 2, 3];

export const STARTED = Date.now();
export const ports = { http: 8000, grpc: 9000 };

export const iso = (ms: number): string => new Date(ms).toISOString();
export const day = (ms: number): string => iso(ms).slice(0, 10);
export const DAY_MS = 86_400_000;

/** A number from 0 to 1 that depends on the text only. */
export function unit(text: string): number {
  return sha256(text).readUInt32BE(0) / 0x1_0000_0000;
}
