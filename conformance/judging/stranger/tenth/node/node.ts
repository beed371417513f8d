import { parseArgs } from "node:util";
import { switchOn } from "./faults.ts";
import { FAULTS } from "./faultlist.ts";
import { PECULIAR } from "./peculiar.ts";

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "8000" },
    fault: { type: "string", default: "" },
    peculiar: { type: "string", default: "" },
    list: { type: "boolean", default: false },
  },
});

if (values.list) {
  const faults = Object.fromEntries(FAULTS.map((f) => [f.id, f.kind]));
  console.log(JSON.stringify({ faults, peculiar: PECULIAR.map((p) => p.id) }));
  process.exit(0);
}

function stop(text: string): never {
  console.error(text);
  process.exit(2);
}
const port = Number(values.port);
if (!Number.isInteger(port) || port < 1 || port > 64_535) stop("--port must be a number from 1 to 64535");
if (values.fault && !FAULTS.some((f) => f.id === values.fault)) stop(`there is no fault ${values.fault}`);
if (values.peculiar && !PECULIAR.some((p) => p.id === values.peculiar))
  stop(`there is no peculiarity ${values.peculiar}`);

// The switches come first: the other modules look at them when they are loaded.
switchOn(values.fault, values.peculiar, [...FAULTS, ...PECULIAR]);
const { ports } = await import("./identity.ts");
ports.http = port;
ports.grpc = port + 1000;
const { startNode } = await import("./start.ts");
await startNode();
console.log(`HTTP on 127.0.0.1:${ports.http}, gRPC on 127.0.0.1:${ports.grpc}`);
