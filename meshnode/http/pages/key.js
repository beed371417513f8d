// A key that is made and kept in this browser, and questions that it pays for on the chain.

import { account } from "./chain.js";
import { card, facts, field, h, put, say } from "./dom.js";
import { ask } from "./http.js";
import { broadcast, check, outbox, outcome, quote, signed } from "./paying.js";
import { newSeed, publicKey } from "./signing.js";
import { atoms, clip, units } from "./words.js";

const KEPT = "meshnode.key", FORMAT = "meshnode-key-v1", POLL_MS = 2000;

const stored = () => JSON.parse(localStorage.getItem(KEPT) ?? "null");

export function key() {
  const mine = h("div"), question = h("div"), open = h("div", { "aria-live": "polite" });
  const heard = h("p", { class: "hidden", role: "status" });
  const element = h("section", { "aria-labelledby": "key-title" },
    h("h1", { id: "key-title" }, "Your key"),
    h("p", { class: "lead" }, "With a key of your own you can ask the network without an account on this node: you sign what you pay, and the node never sees the key."),
    h("div", { class: "columns" }, mine, h("div", { class: "columns" }, question, open)), heard);
  let seed = stored()?.seed ?? "", own = stored()?.public_key ?? "", polling = 0;

  function keep(value) {
    seed = value;
    own = publicKey(value);
    localStorage.setItem(KEPT, JSON.stringify({ format: FORMAT, seed, public_key: own }));
    render();
  }

  function save() {
    const file = new Blob([`${JSON.stringify({ format: FORMAT, seed, public_key: own })}\n`], { type: "application/json" });
    const link = h("a", { href: URL.createObjectURL(file), download: "key.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    say(heard, "The key was saved as key.json.");
  }

  async function load(event) {
    const trouble = mine.querySelector(".error");
    try {
      const file = event.target.files[0];
      if (!file) return;
      if (file.size > 65536) throw new Error("That file is too large for a key.");
      const read = JSON.parse(await file.text());
      if (typeof read.seed !== "string") throw new Error("This key file has a passphrase or is of another kind; this page reads plain ones.");
      if (read.public_key && publicKey(read.seed) !== read.public_key) throw new Error("The file is damaged: its public key is not that of its seed.");
      keep(read.seed);
    } catch (error) {
      say(trouble, error instanceof SyntaxError ? "That is not a key file." : error.message);
    }
  }

  function remove() {
    const dialog = h("dialog", { "aria-labelledby": "remove-title" }, h("form", { method: "dialog" },
      h("h2", { id: "remove-title" }, "Remove this key?"),
      h("p", {}, "Without a saved copy, whatever the key owns is lost for good. Nobody can bring it back."),
      h("p", { class: "row end" }, h("button", { class: "quiet", value: "" }, "Keep it"), h("button", { class: "danger", value: "yes" }, "Remove it"))));
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "yes") { localStorage.removeItem(KEPT); seed = own = ""; render(); }
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  }

  async function balance() {
    if (!own) return;
    const place = mine.querySelector("[data-balance]");
    try {
      const now = await account(own);
      put(place, facts([["Available", units(now.balance)], ["Locked in questions", units(now.locked)], ["Next nonce", String(now.nonce)]]),
        now.balance === "0" ? h("p", { class: "note" }, "Nothing yet. Let somebody who has some send to the public key above, for example with ", h("code", {}, "meshnode transfer"), ".") : null);
    } catch (error) {
      put(place, h("p", { class: "note" }, error.message));
    }
  }

  function render() {
    const file = h("input", { type: "file", accept: "application/json,.json", onchange: load });
    put(mine, own
      ? card("The key in this browser",
        facts([["Public key", h("code", {}, own)]]),
        h("div", { "data-balance": "" }, h("p", { class: "note" }, "Looking up its balance")),
        h("p", { class: "note" }, "The key lies in this browser’s storage for this address. Save a copy: clearing the browser’s data removes it."),
        h("p", { class: "row" }, h("button", { type: "button", onclick: save }, "Save a copy"), h("button", { type: "button", class: "quiet", onclick: balance }, "Look again"), h("button", { type: "button", class: "danger", onclick: remove }, "Remove")))
      : card("No key yet",
        h("p", {}, "A key is a secret number. It is made here, from your browser’s own randomness, and stays here."),
        h("p", { class: "row" }, h("button", { type: "button", onclick: () => keep(newSeed()) }, "Make a key")),
        field("Or take one from a file", file, "A key.json that was saved here or made with meshnode key new."),
        h("p", { class: "error", role: "alert" })));
    put(question, own ? form() : null);
    balance();
    follow();
  }

  function form() {
    const prompt = h("textarea", { rows: 3, maxlength: 2048, required: true });
    const tokens = h("input", { type: "number", min: 1, max: 64, value: 32, required: true });
    const ceiling = h("input", { type: "text", inputmode: "decimal", value: "0.1", required: true });
    const trouble = h("p", { class: "error", role: "alert" });
    const see = h("button", { type: "submit" }, "See the price");
    const made = h("form", { class: "field" }, field("Question", prompt, "Question and answer are public: they stay on the chain for everybody."),
      h("div", { class: "row" }, h("div", { class: "grow" }, field("Most tokens", tokens)), h("div", { class: "grow" }, field("Price ceiling", ceiling, "Above it, nothing is signed."))),
      trouble, h("p", { class: "row" }, see));
    made.addEventListener("submit", async (event) => {
      event.preventDefault();
      say(trouble, "");
      see.disabled = true;
      try {
        const limit = atoms(ceiling.value);
        if (limit === null) throw new Error("The ceiling is a number such as 0.1, with at most six decimals.");
        if (outbox.get()) throw new Error("An earlier question is still open. Wait for its outcome first; nothing was signed.");
        const terms = await quote(own, Number(tokens.value));
        check(terms, limit);
        confirm(terms, prompt.value, limit);
      } catch (error) {
        say(trouble, error.message);
      } finally {
        see.disabled = false;
      }
    });
    return card("Ask the network", made);
  }

  function confirm(terms, prompt, limit) {
    const dialog = h("dialog", { "aria-labelledby": "pay-title" }, h("form", { method: "dialog" },
      h("h2", { id: "pay-title" }, "Sign and pay?"),
      facts([["Price", `${units(terms.price)} for at most ${terms.tokens} tokens`], ["Fee", units(terms.fee)], ["In all", h("strong", {}, units(terms.total))], ["Ceiling", units(limit)], ["Model", clip(terms.offer.model_name, 40)]]),
      h("p", { class: "note" }, "All of it is charged, also when the answer is shorter."),
      h("p", { class: "row end" }, h("button", { class: "quiet", value: "" }, "Cancel"), h("button", { value: "pay" }, "Sign and send"))));
    dialog.addEventListener("close", async () => {
      dialog.remove();
      if (dialog.returnValue !== "pay") return;
      check(terms, limit);
      const entry = signed(seed, terms, prompt);
      await deliver(entry);
    });
    document.body.append(dialog);
    dialog.showModal();
  }

  async function deliver(entry) {
    try {
      await broadcast(entry);
    } catch (error) {
      if (error.status === 400) {
        outbox.set(null);
        put(open, card("Refused", h("p", { class: "error", role: "alert" }, `The network refuses it: ${error.message}. Nothing was charged.`)));
        return;
      }
    }
    follow();
  }

  async function follow() {
    clearTimeout(polling);
    const entry = outbox.get();
    if (!entry) return;
    let record = null, trouble = "";
    try {
      record = await outcome(entry);
    } catch (error) {
      trouble = error.message;
    }
    const head = facts([["Question", entry.prompt], ["Costs at most", units(entry.total)], ["Id", h("code", {}, entry.id)]]);
    if (record?.status === "completed" || record?.status === "expired") {
      outbox.set(null);
      const text = record.status === "completed" ? record.output?.text ?? "" : "";
      put(open, card(record.status === "completed" ? "Answer" : "No answer came", head,
        record.status === "completed" ? h("p", { class: "said" }, text || "(an empty text)") : h("p", {}, `Its time has passed. ${units(record.refunded ?? "0")} went back to your key; the fee did not.`)));
      say(heard, record.status === "completed" ? `Answer: ${text}` : "No answer came in time.");
      return balance();
    }
    const again = h("button", { type: "button", class: "quiet", onclick: () => deliver(entry) }, "Send the same again");
    put(open, card("Open question", head, h("p", { role: "status" }, trouble || (record ? "Accepted; waiting for the answer in a block." : "Sent; waiting until it is in a block.")), record ? null : h("p", { class: "row" }, again)));
    if (!record) {
      const height = (await ask("/api/network").catch(() => null))?.latest_block_height ?? 0;
      if (height > entry.expires) {
        outbox.set(null);
        return put(open, card("Never accepted", head, h("p", {}, "Its time has passed without it being in a block. Nothing was charged.")));
      }
    }
    polling = setTimeout(follow, POLL_MS);
  }

  return { element, show() { render(); }, hide() { clearTimeout(polling); } };
}
