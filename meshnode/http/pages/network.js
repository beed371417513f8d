// The network as a picture: a lane for each node, a bar for its layers, a line for each stream.

import { card, empty, h, put, s, say, table, tiles } from "./dom.js";
import { token } from "./http.js";
import { state, subscribe } from "./live.js";
import { clock, count, ms, ranges, short } from "./words.js";

const LANE = 46, BAR = 22, TOP = 34, GONE_MS = 30000, MAX_LANES = 60;

function runs(layers) {
  const found = [];
  for (const n of layers) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n; else found.push([n, n]);
  }
  return found;
}

function lanes() {
  const own = { ...state.node, id: state.node.node_id, own: true, layers: state.node.layers, active_sessions: state.figures.active };
  const now = Date.now();
  const lost = [...state.lost.values()].filter((peer) => now - peer.at < GONE_MS).map((peer) => ({ ...peer, gone: true }));
  const peers = [...(state.peers?.values() ?? []), ...lost].sort((a, b) => (a.layers[0] ?? 1e9) - (b.layers[0] ?? 1e9) || (a.id < b.id ? -1 : 1));
  return [own, ...peers];
}

function draw(width) {
  const all = lanes(), shown = all.slice(0, MAX_LANES), total = state.node.total_layers || 1;
  const narrow = width < 560, left = narrow ? 0 : 190, lane = narrow ? LANE + 20 : LANE, right = 12;
  const x = (layer) => left + ((width - left - right) * layer) / total;
  const barY = (i) => TOP + i * lane + (narrow ? 24 : (lane - BAR) / 2);
  const row = new Map(shown.map((node, i) => [node.id, i]));
  const height = TOP + shown.length * lane + 10;
  const step = Math.max(1, Math.ceil(total / (narrow ? 8 : 16)));
  const parts = [];
  for (let layer = 0; layer <= total; layer += 1) {
    if (total <= 64) parts.push(s("line", { class: "grid-line", x1: x(layer), x2: x(layer), y1: TOP - 6, y2: height }));
    if (layer < total && layer % step === 0) parts.push(s("text", { x: (x(layer) + x(layer + 1)) / 2, y: TOP - 14, "text-anchor": "middle" }, String(layer)));
  }
  const open = [...(state.generations?.values() ?? [])];
  const busy = new Map();
  for (const one of open) for (const hop of one.path) busy.set(hop.node_id, (busy.get(hop.node_id) ?? 0) + 1);
  shown.forEach((node, i) => {
    const kind = node.gone ? "gone" : busy.has(node.id) ? "busy" : node.own ? "own" : "";
    const serves = busy.get(node.id);
    const note = node.gone ? "gone" : serves ? `serves ${serves} stream${serves === 1 ? "" : "s"}` : node.own ? node.role : node.same_model === false ? "other model" : `${node.role}, ${ms(node.latency_ms)}`;
    const nameY = narrow ? TOP + i * lane + 16 : barY(i) + 9;
    parts.push(s("text", { class: "name", x: 0, y: nameY }, node.own ? "This node" : short(node.id)));
    parts.push(s("text", { x: narrow ? 110 : 0, y: narrow ? nameY : nameY + 17 }, note));
    for (const [a, b] of node.same_model === false ? [] : runs(node.layers)) {
      parts.push(s("rect", { class: `lane-bar ${kind}`, x: x(a) + 2, y: barY(i), width: Math.max(4, x(b + 1) - x(a) - 4), height: BAR, rx: 6 }));
    }
  });
  for (const one of open.slice(0, 8)) {
    const points = one.path.filter((hop) => row.has(hop.node_id)).flatMap((hop) => {
      const y = barY(row.get(hop.node_id)) + BAR / 2;
      return [[x(hop.first) + 12, y], [x(hop.last + 1) - 12, y]];
    });
    if (points.length > 2) parts.push(s("path", { class: "route", d: points.map(([px, py], i) => `${i ? "L" : "M"}${px} ${py}`).join(" ") }));
  }
  return { height, parts, hidden: all.length - shown.length };
}

export function network(openToken) {
  const holder = h("div", { class: "card" });
  const picture = s("svg", { class: "picture", role: "img", "aria-label": "Which node holds which layers" });
  const more = h("p", { class: "note" });
  const figures = h("div"), streams = h("div"), news = h("div"), ask = h("div"), rows = h("div");
  const heard = h("p", { class: "hidden", role: "status" });
  const asTable = h("details", {}, h("summary", {}, "The same as a table"), rows);
  put(holder, h("h2", {}, "Layers"), picture, more, asTable);
  const element = h("section", { "aria-labelledby": "network-title" },
    h("h1", { id: "network-title" }, "Network"),
    h("p", { class: "lead" }, "Each line is a node, each bar the layers that it holds. While a stream runs, its path goes from the first layer to the last; when a holder fails, the path changes before your eyes."),
    figures, ask, holder, h("div", { class: "columns" }, card("Streams", streams), card("What has just happened", news)), heard);

  function render() {
    if (!state.node) return put(figures, empty(state.trouble ? "No connection" : "Connecting", h("p", {}, state.trouble || "Waiting for the node’s first report.")));
    const now = state.figures;
    put(figures, tiles([
      ["Peers", count(now.peer_count)], ["Layers here", `${state.node.layers.length} of ${state.node.total_layers}`],
      ["Streams now", count(now.active)], ["Tokens per second", state.speed.toFixed(1)],
      ["Answers so far", count(now.requests_total)], ["Paths left", count(now.failovers)],
    ]));
    put(ask, token.get() ? null : h("div", { class: "card notice" }, h("p", {}, "Without a token you see this node only. ", h("button", { type: "button", class: "link", onclick: () => openToken() }, "Enter a token"), " to see its peers and streams.")));
    const width = Math.max(280, Math.floor(picture.getBoundingClientRect().width || 600));
    const { height, parts, hidden } = draw(width);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    put(picture, parts);
    say(more, hidden > 0 ? `And ${count(hidden)} more nodes, which are in the table.` : now.peer_count ? "" : "No other node is known yet. Start one on another machine: python -m meshnode --tracker " + location.origin);
    if (asTable.open) {
      put(rows, table("Nodes", ["Node", "Address", "Role", "Layers", { name: "Answers in", number: true }], lanes().map((node) => [
        h("code", {}, node.own ? `${short(node.id)} (this node)` : short(node.id)), node.address ?? location.host, node.gone ? "gone" : node.role, ranges(node.layers) || "none", node.own ? "" : ms(node.latency_ms)])));
    }
    const open = [...(state.generations?.values() ?? [])].slice(0, 12), done = state.ended.slice(-6).reverse();
    put(streams, !open.length && !done.length
      ? h("p", { class: "note" }, state.generations ? "Nobody is being answered. Write something in the chat and look here again." : "Streams are shown to visitors with a token.")
      : h("ul", { class: "plain" }, [...open, ...done].map((one) => h("li", {},
        h("span", { class: `tag ${one.state === "computing" ? "now" : one.state === "failed" ? "bad" : ""}` }, one.state === "computing" ? "running" : one.state), " ",
        `${count(one.completion_tokens)} of at most ${count(one.max_tokens)} tokens · `,
        one.path.map((hop) => (hop.node_id === state.node.node_id ? "this node" : short(hop.node_id))).join(" → "),
        one.failovers ? ` · left ${one.failovers} path${one.failovers === 1 ? "" : "s"}` : "",
        one.inference_ms === undefined ? "" : ` · ${ms(one.inference_ms)}`))));
    put(news, state.news.length ? h("ul", { class: "plain" }, state.news.slice(0, 12).map((item) => h("li", {}, h("span", { class: "when" }, clock(item.time)), " ", item.kind === "bad" ? h("span", { class: "tag bad" }, "attention") : null, " ", item.text)))
      : h("p", { class: "note" }, "Nothing since you opened this page: peers that come and go, failures on the way and blocks appear here."));
    say(heard, state.news[0]?.kind ? state.news[0].text : "");
  }

  let end = null;
  const seen = new ResizeObserver(() => render());
  asTable.addEventListener("toggle", render);
  return {
    element,
    show() { end = subscribe(render); seen.observe(holder); render(); },
    hide() { end?.(); seen.disconnect(); },
  };
}
