// Protocol buffers, as much of them as the messages of the service need.
import { bad } from "./faults.ts";

export type Kind =
  "string" | "bytes" | "bool" | "int32" | "int64" | "double" | "float" | "sint64" | "fixed32" | "map";
export interface Field {
  name: string;
  number: number;
  kind: Kind | string;
  repeated?: boolean;
  onlyPacked?: boolean;
}
export type Schema = Record<string, Field[]>;

export class Malformed extends Error {}

const WIRE: Record<string, number> = {
  string: 2,
  bytes: 2,
  map: 2,
  bool: 0,
  int32: 0,
  int64: 0,
  sint64: 0,
  double: 1,
  float: 5,
  fixed32: 5,
};
const wireOf = (kind: string): number => WIRE[kind] ?? 2;
const utf8 = new TextDecoder("utf-8", { fatal: true });

class Reader {
  at = 0;
  constructor(private bytes: Buffer) {}

  get done(): boolean {
    return this.at >= this.bytes.length;
  }

  varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      if (this.done) throw new Malformed("a number is cut");
      const byte = this.bytes[this.at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new Malformed("a number is too long");
  }

  take(length: number): Buffer {
    if (length < 0 || this.at + length > this.bytes.length) throw new Malformed("a field is cut");
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  block(): Buffer {
    return this.take(Number(this.varint()));
  }

  skip(wire: number): void {
    if (wire === 0) this.varint();
    else if (wire === 1) this.take(8);
    else if (wire === 2) this.block();
    else if (wire === 5) this.take(4);
    else throw new Malformed("a wire type is not known");
  }

  scalar(kind: string): any {
    switch (kind) {
      case "bool":
        return this.varint() !== 0n;
      case "int32":
        return Number(BigInt.asIntN(32, this.varint()));
      case "int64":
        return Number(BigInt.asIntN(64, this.varint()));
      case "sint64": {
        const v = this.varint();
        return Number((v >> 1n) ^ -(v & 1n));
      }
      case "double":
        return this.take(8).readDoubleLE();
      case "float":
        return this.take(4).readFloatLE();
      case "fixed32":
        return this.take(4).readUInt32LE();
      case "bytes":
        return this.block();
      default:
        return this.text();
    }
  }

  text(): string {
    try {
      return utf8.decode(this.block());
    } catch (e) {
      if (e instanceof Malformed) throw e;
      throw new Malformed("a text is not UTF-8");
    }
  }
}

function blank(field: Field): any {
  if (field.repeated) return [];
  if (field.kind === "map") return {};
  if (field.kind === "string") return "";
  if (field.kind === "bytes") return Buffer.alloc(0);
  if (field.kind === "bool") return false;
  return field.kind in WIRE ? 0 : undefined;
}

const numeric = (kind: string): boolean => kind in WIRE && wireOf(kind) !== 2;

/** Fields that are not known, or come with another wire type, are skipped. */
export function decode(schema: Schema, type: string, bytes: Buffer): any {
  const fields = schema[type];
  const message: any = Object.fromEntries(fields.map((f) => [f.name, blank(f)]));
  const reader = new Reader(bytes);
  let last = 0;
  while (!reader.done) {
    const tag = Number(reader.varint());
    if (bad("num-order-refused") && tag < last) throw new Malformed("the fields are not in order");
    last = tag;
    const wire = tag & 7;
    if (tag >>> 3 === 0) throw new Malformed("a field has the number 0");
    const field = fields.find((f) => f.number === tag >>> 3);
    const packed = field?.repeated && numeric(field.kind) && wire === 2;
    if (!field && bad("num-unknown-refused")) throw new Malformed("a field is not known");
    if (!field || (wire !== wireOf(field.kind) && !packed)) {
      reader.skip(wire);
    } else if (packed) {
      const inner = new Reader(reader.block());
      while (!inner.done) message[field.name].push(inner.scalar(field.kind));
    } else if (field.kind === "map") {
      const entry = decode({ entry: MAP_ENTRY }, "entry", reader.block());
      message[field.name][entry.key] = entry.value;
    } else {
      const value =
        field.kind in WIRE ? reader.scalar(field.kind) : decode(schema, field.kind, reader.block());
      if (field.repeated && field.onlyPacked) message[field.name] = [];
      else if (field.repeated) message[field.name].push(value);
      else message[field.name] = value;
    }
  }
  return message;
}

export const MAP_ENTRY: Field[] = [
  { name: "key", number: 1, kind: "string" },
  { name: "value", number: 2, kind: "bytes" },
];

function varint(value: bigint): Buffer {
  let rest = BigInt.asUintN(64, value);
  const out: number[] = [];
  while (rest > 0x7fn) {
    out.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  out.push(Number(rest));
  return Buffer.from(out);
}

function scalar(kind: string, value: any): Buffer {
  switch (kind) {
    case "bool":
      return Buffer.from([value ? 1 : 0]);
    case "int32":
    case "int64":
      return varint(BigInt(Math.trunc(value)));
    case "sint64":
      return varint(value < 0 ? BigInt(-value) * 2n - 1n : BigInt(value) * 2n);
    case "double": {
      const b = Buffer.alloc(8);
      b.writeDoubleLE(value);
      return b;
    }
    case "float": {
      const b = Buffer.alloc(4);
      b.writeFloatLE(value);
      return b;
    }
    case "fixed32": {
      const b = Buffer.alloc(4);
      b.writeUInt32LE(value);
      return b;
    }
    default: {
      const bytes = typeof value === "string" ? Buffer.from(value) : Buffer.from(value);
      return Buffer.concat([varint(BigInt(bytes.length)), bytes]);
    }
  }
}

const isDefault = (value: any): boolean =>
  value === undefined ||
  value === null ||
  value === 0 ||
  value === false ||
  value === "" ||
  value.length === 0;

function one(schema: Schema, field: Field, value: any, out: Buffer[]): void {
  out.push(varint(BigInt((field.number << 3) | wireOf(field.kind))));
  if (field.kind in WIRE) return void out.push(scalar(field.kind, value));
  const inner = encode(schema, field.kind, value);
  out.push(varint(BigInt(inner.length)), inner);
}

/** Numbers in lists are packed, and defaults are left out. */
export function encode(schema: Schema, type: string, message: any, explicit = false): Buffer {
  const out: Buffer[] = [];
  for (const field of schema[type]) {
    const value = message[field.name];
    if (isDefault(value) && !(explicit && value !== undefined && !field.repeated && field.kind in WIRE))
      continue;
    if (field.kind === "map") {
      for (const [key, inner] of Object.entries(value)) {
        const entry = encode({ entry: MAP_ENTRY }, "entry", { key, value: inner });
        out.push(varint(BigInt((field.number << 3) | 2)), varint(BigInt(entry.length)), entry);
      }
    } else if (field.repeated && numeric(field.kind)) {
      const inner = Buffer.concat(value.map((v: any) => scalar(field.kind, v)));
      out.push(varint(BigInt((field.number << 3) | 2)), varint(BigInt(inner.length)), inner);
    } else if (field.repeated) {
      for (const v of value) one(schema, field, v, out);
    } else {
      one(schema, field, value, out);
    }
  }
  return Buffer.concat(out);
}
