import { bad, odd } from "./faults.ts";
import { NODE_NAME, ports } from "./identity.ts";
import { invalid, route, type Ctx } from "./http.ts";
import { trainer } from "./trainer.ts";

export const config: any = {
  node_id: NODE_NAME,
  port: 0,
  grpc_port: 0,
  tracker_url: "http://127.0.0.1:3000",
  training: { enabled: true, batch_size: 8, learning_rate: 0.0003, diloco_steps: 50 },
  resources: { max_memory_gb: 16, cpu_threads: 4 },
};

type Check = (value: any) => boolean;
const int =
  (least: number, most: number): Check =>
  (v) =>
    Number.isInteger(v) && v >= least && v <= most;
const range =
  (most: number): Check =>
  (v) =>
    typeof v === "number" && Number.isFinite(v) && v > 0 && v <= most;

const KEYS: Record<string, Check> = {
  "training.enabled": (v) => typeof v === "boolean",
  "training.batch_size": int(1, 65_536),
  "training.learning_rate": range(1),
  "training.diloco_steps": int(1, 100_000),
  "resources.max_memory_gb": range(4096),
  "resources.cpu_threads": int(1, 1024),
};
const FIXED = ["node_id", "port", "grpc_port", "tracker_url"];

/** The dotted paths of a nested change with their values. */
function flatten(body: any): [string, any][] {
  const list: [string, any][] = [];
  for (const [key, value] of Object.entries(body)) {
    if (FIXED.includes(key)) throw invalid(`${key} cannot be changed`);
    if (bad("ref-dotted-keys") && KEYS[key]) list.push([key, value]);
    else if (key !== "training" && key !== "resources") throw invalid(`there is no key ${key}`);
    else if (typeof value !== "object" || value === null || Array.isArray(value))
      throw invalid(`${key} is an object`);
    else for (const [name, inner] of Object.entries(value)) list.push([`${key}.${name}`, inner]);
  }
  return list;
}

function write(path: string, value: any): void {
  const [section, name] = path.split(".");
  config[section][name] = value;
}

let reads = 0;
let undo: (() => void) | undefined;

async function patch({ body }: Ctx) {
  const changes = flatten(body);
  if (bad("ref-only-whole-section") && changes.length === 1) throw invalid("a whole section is needed");
  for (const [path, value] of changes) {
    if (bad("eff-patch-partly") && KEYS[path]?.(value)) write(path, value);
    if (!KEYS[path]) throw invalid(`there is no key ${path}`);
    if (!KEYS[path](value)) throw invalid(`${path} has a value that is not allowed`);
  }
  trainer.advance();
  const before = structuredClone({ training: config.training, resources: config.resources });
  if (bad("eff-patch-race")) {
    await Bun.sleep(15);
    Object.assign(config, before);
  }
  for (const [path, value] of changes) write(path, value);
  if (bad("eff-patch-forgotten")) {
    reads = 0;
    undo = () => Object.assign(config, before);
  }
  let updated = changes.map(([path]) => path);
  if (bad("fld-updated-sections")) updated = [...new Set(updated.map((p) => p.split(".")[0]))];
  return { json: { success: true, updated, restart_required: false } };
}

function get() {
  reads += 1;
  if (bad("eff-patch-forgotten") && reads > 2 && undo) {
    undo();
    undo = undefined;
  }
  const shown = structuredClone(config);
  if (odd("config-more")) shown.resources.gpu = { device: 0 };
  return { json: shown };
}

export function configRoutes(): void {
  config.port = ports.http;
  config.grpc_port = ports.grpc;
  const path = "/api/v1/config";
  route({ method: "GET", path, label: "GET /config", auth: true, run: get });
  const method = bad("rte-config-put") ? "PUT" : "PATCH";
  route({ method, path, label: "PATCH /config", auth: true, body: "json", run: patch });
}
