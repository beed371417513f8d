import { STARTED } from "./identity.ts";
import { config } from "./config.ts";

// The local steps stand still while training is switched off; those of the network go on.
const FIRST = 5_000;
const STEP_MS = 1_000;
let done = 0;
let last = STARTED;

function advance(): void {
  const now = Date.now();
  if (config.training.enabled) done += now - last;
  last = now;
}

const current = (): number => {
  advance();
  return FIRST + Math.floor(done / STEP_MS);
};
const loss = (step: number): number => Math.round((1.2 + 3 / (1 + step / 2000)) * 1e6) / 1e6;
const networkStep = (): number => 3 * FIRST + Math.floor((3 * (Date.now() - STARTED)) / STEP_MS);

export const trainer = {
  step: current,
  epoch: (): number => Math.floor(networkStep() / 10_000),
  globalStep: networkStep,
  localLoss: (): number => loss(current()),
  globalLoss: (): number => loss(networkStep() / 3),
  perHour: (): number => (config.training.enabled ? 3_600_000 / STEP_MS : 0),
  /** To be called before training is switched on or off. */
  advance,
};
