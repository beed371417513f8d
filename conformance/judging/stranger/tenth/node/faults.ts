// The switches: at most one fault and at most one peculiarity are on in a run.
export interface Fault {
  id: string;
  kind: string;
  text: string;
  // A fault of an answer only: the routes or operations it belongs to, and what it does to the body.
  on?: string | string[];
  patch?: (body: any, ctx: any) => any;
  // A fault of the schema of the gRPC messages.
  schema?: (schema: any) => void;
}

let fault = "";
let peculiar = "";
let current: Fault | undefined;

export function switchOn(faultId: string, peculiarId: string, all: Fault[]): void {
  fault = faultId;
  peculiar = peculiarId;
  current = all.find((f) => f.id === faultId || f.id === peculiarId);
}

/** Whether the fault with this id is switched on. */
export const bad = (id: string): boolean => fault === id;
/** Whether the peculiarity with this id is switched on. */
export const odd = (id: string): boolean => peculiar === id;

export const currentFault = (): Fault | undefined => current;

/** Lets a fault or peculiarity of the answers of one route do its work. */
export function patched(label: string, body: any, ctx: any = {}): any {
  if (!current?.patch || !current.on) return body;
  const on = Array.isArray(current.on) ? current.on : [current.on];
  if (!on.includes(label) && !on.includes("*")) return body;
  const changed = current.patch(body, ctx);
  return changed === undefined ? body : changed;
}
