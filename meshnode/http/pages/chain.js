// The chain: blocks, transactions, validators, an account.

import { card, empty, facts, field, h, put, say, table, tiles } from "./dom.js";
import { ask } from "./http.js";
import { state, subscribe } from "./live.js";
import { clip, count, short, since, units } from "./words.js";

const PAGE = 10;

/** An account as it is on the chain. Raises Refused. */
export const account = (publicKey) => ask(`/api/account?public_key=${encodeURIComponent(publicKey)}`);

export function chain() {
  const figures = h("div"), blocks = h("div"), one = h("div", { "aria-live": "polite" }), validators = h("div"), found = h("div", { role: "status" });
  const input = h("input", { type: "text", spellcheck: "false", autocomplete: "off", pattern: "0[23][0-9a-f]{64}", placeholder: "02… or 03…, 66 characters" });
  const form = h("form", { class: "row" }, h("div", { class: "grow" }, field("Public key", input)), h("button", { type: "submit" }, "Look up"));
  const element = h("section", { "aria-labelledby": "chain-title" },
    h("h1", { id: "chain-title" }, "Chain"),
    h("p", { class: "lead" }, "Every payment, paid answer and accepted piece of training is in a block that validators have signed. This is what this node has checked itself."),
    figures, h("div", { class: "columns" }, blocks, h("div", { class: "columns" }, one, card("An account", form, found), validators)));
  let list = [], before = null, loading = false;

  async function load(older) {
    if (loading) return;
    loading = true;
    try {
      const page = await ask(`/api/blocks?limit=${PAGE}${older && before ? `&before=${before}` : ""}`);
      list = older ? [...list, ...page.blocks] : page.blocks;
      before = page.next_before;
      const seen = new Set();
      list = list.filter((block) => !seen.has(block.height) && seen.add(block.height));
      render();
    } catch (error) {
      if (!list.length) put(blocks, empty("No chain yet", h("p", {}, error.message)));
    } finally {
      loading = false;
    }
  }

  function render() {
    for (const block of state.blocks) if (list.length && block.height > list[0].height) list = [{ ...block, live: true }, ...list];
    put(blocks, card("Blocks", h("ul", { class: "plain" }, list.slice(0, 60).map((block) => h("li", { class: "row" },
      h("button", { type: "button", class: "link", onclick: () => open(block.height) }, `Block ${count(block.height)}`),
      h("code", {}, short(block.hash, 12)),
      block.transactions.length ? h("span", { class: "tag now" }, block.transactions.slice(0, 3).map((tx) => tx.kind ?? "refused").join(", ") + (block.transactions.length > 3 ? ` and ${block.transactions.length - 3} more` : "")) : h("span", { class: "note" }, "empty"),
      h("span", { class: "when" }, since(block.time))))),
      before ? h("button", { type: "button", class: "quiet", onclick: () => load(true) }, "Older blocks") : null));
  }

  async function open(height) {
    try {
      const block = await ask(`/api/block/${height}`);
      put(one, card(`Block ${count(block.height)}`,
        facts([["Hash", h("code", {}, block.hash)], ["Time", block.time], ["State before it", h("code", {}, clip(block.app_hash, 24))]]),
        block.transactions.length
          ? block.transactions.map((tx) => h("details", {}, h("summary", {}, `${tx.kind ?? "unreadable"} `, h("span", { class: `tag ${tx.code ? "bad" : "good"}` }, tx.code ? "refused" : "accepted")),
            facts([["From", h("code", {}, tx.sender ?? "")], ["Id", h("code", {}, tx.id ?? "")], ["Why refused", tx.code ? tx.log : undefined],
              ...Object.entries(tx.body ?? {}).filter(([name]) => name !== "kind" && name !== "chain_id").map(([name, value]) => [name, h("code", {}, typeof value === "object" ? JSON.stringify(value) : name === "amount" || name === "price" ? `${units(value)} (${value} atoms)` : String(value))])])))
          : h("p", { class: "note" }, "This block has no transactions. Blocks come all the same, so that everybody sees that the chain goes on.")));
    } catch (error) {
      put(one, card(`Block ${count(height)}`, h("p", { class: "error" }, error.message)));
    }
  }

  async function summary() {
    try {
      const now = await ask("/api/network"), page = await ask("/api/validators?limit=50");
      put(figures, now.ready ? null : h("p", { class: "card notice" }, `The chain is not ready here: ${now.reason}${now.trouble ? `, ${now.trouble}` : ""}.`),
        tiles([["Height", count(now.latest_block_height)], ["Latest block", `${Math.round(now.seconds_since_block)} s ago`], ["Validators", count(page.total)],
          ["Issued", h("span", {}, units(now.issued), h("small", {}, ` ${state.node?.currency ?? ""}`))], ["Training round", count(now.round)], ["Waiting questions", count(now.pending_inference ?? 0)]]),
        h("p", { class: "note" }, "Chain ", h("code", {}, now.chain_id), ", genesis ", h("code", {}, short(now.genesis_sha256, 16))));
      put(validators, card("Validators", table("Validators", ["Owner", { name: "Power", number: true }, { name: "Bond", number: true }], page.validators.map((one) => [h("code", {}, short(one.owner, 14)), count(one.power), units(one.bond)]))));
    } catch (error) {
      put(figures, h("div", { class: "card notice" }, h("p", {}, error.message)));
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const one = await account(input.value.trim());
      put(found, facts([["Available", units(one.balance)], ["Locked", units(one.locked)], ["Total", units(one.total)], ["Next nonce", count(one.nonce)]]));
    } catch (error) {
      put(found, h("p", { class: "error" }, error.message));
    }
  });

  let end = null, timer = 0, seen = 0;
  function news() {
    const height = state.blocks.at(-1)?.height ?? 0;
    if (height !== seen) { seen = height; render(); summary(); }
  }
  return { element, show() { end = subscribe(news); load(false); summary(); timer = setInterval(render, 15000); }, hide() { end?.(); clearInterval(timer); } };
}
