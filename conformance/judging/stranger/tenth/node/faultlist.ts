import type { Fault } from "./faults.ts";
import { EFFECTS } from "./faults_effects.ts";
import { FIELDS } from "./faults_fields.ts";
import { GUARDS, LIMITS } from "./faults_guards.ts";
import { NUMBERS } from "./faults_numbers.ts";
import { REFUSALS, ROUTES } from "./faults_refusals.ts";
import { RELATIONS } from "./faults_relations.ts";

/** Every fault that `--fault` can switch on; each is the only thing that is wrong with the node then. */
export const FAULTS: Fault[] = [
  ...EFFECTS,
  ...FIELDS,
  ...GUARDS,
  ...LIMITS,
  ...NUMBERS,
  ...REFUSALS,
  ...RELATIONS,
  ...ROUTES,
];
