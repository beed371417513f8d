// Training: held-out loss over rounds, contributions, hashes; and the updates that the chain accepted.

import { card, empty, h, put, s, table, tiles } from "./dom.js";
import { ask } from "./http.js";
import { state, subscribe } from "./live.js";
import { count, short, since } from "./words.js";

/** A line chart of numbers, with the first and last value in words for screen readers. */
function curve(values, width, label) {
  const height = 240, left = 52, right = 14, top = 14, bottom = 30;
  const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
  const x = (i) => left + ((width - left - right) * i) / Math.max(1, values.length - 1);
  const y = (value) => top + ((height - top - bottom) * (high - value)) / span;
  const line = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const marks = [high, (high + low) / 2, low];
  return s("svg", { class: "picture", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${label}: from ${values[0].toFixed(3)} to ${values.at(-1).toFixed(3)} over ${values.length} measurements` },
    marks.map((value) => [s("line", { class: "grid-line", x1: left, x2: width - right, y1: y(value), y2: y(value) }), s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(span < 0.1 ? 3 : 2))]),
    s("path", { class: "area", d: `${line}L${x(values.length - 1)} ${height - bottom}L${left} ${height - bottom}Z` }),
    s("path", { class: "curve", d: line }),
    values.length < 40 ? values.map((value, i) => s("circle", { class: "point", cx: x(i), cy: y(value), r: 3.5 })) : s("circle", { class: "point", cx: x(values.length - 1), cy: y(values.at(-1)), r: 4.5 }),
    s("text", { x: left, y: height - 8 }, "older"), s("text", { x: width - right, y: height - 8, "text-anchor": "end" }, "newest"));
}

export function training() {
  const figures = h("div"), chart = h("div"), makers = h("div"), chain = h("div");
  const element = h("section", { "aria-labelledby": "training-title" },
    h("h1", { id: "training-title" }, "Training"),
    h("p", { class: "lead" }, "Nodes train copies of the model on their own text, exchange what they have learned, and keep new weights only if they are better on text that none of them has trained on."),
    figures, chart, h("div", { class: "columns" }, makers, chain));

  function render() {
    const now = state.training;
    if (!now) return put(figures, empty(state.trouble ? "No connection" : "Connecting", h("p", {}, state.trouble || "Waiting for the node’s first report.")));
    if (!now.enabled && !now.nodes && !now.losses.length) {
      put(figures, empty("Nobody trains here yet",
        h("p", {}, now.problem || "This node is not training, and knows no other node that is."),
        h("p", {}, "To begin, start the node with ", h("code", {}, "training_text"), ", a folder of text, and switch ", h("code", {}, "training.enabled"), " on, on the page ", h("a", { href: "#node" }, "Node"), ". It can be switched off again at any time.")));
      put(chart);
      put(makers);
      return;
    }
    put(figures,
      now.problem ? h("p", { class: "card notice bad" }, now.problem) : null,
      tiles([
        [now.pipeline ? "Epoch" : "Version", count(now.version ?? 0)], ["Nodes that train", count(now.nodes)],
        ["Same weights", `${Math.round(100 * now.hash_agreement_rate)} %`], ["Loss is", now.trend],
        ["Steps", count(now.steps)], ["Tokens", count(now.tokens)],
        ...(now.state ? [["This node", now.state === "inner" ? `step ${now.inner_step} of ${now.inner_steps}` : now.state]] : []),
      ]));
    const values = now.losses.filter((value) => value !== null);
    const label = now.held_out ? "Held-out loss by round" : "Training loss";
    const width = Math.max(300, Math.floor(chart.getBoundingClientRect().width - 44 || 700));
    put(chart, card(label, values.length > 1 ? curve(values, width, label) : h("p", { class: "note" }, values.length ? `${values[0].toFixed(4)} so far; the curve begins with the second round.` : "The first round has not ended yet. A curve appears here after two."),
      values.length > 1 ? h("p", { class: "note" }, `Latest ${values.at(-1).toFixed(4)}, best ${Math.min(...values).toFixed(4)}. Lower is better.`) : null));
    const given = Object.entries(now.contributions ?? {}), hashes = Object.entries(now.peers ?? {});
    const name = (id) => h("code", {}, id === state.node?.node_id ? "this node" : short(id));
    put(makers, card("Contributions and hashes",
      now.model_hash ? h("p", {}, "Weights of this node: ", h("code", {}, short(now.model_hash, 16)), ` (version ${now.version})`) : null,
      given.length ? table("Contributions to this round", ["Node", "Digest"], given.map(([id, digests]) => [name(id), h("code", {}, digests.map((digest) => short(digest, 12)).join(", ") || "none yet")]))
        : h("p", { class: "note" }, "No contribution to this round yet."),
      hashes.length ? table("Weights of other nodes", ["Node", "Weights", ""], hashes.map(([id, hash]) => [name(id), h("code", {}, short(hash, 12)), h("span", { class: `tag ${hash === now.model_hash ? "good" : ""}` }, hash === now.model_hash ? "same" : "different")])) : null));
  }

  async function accepted() {
    try {
      const found = await ask("/api/training?limit=20");
      put(chain, card("Updates that the chain accepted", found.records.length
        ? table("Accepted updates", [{ name: "Round", number: true }, { name: "Loss", number: true }, "Weights", "When"], found.records.map((one) => [count(one.round), one.loss?.toFixed(4) ?? "", h("code", {}, short(one.model_root, 12)), since(one.time)]))
        : h("p", { class: "note" }, "None yet. A sponsor pays for such updates: see sponsor_tasks in the settings.")));
    } catch (error) {
      put(chain, card("Updates that the chain accepted", h("p", { class: "note" }, error.message)));
    }
  }

  let end = null;
  return { element, show() { end = subscribe(render); render(); accepted(); }, hide() { end?.(); } };
}
