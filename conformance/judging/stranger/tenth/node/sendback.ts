import * as grpc from "@grpc/grpc-js";
import { bad } from "./faults.ts";
import { decode, encode } from "./codec.ts";
import { documented } from "./schema.ts";
import { bytesOf } from "./tensor.ts";
import { schema } from "./wire.ts";

// Gradients go back to the node that has sent the pass: its URL has the HTTP port, and gRPC is 1000 above.
const MiB = 1024 * 1024;
const OPTIONS = {
  "grpc.max_receive_message_length": 100 * MiB,
  "grpc.max_send_message_length": 100 * MiB,
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.keepalive_permit_without_calls": 1,
};
const ATTEMPTS = 3;
const AGAIN = [
  grpc.status.UNAVAILABLE,
  grpc.status.DEADLINE_EXCEEDED,
  grpc.status.RESOURCE_EXHAUSTED,
  grpc.status.INTERNAL,
];

export function target(sender: string): string | undefined {
  const match = /^(?:https?:\/\/)?([^/:\s]+|\[[0-9a-f:]+\]):(\d{1,5})(?:\/.*)?$/i.exec(sender.trim());
  if (!match) return undefined;
  const port = Number(match[2]) + (bad("rel-sender-same-port") ? 0 : 1000);
  return port <= 65_535 ? `${match[1]}:${port}` : undefined;
}

let lastTarget: string | undefined;
const clients = new Map<string, grpc.Client>();

export async function sendBack(graph: any, q: any, gradient: Float32Array): Promise<void> {
  let to = target(graph.sender);
  if (bad("rel-back-to-last-sender")) to = lastTarget ??= to;
  if (!to) return;
  const shape = bad("rel-back-shape-short") ? graph.shape.slice(1) : graph.shape;
  const messages = documented();
  if (bad("num-sent-backward-swapped")) messages.PipelineBackwardRequest[0].number = 2;
  if (bad("num-sent-backward-swapped")) messages.PipelineBackwardRequest[1].number = 1;
  const bytes = encode(messages, "PipelineBackwardRequest", {
    session_id: q.session_id,
    request_id: q.request_id,
    grad_output: bytesOf(gradient),
    grad_shape: shape,
    target_shard: graph.source,
  });
  if (clients.size > 64) {
    for (const c of clients.values()) c.close();
    clients.clear();
  }
  const client = clients.get(to) ?? new grpc.Client(to, grpc.credentials.createInsecure(), OPTIONS);
  clients.set(to, client);
  const attempts = ATTEMPTS;
  let pause = bad("lim-long-pause") ? 4000 : 100;
  let seconds = 5;
  for (let n = 1; n <= attempts; n++) {
    const code = await call(client, bytes, seconds);
    if (code === grpc.status.OK && !(bad("eff-sent-back-twice") && n === 1)) return;
    const again = AGAIN.includes(code);
    if (!again && code !== grpc.status.OK) return;
    if (code === grpc.status.DEADLINE_EXCEEDED) seconds *= 2;
    if (n < attempts && !bad("eff-no-pause"))
      await Bun.sleep(Math.min(pause, bad("lim-long-pause") ? 4000 : 2000));
    pause *= 2;
  }
}

function call(client: grpc.Client, bytes: Buffer, seconds: number): Promise<number> {
  const same = (b: Buffer): Buffer => b;
  const deadline = bad("lim-no-deadline") ? undefined : Date.now() + seconds * 1000;
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      "/node.NodeService/PipelineBackward",
      same,
      same,
      bytes,
      { deadline },
      (error, answer) => {
        if (error) return resolve(error.code);
        try {
          decode(schema, "PipelineBackwardResponse", answer!);
        } catch {
          /* an answer that cannot be read is an answer */
        }
        resolve(grpc.status.OK);
      },
    );
  });
}
