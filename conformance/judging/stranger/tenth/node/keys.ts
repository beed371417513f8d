import { createHmac } from "node:crypto";
import * as secp from "@noble/secp256k1";
import { sha256, sha256hex } from "./identity.ts";

secp.etc.hmacSha256Sync = (key, ...messages) => {
  const mac = createHmac("sha256", key);
  for (const m of messages) mac.update(m);
  return new Uint8Array(mac.digest());
};

/** JSON with its keys in order and without white space: what is hashed and signed. */
export function canonical(value: any): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value && typeof value === "object") {
    const keys = Object.keys(value).sort();
    return `{${keys.map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

// Toy accounts: their keys follow from their names, and their money is worth nothing.
const secretOf = (name: string): Uint8Array => new Uint8Array(sha256("toy account " + name));
export const publicKeyOf = (name: string): string =>
  Buffer.from(secp.getPublicKey(secretOf(name), true)).toString("hex");

const digest = (kind: string, body: any): Uint8Array => new Uint8Array(sha256(`${kind}:${canonical(body)}`));

export function sign(kind: string, body: any, name: string): string {
  return Buffer.from(secp.sign(digest(kind, body), secretOf(name)).toCompactRawBytes()).toString("hex");
}

export function verify(kind: string, body: any, signature: unknown, publicKey: unknown): boolean {
  if (typeof signature !== "string" || !/^[0-9a-f]{128}$/.test(signature)) return false;
  if (typeof publicKey !== "string" || !/^0[23][0-9a-f]{64}$/.test(publicKey)) return false;
  try {
    return secp.verify(signature, digest(kind, body), publicKey);
  } catch {
    return false;
  }
}

/** The id that the application gives a request: a digest of what was signed, not of the transaction. */
export const requestIdOf = (body: any): string => sha256hex("request:" + canonical(body));

export function makeTransaction(body: any, name: string, signature = sign("request", body, name)) {
  const bytes = Buffer.from(JSON.stringify({ body, signature }));
  return { bytes, hash: sha256hex(bytes), request_id: requestIdOf(body) };
}
