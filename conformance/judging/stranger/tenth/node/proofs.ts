import { MY_LAYERS, STARTED, iso, sha256hex } from "./identity.ts";

// The proofs of work of this node; the rewards are in millionths of a unit.
export interface Proof {
  id: string;
  type: string;
  layer: number;
  at: number;
  verified: boolean;
  reward: number;
}

const HOUR = 3_600_000;

export const PROOFS: Proof[] = Array.from({ length: 12 }, (_, i) => ({
  id: "pf_" + sha256hex("proof " + i).slice(0, 20),
  type: i % 3 === 2 ? "backward" : "forward",
  layer: MY_LAYERS[i % MY_LAYERS.length],
  at: STARTED - (12 - i) * HOUR,
  verified: i < 10,
  reward: 500_000 + i * 10_000,
}));

/** The newest proof is the first. */
export const listed = (): Proof[] => [...PROOFS].reverse();

export const shown = (p: Proof): any => ({
  id: p.id,
  type: p.type,
  layer: p.layer,
  timestamp: iso(p.at),
  verified: p.verified,
  reward: p.reward / 1_000_000,
});

export const verifiedReward = (): number =>
  PROOFS.filter((p) => p.verified).reduce((sum, p) => sum + p.reward, 0) / 1_000_000;
