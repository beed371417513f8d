import { bad } from "./faults.ts";
import { day, iso } from "./identity.ts";
import { PROOFS, verifiedReward } from "./proofs.ts";

export const traffic = { sent: 0, received: 0, rpc: 0 };

interface Served {
  at: number;
  ms: number;
}
export const inference = { total: 0, tokens: 0, served: [] as Served[] };

export function count(tokens: number, ms: number, stream: boolean): void {
  inference.total += 1;
  if (!(bad("eff-stream-tokens-uncounted") && stream)) inference.tokens += tokens;
  inference.served.push({ at: Date.now(), ms });
  if (inference.served.length > 5000) inference.served.shift();
}

let last = 0;
/** A time that is never given twice. */
function moment(): number {
  last = Math.max(Date.now(), last + 1);
  return last;
}

const round3 = (x: number): number => Math.round(x * 1000) / 1000;

export function latencies(): { avg: number; p99: number } {
  const all = inference.served.map((s) => s.ms).sort((a, b) => a - b);
  if (!all.length) return { avg: 0, p99: 0 };
  const avg = all.reduce((sum, ms) => sum + ms, 0) / all.length;
  const p99 = all[Math.ceil(all.length * 0.99) - 1];
  return { avg: round3(avg), p99: round3(Math.max(p99, avg)) };
}

export function metrics(training: {
  steps: number;
  perHour: number;
  submitted: number;
  accepted: number;
}): any {
  const { avg, p99 } = latencies();
  const now = moment();
  const recent = inference.served.filter((s) => s.at > now - 60_000).length;
  const today = PROOFS.filter((p) => p.verified && day(p.at) === day(now));
  const waiting = PROOFS.filter((p) => !p.verified);
  return {
    timestamp: iso(now),
    inference: {
      requests_total: inference.total,
      requests_per_minute: recent,
      avg_latency_ms: avg,
      p99_latency_ms: p99,
      tokens_generated: inference.tokens,
    },
    training: {
      steps_total: training.steps,
      steps_per_hour: training.perHour,
      gradients_submitted: training.submitted,
      gradients_accepted: training.accepted,
    },
    network: {
      bytes_sent: traffic.sent,
      bytes_received: traffic.received,
      active_connections: 2,
      rpc_calls: traffic.rpc,
    },
    rewards: {
      earned_today: sum(today),
      earned_total: verifiedReward(),
      pending: sum(waiting),
    },
  };
}

const sum = (list: { reward: number }[]): number => list.reduce((s, p) => s + p.reward, 0) / 1_000_000;
