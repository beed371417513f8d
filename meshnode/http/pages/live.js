// The live state of the node, from its stream of events. Pages subscribe to it.

import { events, send, token } from "./http.js";

const NEWS = 40;
const QUIET_MS = 40000;

export const state = {
  connected: false, trouble: "", node: null, health: null, figures: null, training: null,
  blocks: [], peers: null, generations: null, ended: [], charges: [], news: [], speed: 0, lost: new Map(),
};

const listeners = new Set();
let scheduled = false, speeds = [];

/** Call `listener` soon after each change; returns a function that ends it. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => { scheduled = false; for (const listener of listeners) listener(state); }, 80);
}

function tell(text, kind = "") {
  state.news = [{ text, kind, time: Date.now() }, ...state.news].slice(0, NEWS);
}

const name = (id) => (id === state.node?.node_id ? "this node" : id.slice(0, 8));
const over = (path) => path.map((hop) => `${name(hop.node_id)} (${hop.first}–${hop.last})`).join(" → ");

function measure(figures) {
  const now = performance.now();
  speeds = [...speeds.filter((one) => now - one.at < 5000), { at: now, tokens: figures.tokens_generated }];
  const first = speeds[0], span = (now - first.at) / 1000;
  state.speed = span > 0.4 ? (figures.tokens_generated - first.tokens) / span : 0;
}

const on = {
  snapshot(data) {
    Object.assign(state, {
      node: data.node, health: data.health, figures: data.figures, training: data.training, blocks: data.blocks,
      peers: data.peers ? new Map(data.peers.map((peer) => [peer.id, peer])) : null,
      generations: data.generations ? new Map(data.generations.map((one) => [one.id, one])) : null,
      ended: data.ended ?? [],
    });
    speeds = [];
    measure(data.figures);
  },
  node(data) { state.node = data; },
  health(data) {
    if (state.health && state.health.healthy !== data.healthy) tell(data.healthy ? "The node is healthy again" : "The node is not healthy", data.healthy ? "good" : "bad");
    state.health = data;
  },
  figures(data) { state.figures = data; measure(data); },
  training(data) {
    if (data.version > (state.training?.version ?? data.version)) tell(`Round ended: the network keeps version ${data.version}`, "good");
    state.training = data;
  },
  block(data) {
    state.blocks = [...state.blocks, data].slice(-12);
    if (data.count) tell(`Block ${data.height} with ${data.count} transaction${data.count === 1 ? "" : "s"}`);
  },
  charge(data) {
    state.charges = [{ ...data, time: Date.now() }, ...state.charges].slice(0, NEWS);
  },
  "peer.joined"(data) { state.peers?.set(data.id, data); state.lost.delete(data.id); tell(`${name(data.id)} joined, with layers of ${data.address}`, "good"); },
  "peer.changed"(data) { state.peers?.set(data.id, data); },
  "peer.left"(data) {
    const peer = state.peers?.get(data.id);
    if (peer) state.lost.set(data.id, { ...peer, at: Date.now() });
    state.peers?.delete(data.id);
    tell(`${name(data.id)} left`, "bad");
  },
  "generation.began"(data) { state.generations?.set(data.id, data); },
  "generation.routed"(data) {
    const one = state.generations?.get(data.id);
    if (one) { if (one.failing) tell(`A stream goes on over ${over(data.path)}`, "good"); one.path = data.path; one.failing = false; }
  },
  "generation.failover"(data) {
    const one = state.generations?.get(data.id);
    if (one) { one.failing = true; one.failovers = (one.failovers ?? 0) + 1; }
    tell(`A stream leaves its path: ${data.reason}`, "bad");
  },
  "generation.progress"(data) {
    for (const [id, tokens] of Object.entries(data.completion_tokens)) {
      const one = state.generations?.get(id);
      if (one) { one.completion_tokens = tokens; one.state = "computing"; }
    }
  },
  "generation.ended"(data) {
    state.generations?.delete(data.id);
    state.ended = [...state.ended, data].slice(-16);
  },
};

async function follow(signal) {
  let last = "", pause = 500;
  while (!signal.aborted) {
    const quiet = new AbortController();
    const stop = () => quiet.abort();
    signal.addEventListener("abort", stop);
    let timer = setTimeout(stop, QUIET_MS);
    try {
      const headers = { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
      for await (const event of events(await send("/api/v1/events", { headers, signal: quiet.signal }))) {
        clearTimeout(timer);
        timer = setTimeout(stop, QUIET_MS);
        state.connected = true;
        state.trouble = "";
        pause = 500;
        if (event.id) last = event.id;
        if (event.data) on[event.event]?.(JSON.parse(event.data));
        changed();
      }
    } catch (error) {
      if (signal.aborted) return;
      state.trouble = error.name === "AbortError" ? "The node has gone quiet" : error.message;
      if (error.status === 401) { state.connected = false; changed(); return; }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
    state.connected = false;
    changed();
    await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2)));
    pause = Math.min(pause * 2, 10000);
  }
}

let current = null;

/** Follow the events, with the present token. Called again, it begins anew. */
export function connect() {
  current?.abort();
  current = new AbortController();
  follow(current.signal);
}

addEventListener("token", connect);
