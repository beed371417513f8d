// LZ4 frames: written with stored blocks or with runs, read with all kinds of blocks.
const MAGIC = 0x184d2204;
const P1 = 2654435761,
  P2 = 2246822519,
  P3 = 3266489917,
  P4 = 668265263,
  P5 = 374761393;
const rotl = (x: number, r: number): number => ((x << r) | (x >>> (32 - r))) >>> 0;
const mul = (a: number, b: number): number => Math.imul(a, b) >>> 0;

export function xxh32(data: Buffer, seed = 0): number {
  let at = 0;
  let h: number;
  if (data.length >= 16) {
    const v = [seed + P1 + P2, seed + P2, seed, seed - P1].map((x) => x >>> 0);
    for (; at + 16 <= data.length; at += 16) {
      for (let i = 0; i < 4; i++)
        v[i] = mul(rotl((v[i] + mul(data.readUInt32LE(at + 4 * i), P2)) >>> 0, 13), P1);
    }
    h = (rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18)) >>> 0;
  } else {
    h = (seed + P5) >>> 0;
  }
  h = (h + data.length) >>> 0;
  for (; at + 4 <= data.length; at += 4) h = mul(rotl((h + mul(data.readUInt32LE(at), P3)) >>> 0, 17), P4);
  for (; at < data.length; at++) h = mul(rotl((h + mul(data[at], P5)) >>> 0, 11), P1);
  h = mul(h ^ (h >>> 15), P2);
  h = mul(h ^ (h >>> 13), P3);
  return (h ^ (h >>> 16)) >>> 0;
}

const u32 = (n: number): Buffer => {
  const b = Buffer.alloc(4);
  b.writeUInt32LE(n >>> 0);
  return b;
};

/** A frame whose blocks are stored as they are; with the checksum of the content. */
export function frame(data: Buffer): Buffer {
  const header = Buffer.from([0b0110_0100, 0b0111_0000]); // independent blocks, content checksum, up to 4 MiB
  const parts = [u32(MAGIC), header, Buffer.from([(xxh32(header) >>> 8) & 0xff])];
  for (let at = 0; at < data.length; at += 4 << 20) {
    const block = data.subarray(at, at + (4 << 20));
    parts.push(u32(block.length | 0x8000_0000), block);
  }
  parts.push(u32(0), u32(xxh32(data)));
  return Buffer.concat(parts);
}

function length(data: Buffer, at: number, first: number): [number, number] {
  let total = first;
  if (first === 15) {
    let byte = 255;
    while (byte === 255) {
      if (at >= data.length) throw new Error("a block is cut");
      byte = data[at++];
      total += byte;
    }
  }
  return [total, at];
}

function block(data: Buffer, out: number[], most: number): void {
  let at = 0;
  while (at < data.length) {
    const token = data[at++];
    let count: number;
    [count, at] = length(data, at, token >>> 4);
    if (at + count > data.length) throw new Error("a block is cut");
    for (let i = 0; i < count; i++) out.push(data[at++]);
    if (at === data.length) return;
    if (at + 2 > data.length) throw new Error("a block is cut");
    const offset = data.readUInt16LE(at);
    at += 2;
    [count, at] = length(data, at, token & 15);
    if (offset === 0 || offset > out.length) throw new Error("an offset is wrong");
    if (out.length + count + 4 > most) throw new Error("the content is too large");
    for (let i = 0; i < count + 4; i++) out.push(out[out.length - offset]);
  }
}

/** The content of a frame; throws where it is none. */
export function unframe(data: Buffer, most = 16 << 20): Buffer {
  if (data.length < 11 || data.readUInt32LE(0) !== MAGIC) throw new Error("this is no LZ4 frame");
  const flags = data[4];
  if (flags >>> 6 !== 1) throw new Error("the version of the frame is not known");
  let at = 6 + (flags & 8 ? 8 : 0) + (flags & 1 ? 4 : 0);
  if (((xxh32(data.subarray(4, at)) >>> 8) & 0xff) !== data[at])
    throw new Error("the checksum of the header is wrong");
  at += 1;
  const out: number[] = [];
  for (;;) {
    if (at + 4 > data.length) throw new Error("the frame is cut");
    const size = data.readUInt32LE(at);
    at += 4;
    if (size === 0) break;
    const bytes = data.subarray(at, at + (size & 0x7fff_ffff));
    if (bytes.length !== (size & 0x7fff_ffff)) throw new Error("the frame is cut");
    if (size >>> 31) for (const b of bytes) out.push(b);
    else block(bytes, out, most);
    if (out.length > most) throw new Error("the content is too large");
    at += bytes.length + (flags & 16 ? 4 : 0);
  }
  const content = Buffer.from(out);
  if (flags & 4 && (at + 4 > data.length || data.readUInt32LE(at) !== xxh32(content))) {
    throw new Error("the checksum of the content is wrong");
  }
  return content;
}
