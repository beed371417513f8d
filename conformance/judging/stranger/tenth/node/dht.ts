import { bad, odd } from "./faults.ts";
import { NODE_ID, NODE_PUBLIC_KEY, ports, sha1 } from "./identity.ts";
import { PEERS } from "./nodeapi.ts";
import { GrpcError, INVALID_ARGUMENT } from "./grpcerrors.ts";

export interface Contact {
  node_id: Buffer;
  ip: string;
  port: number;
}
export const K = 20;
const MOST_CONTACTS = 20_000;
const MOST_VALUE = 4 * 1024 * 1024;
const MOST_VALUES = 100_000;

const contacts = new Map<string, Contact>();
const values = new Map<string, string>();
for (const p of PEERS) {
  const [ip, port] = p.address.split(":");
  contacts.set(p.id.toString("hex"), { node_id: p.id, ip, port: Number(port) });
}

let answers = 0;
export function self(op: string): Contact | undefined {
  answers += 1;
  if (bad("fld-find-value-responder") && op === "FindValue") return undefined;
  let id = NODE_ID;
  if (bad("rel-responder-id-changes") && op !== "Ping")
    id = sha1(Buffer.concat([NODE_PUBLIC_KEY, Buffer.from(op)]));
  if (bad("lim-node-id-32")) id = Buffer.concat([NODE_ID, Buffer.alloc(12)]);
  const port = odd("dht-grpc-port") ? ports.grpc : ports.http;
  return { node_id: id, ip: "127.0.0.1", port };
}

/** Learns of a node that has called, where it says where it is. */
function learn(sender: any): void {
  if (!sender) return;
  const id: Buffer = sender.node_id;
  const nowhere = !sender.ip && !sender.port;
  if (!id.length && nowhere) return;
  if (id.length !== 20) throw new GrpcError(INVALID_ARGUMENT, "the sender's node_id must have 20 bytes");
  if (sender.port < 0 || sender.port > 65_535) {
    throw new GrpcError(INVALID_ARGUMENT, "the sender's port is not one");
  }
  if ((!sender.ip || !sender.port) && !bad("ref-nowhere-listed")) return;
  if (!/^[\x21-\x7e]{0,255}$/.test(sender.ip))
    throw new GrpcError(INVALID_ARGUMENT, "the sender's ip is not one");
  const contact = { node_id: Buffer.from(id), ip: sender.ip, port: sender.port };
  const key = id.toString("hex");
  const alike =
    bad("lim-bucket-of-four") && [...contacts.values()].filter((c) => c.node_id[0] === id[0]).length >= 4;
  if (id.equals(NODE_ID) || alike) return;
  if (contacts.size < (bad("lim-forty-contacts") ? 40 : MOST_CONTACTS)) contacts.set(key, contact);
}

function distance(a: Buffer, b: Buffer): bigint {
  let d = 0n;
  const bytes = bad("eff-distance-four-bytes") ? 4 : 20;
  for (let i = 0; i < bytes; i++) d = (d << 8n) | BigInt(a[i] ^ b[i]);
  return d;
}

function closest(target: Buffer): Contact[] {
  let list = [...contacts.values()].map((c) => ({ c, d: distance(c.node_id, target) }));
  list.sort((x, y) => (x.d < y.d ? -1 : x.d > y.d ? 1 : 0));
  const k = odd("k-eight") ? 8 : K;
  const found = list.slice(0, k).map((x) => x.c);
  return odd("nodes-reversed") ? found.reverse() : found;
}

function keyOf(bytes: Buffer, name: string): Buffer {
  if (bytes.length !== 20) {
    if (bad("ref-short-key-internal")) throw new Error("unpack requires a buffer of 20 bytes");
    throw new GrpcError(INVALID_ARGUMENT, `${name} must have 20 bytes`);
  }
  return bytes;
}

const slot = (key: Buffer): string => {
  const hex = key.toString("hex");
  if (bad("rel-keys-alike")) return hex.slice(0, 16);
  return hex;
};

export const operations: Record<string, (q: any) => any> = {
  DHTPing(q) {
    learn(q.sender);
    return { responder: self("Ping") };
  },
  DHTFindNode(q) {
    learn(q.sender);
    return { responder: self("FindNode"), nodes: closest(keyOf(q.target_id, "target_id")) };
  },
  DHTFindValue(q) {
    learn(q.sender);
    const key = slot(keyOf(q.key, "key"));
    const value = values.get(key);
    if (value !== undefined) {
      if (bad("eff-value-taken")) values.delete(key);
      return { responder: self("FindValue"), value, found: true };
    }
    const nodes = closest(q.key);
    return { responder: self("FindValue"), nodes, found: false };
  },
  DHTStore(q) {
    learn(q.sender);
    const key = slot(keyOf(q.key, "key"));
    const refused = q.value.length > MOST_VALUE || values.size >= MOST_VALUES;
    if (refused) return { responder: self("Store"), success: false };
    let value: string = q.value;
    if (bad("lim-value-255")) value = value.slice(0, 255);
    if (odd("first-value-stays") && values.has(key)) return { responder: self("Store"), success: false };
    values.set(key, value);
    return { responder: self("Store"), success: true };
  },
};
