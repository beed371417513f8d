import { currentFault } from "./faults.ts";
import { documented } from "./schema.ts";

/** The messages as they are read and written; a fault may have changed them. */
export const schema = documented();

export function faultySchema(): void {
  currentFault()?.schema?.(schema);
}
