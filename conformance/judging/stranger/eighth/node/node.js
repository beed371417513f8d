// A node of the network: HTTP at --port, gRPC at --port plus 1000.
import { listOnly, activeFault, activePeculiar, port, grpcPort } from './switches.js';
import { faults } from './faults.js';
import { peculiarities } from './peculiar.js';

if (listOnly) {
  const list = { faults: Object.fromEntries(faults.map((one) => [one.id, one.kind])), peculiar: peculiarities.map((one) => one.id) };
  console.log(JSON.stringify(list));
  process.exit(0);
}
if (activeFault && !faults.some((one) => one.id === activeFault)) {
  console.error(`There is no fault ${activeFault}.`);
  process.exit(2);
}
if (activePeculiar && !peculiarities.some((one) => one.id === activePeculiar)) {
  console.error(`There is no peculiarity ${activePeculiar}.`);
  process.exit(2);
}
const { buildServer } = await import('./server.js');
const { serveGrpc } = await import('./grpc.js');
await serveGrpc(grpcPort);
await buildServer().listen({ port, host: '127.0.0.1' });
console.log(`HTTP at ${port}, gRPC at ${grpcPort}`);
