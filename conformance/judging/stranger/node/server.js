import { options, active } from './switches.js';
import { server } from './http_api.js';
import { startGrpc, startPeers } from './grpc_api.js';
import { nodeId, byToken } from './state.js';
import { facts } from './native.js';

server.on('error', (e) => { console.error(e.message); process.exit(1); });
const grpcPort = await startGrpc().catch((e) => { console.error(e.message); process.exit(1); });
server.listen(options.port, options.host, () => {
  console.log(JSON.stringify({ node_id: nodeId, http: options.port, grpc: grpcPort, fault: active?.id ?? null, peculiar: options.peculiar }));
  if (process.env.SHOW_FACTS) console.log(JSON.stringify({ ...facts, addresses: [...byToken].map(([t, a]) => [t, a.address]) }));
  startPeers();
});
for (const s of ['SIGINT', 'SIGTERM']) process.on(s, () => process.exit(0));
