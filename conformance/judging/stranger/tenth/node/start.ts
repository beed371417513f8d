import { ports } from "./identity.ts";
import { startChain } from "./chain.ts";
import { configRoutes } from "./config.ts";
import { startGrpc } from "./grpc.ts";
import { handle } from "./http.ts";
import { inferenceRoutes } from "./inference.ts";
import { legacyRoutes } from "./legacy.ts";
import { nativeRoutes } from "./nativeapi.ts";
import { nodeRoutes } from "./nodeapi.ts";
import { rpcRoutes } from "./rpc.ts";
import { walletRoutes } from "./wallet.ts";

export async function startNode(): Promise<void> {
  startChain();
  for (const add of [
    nodeRoutes,
    walletRoutes,
    configRoutes,
    inferenceRoutes,
    nativeRoutes,
    rpcRoutes,
    legacyRoutes,
  ])
    add();
  await startGrpc(ports.grpc);
  Bun.serve({
    port: ports.http,
    hostname: "127.0.0.1",
    fetch: handle,
    idleTimeout: 120,
    maxRequestBodySize: 4 << 20,
  });
}
