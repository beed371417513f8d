import * as grpc from "@grpc/grpc-js";
import { bad, odd, patched } from "./faults.ts";
import { Malformed, decode, encode } from "./codec.ts";
import { operations as dht } from "./dht.ts";
import { GrpcError, INTERNAL, INVALID_ARGUMENT } from "./grpcerrors.ts";
import { inferenceOf, operations as learning } from "./learning.ts";
import { traffic } from "./metrics.ts";
import { operations as pipeline } from "./pipeline.ts";
import { OPERATIONS } from "./schema.ts";
import { faultySchema, schema } from "./wire.ts";

const handlers: Record<string, (q: any) => any> = { ...dht, ...learning, ...pipeline };
const same = (b: Buffer): Buffer => b;
const SIZE = 100 * 1024 * 1024;

function failure(e: unknown): { code: number; details: string } {
  if (e instanceof GrpcError) return { code: e.code, details: e.message };
  if (e instanceof Malformed) {
    return { code: INVALID_ARGUMENT, details: e.message };
  }
  return { code: INTERNAL, details: "the node has failed" };
}

function answer(name: string, request: string, response: string, bytes: Buffer): Buffer {
  traffic.rpc += 1;
  const q = decode(schema, request, bytes);
  const result = patched(name, handlers[name](q), { q });
  return encode(schema, response, result, odd("defaults-written"));
}

function unary(name: string, request: string, response: string) {
  return async (call: any, callback: any) => {
    try {
      const bytes = answer(name, request, response, call.request);
      if (odd("grpc-slow")) await Bun.sleep(50);
      callback(null, bytes);
    } catch (e) {
      callback(failure(e));
    }
  };
}

function streaming(request: string, response: string) {
  return (call: any) => {
    let count = 0;
    call.on("data", (bytes: Buffer) => {
      traffic.rpc += 1;
      count += 1;
      try {
        if (bad("ref-stream-one-message") && count > 1) throw new Error("one message was expected");
        call.write(encode(schema, response, inferenceOf(decode(schema, request, bytes))));
      } catch (e) {
        call.emit("error", Object.assign(new Error(), failure(e)));
      }
    });
    call.on("end", () => call.end());
  };
}

export function startGrpc(port: number): Promise<void> {
  faultySchema();
  const most = bad("lim-grpc-4mib") ? 4 * 1024 * 1024 : SIZE;
  const server = new grpc.Server({
    "grpc.max_receive_message_length": most,
    "grpc.max_send_message_length": SIZE,
  });
  const definition: any = {};
  const implementation: any = {};
  const service = bad("rte-grpc-package") ? "NodeService" : "node.NodeService";
  for (const [name, request, response] of OPERATIONS) {
    if (bad("rte-no-shard-info") && name === "GetShardInfo") continue;
    const stream = name === "StreamInference" && !bad("rte-stream-unary");
    const shown = name;
    definition[shown] = {
      path: `/${service}/${shown}`,
      requestStream: stream,
      responseStream: stream,
      requestSerialize: same,
      requestDeserialize: same,
      responseSerialize: same,
      responseDeserialize: same,
    };
    implementation[shown] = stream
      ? streaming(request, response)
      : unary(name === "StreamInference" ? "UnaryInference" : name, request, response);
  }
  server.addService(definition, implementation);
  return new Promise((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${port}`, grpc.ServerCredentials.createInsecure(), (e) =>
      e ? reject(e) : resolve(),
    );
  });
}
