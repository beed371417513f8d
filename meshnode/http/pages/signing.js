// Keys, canonical JSON and signed envelopes of the native network (native network 1.1).
//
// secp256k1 in BigInt. Every scalar takes the same 256 steps of the same operations (a ladder), so the time does not
// follow its bits; BigInt itself is not constant in time to the last, which matters to somebody who measures inside
// this browser and not over a network. The nonce of a signature is that of RFC 6979, so no bad randomness reveals a key.

import { ascii, hex, hmac, join, sha256, unhex } from "./sha256.js";

const P = 2n ** 256n - 2n ** 32n - 977n;
const N = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const G = [0x79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798n, 0x483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8n, 1n];
const B3 = 21n;

const mod = (a, m) => { const r = a % m; return r < 0n ? r + m : r; };

function power(base, exponent, m) {
  let result = 1n;
  for (let bit = 255n; bit >= 0n; bit -= 1n) {
    result = (result * result) % m;
    if ((exponent >> bit) & 1n) result = (result * base) % m;
  }
  return result;
}
/** By Fermat, with a fixed exponent. */
const inverse = (a, m) => power(mod(a, m), m - 2n, m);

/** The complete addition for a = 0 (Renes, Costello, Batina 2016, algorithm 7): no case is special, so none shows. */
function add([x1, y1, z1], [x2, y2, z2]) {
  let t0 = (x1 * x2) % P, t1 = (y1 * y2) % P, t2 = (z1 * z2) % P;
  const t3 = mod((x1 + y1) * (x2 + y2) - t0 - t1, P);
  const t4 = mod((y1 + z1) * (y2 + z2) - t1 - t2, P);
  let y3 = mod((x1 + z1) * (x2 + z2) - t0 - t2, P);
  t0 = (3n * t0) % P;
  t2 = (B3 * t2) % P;
  const z3 = t1 + t2;
  t1 = mod(t1 - t2, P);
  y3 = (B3 * y3) % P;
  return [mod(t3 * t1 - t4 * y3, P), mod(t1 * z3 + y3 * t0, P), mod(z3 * t4 + t0 * t3, P)];
}

function multiply(scalar) {
  let ladder = [[0n, 1n, 0n], G];
  for (let bit = 255n; bit >= 0n; bit -= 1n) {
    const b = Number((scalar >> bit) & 1n);
    const sum = add(ladder[0], ladder[1]), twice = add(ladder[b], ladder[b]);
    ladder = [[twice, sum], [sum, twice]][b];
  }
  const [x, y, z] = ladder[0], inverted = inverse(z, P);
  return [(x * inverted) % P, (y * inverted) % P];
}

const number = (bytes) => BigInt(`0x${hex(bytes)}`);
const bytes32 = (value) => unhex(value.toString(16).padStart(64, "0"));

/** The private scalar of a seed: the SHA-256 of its 64 hex characters. */
const scalarOf = (seed) => number(sha256(ascii(seed)));

/** The compressed public key of a seed, as hex. */
export function publicKey(seed) {
  if (!/^[0-9a-f]{64}$/.test(seed)) throw new Error("A seed is 64 lowercase hexadecimal characters.");
  const [x, y] = multiply(scalarOf(seed));
  return (y & 1n ? "03" : "02") + hex(bytes32(x));
}

export function newSeed() {
  return hex(crypto.getRandomValues(new Uint8Array(32)));
}

/** The nonces of RFC 6979, 3.2, one after another. */
function* nonces(scalar, digest) {
  const message = bytes32(mod(number(digest), N)), secret = bytes32(scalar);
  let v = new Uint8Array(32).fill(1), k = new Uint8Array(32);
  for (const step of [0, 1]) {
    k = hmac(k, join(v, Uint8Array.of(step), secret, message));
    v = hmac(k, v);
  }
  for (;;) {
    v = hmac(k, v);
    const nonce = number(v);
    if (nonce > 0n && nonce < N) yield nonce;
    k = hmac(k, join(v, Uint8Array.of(0)));
    v = hmac(k, v);
  }
}

function der(value) {
  let text = value.toString(16);
  if (text.length % 2) text = `0${text}`;
  if (parseInt(text.slice(0, 2), 16) > 127) text = `00${text}`;
  return `02${(text.length / 2).toString(16).padStart(2, "0")}${text}`;
}

/** ECDSA with SHA-256 over bytes, low S, as DER in hex. */
export function sign(seed, message) {
  const scalar = scalarOf(seed), digest = sha256(message);
  for (const nonce of nonces(scalar, digest)) {
    const r = mod(multiply(nonce)[0], N);
    let s = (inverse(nonce, N) * ((number(digest) + r * scalar) % N)) % N;
    if (r === 0n || s === 0n) continue;
    if (s > N / 2n) s = N - s;
    const body = der(r) + der(s);
    return `30${(body.length / 2).toString(16).padStart(2, "0")}${body}`;
  }
}

/** Canonical JSON: sorted keys, nothing outside printable ASCII, whole numbers only. */
export function canonical(value) {
  if (typeof value === "string") return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
  if (typeof value === "number" && !Number.isSafeInteger(value)) throw new Error("Only whole numbers are signed.");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  return `{${Object.keys(value).sort().map((name) => `${canonical(name)}:${canonical(value[name])}`).join(",")}}`;
}

/** A signed transaction: its envelope's bytes, and the id under which it can be asked for. */
export function envelope(body, seed) {
  const key = publicKey(seed);
  const signature = sign(seed, ascii(canonical(body)));
  return {
    raw: ascii(canonical({ body, public_key: key, signature })),
    id: hex(sha256(ascii(canonical({ body, public_key: key })))),
  };
}
