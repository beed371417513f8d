// The node itself: its health, wallet, configuration and log, as far as the token allows.

import { card, empty, facts, h, put, say, table, tiles } from "./dom.js";
import { ask, token } from "./http.js";
import { state, subscribe } from "./live.js";
import { bytes, clock, count, ranges, short, since, units } from "./words.js";

const CHECKS = { gpu: "Computing", network: "Services", storage: "Storage", peers: "Peers", clock: "Clock" };
const LOG_MS = 3000;

/** The leaves of nested settings: `{"training.enabled": false}`. */
function leaves(value, before = "") {
  return Object.entries(value).flatMap(([name, inner]) =>
    inner !== null && typeof inner === "object" ? leaves(inner, `${before}${name}.`) : [[before + name, inner]]);
}

const nested = (path, value) => path.split(".").reduceRight((inner, name) => ({ [name]: inner }), value);

function merge(into, from) {
  for (const [name, value] of Object.entries(from)) into[name] = typeof value === "object" ? merge(into[name] ?? {}, value) : value;
  return into;
}

export function node(openToken) {
  const figures = h("div"), own = h("div", { class: "columns" }), log = h("div");
  const element = h("section", { "aria-labelledby": "node-title" }, h("h1", { id: "node-title" }, "Node"), figures, own, log);

  function render() {
    if (!state.node) return put(figures, empty(state.trouble ? "No connection" : "Connecting", h("p", {}, state.trouble || "Waiting for the node’s first report.")));
    const now = state.figures, held = state.node;
    put(figures, tiles([
      ["State", state.health.healthy ? held.status : "not healthy"], ["Role", held.role], ["Model", held.model],
      ["Layers", `${ranges(held.layers)} of ${held.total_layers}`], ["Streams", `${count(now.active)}, ${count(now.queued)} wait`],
      ["Cache in use", `${bytes(now.kv_bytes_in_use)} / ${bytes(now.kv_bytes_limit)}`], ["Mean answer", `${(now.avg_latency_ms / 1000).toFixed(2)} s`], ["Tokens so far", count(now.tokens_generated)],
    ]), h("p", { class: "row" }, Object.entries(state.health.checks).map(([name, word]) => h("span", { class: `tag ${word === "ok" || word === "absent" ? "good" : "bad"}` }, `${CHECKS[name] ?? name}: ${word === "absent" ? "processor" : word}`))),
    h("p", { class: "note" }, "Node id ", h("code", {}, held.node_id)));
  }

  async function wallet() {
    try {
      const [money, history] = await Promise.all([ask("/api/v1/wallet/balance"), ask("/api/v1/wallet/transactions?limit=10")]);
      const unit = state.node?.currency ?? "";
      const shown = (value) => `${value.toLocaleString("en", { maximumFractionDigits: 6 })} ${unit}`;
      return card("Wallet of this token",
        facts([["Available", shown(money.balances.available)], ["Staked", shown(money.balances.staked)], ["Pending", shown(money.balances.pending)], ["Account", h("code", {}, money.address)]]),
        history.transactions.length
          ? table("Latest transactions", ["What", { name: "Amount", number: true }, "When"], history.transactions.map((one) => [one.type, shown(one.amount), since(one.timestamp)]))
          : h("p", { class: "note" }, "No transactions yet."),
        state.charges.length ? table("Charges since this page was opened", ["Answer", { name: "Amount", number: true }, "When"], state.charges.slice(0, 8).map((one) => [h("code", {}, short(one.generation.replace("gen-", ""))), `${units(one.atoms)} ${unit}`, clock(one.time)])) : null);
    } catch (error) {
      return card("Wallet of this token", h("p", { class: "note" }, error.message));
    }
  }

  async function settings() {
    try {
      const [values, schema] = await Promise.all([ask("/api/v1/config"), ask("/openapi.json")]);
      return card("Configuration", form(values, schema.components.schemas.ConfigurationPatch));
    } catch (error) {
      return card("Configuration", h("p", { class: "note" }, error.message));
    }
  }

  function form(values, schema) {
    const rule = (path) => path.split(".").reduce((inner, name) => inner?.properties?.[name], schema);
    const inputs = leaves(values).filter(([path]) => rule(path)).map(([path, value]) => {
      const allowed = rule(path), id = `set-${path}`;
      const kind = typeof value === "boolean" ? { type: "checkbox", checked: value }
        : typeof value === "number" ? { type: "number", step: allowed.type === "integer" ? 1 : "any", min: allowed.minimum ?? allowed.exclusiveMinimum, max: allowed.maximum, value } : { type: "text", value, spellcheck: "false" };
      return { path, value, input: h("input", { id, ...kind }) };
    });
    const fixed = leaves(values).filter(([path]) => !rule(path));
    const told = h("p", { role: "status" }), trouble = h("p", { class: "error", role: "alert" });
    const given = ({ input, value }) => (typeof value === "boolean" ? input.checked : typeof value === "number" ? Number(input.value) : input.value);
    const made = h("form", { class: "field" },
      inputs.map(({ path, input }) => (input.type === "checkbox"
        ? h("div", { class: "row" }, input, h("label", { for: input.id }, path))
        : h("div", { class: "field" }, h("label", { for: input.id }, path), input))),
      trouble, h("p", { class: "row" }, h("button", { type: "submit" }, "Save changes")), told,
      fixed.length ? facts(fixed.map(([path, value]) => [path, h("code", {}, String(value))])) : null);
    made.addEventListener("submit", async (event) => {
      event.preventDefault();
      say(told, "");
      say(trouble, "");
      const changed = inputs.filter((one) => given(one) !== one.value);
      if (!changed.length) return say(told, "Nothing was changed.");
      try {
        const answer = await ask("/api/v1/config", { method: "PATCH", body: changed.reduce((body, one) => merge(body, nested(one.path, given(one))), {}) });
        for (const one of changed) one.value = given(one);
        say(told, `Saved: ${answer.updated.join(", ")}.${answer.restart_required ? " It takes effect when the node is started again." : ""}`);
      } catch (error) {
        say(trouble, error.message);
      }
    });
    return made;
  }

  const lines = h("ol", { class: "log", tabindex: "0", "aria-label": "Log" });
  const failed = h("p", { class: "note" });
  async function readLog() {
    try {
      const { records } = await ask("/api/v1/log?limit=200");
      const below = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
      put(lines, records.map((one) => h("li", { class: one.level }, `${clock(one.time)} ${one.level} ${one.logger}: ${one.message}`, Object.entries(one.fields ?? {}).map(([name, value]) => ` ${name}=${value}`))));
      if (below) lines.scrollTop = lines.scrollHeight;
      put(log, card("Log", lines));
      return true;
    } catch (error) {
      say(failed, error.message);
      put(log, card("Log", failed));
      return error.status !== 401 && error.status !== 403;
    }
  }

  let end = null, timer = 0, shown = false;
  async function load() {
    clearTimeout(timer);
    if (!token.get()) {
      put(log);
      return put(own, empty("Wallet, configuration and log", h("p", {}, "They are shown to whoever has a token for them."), h("p", {}, h("button", { type: "button", onclick: () => openToken() }, "Enter a token"))));
    }
    put(own, await wallet(), await settings());
    tail();
  }
  async function tail() {
    clearTimeout(timer);
    if (shown && await readLog() && shown) timer = setTimeout(tail, LOG_MS);
  }
  addEventListener("token", () => shown && load());
  return { element, show() { shown = true; end = subscribe(render); render(); load(); }, hide() { shown = false; end?.(); clearTimeout(timer); } };
}
