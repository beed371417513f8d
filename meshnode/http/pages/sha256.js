// SHA-256 and HMAC (FIPS 180-4, RFC 2104). The browser's own is absent on pages served without TLS.

const PRIMES = [];
for (let n = 2; PRIMES.length < 64; n += 1) if (PRIMES.every((prime) => n % prime)) PRIMES.push(n);

/** The first 32 bits of the fraction of the `power`-th root, exactly. */
function fraction(prime, power) {
  // The whole part of root(prime * 2^(32 * power)) is root(prime) * 2^32, rounded down.
  const wanted = BigInt(prime) << BigInt(32 * power);
  let low = 0n, high = 1n << 40n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** BigInt(power) <= wanted) low = middle; else high = middle;
  }
  return Number(low & 0xffffffffn);
}

const START = PRIMES.slice(0, 8).map((prime) => fraction(prime, 2));
const K = PRIMES.map((prime) => fraction(prime, 3));
const turn = (x, n) => (x >>> n) | (x << (32 - n));

/** The digest of bytes, as bytes. */
export function sha256(bytes) {
  const padded = new Uint8Array(((bytes.length + 8) >> 6) * 64 + 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer), state = [...START], w = new Int32Array(64);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 0x20000000));
  view.setUint32(padded.length - 4, bytes.length << 3);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i += 1) {
      const a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i += 1) {
      const t1 = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const t2 = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => { state[i] = (state[i] + value) | 0; });
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((value, i) => digest.setInt32(4 * i, value));
  return new Uint8Array(digest.buffer);
}

export function join(...parts) {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) { all.set(part, at); at += part.length; }
  return all;
}

export function hmac(key, message) {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  return sha256(join(block.map((x) => x ^ 0x5c), sha256(join(block.map((x) => x ^ 0x36), message))));
}

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
export const ascii = (text) => new TextEncoder().encode(text);
