// Chat with streaming, and what each hop took.

import { field, h, put, s, say } from "./dom.js";
import { ask, events, send, token } from "./http.js";
import { state } from "./live.js";
import { ms, short } from "./words.js";

const IDEAS = ["Once upon a time", "The little robot looked up and", "Tell me about the sea"];

/** A bar of a hop's queue, computing and network time, as a share of `most` milliseconds. */
function bar(hop, most) {
  let x = 0;
  const parts = [["compute", hop.compute_ms], ["net", hop.network_ms], ["queue", hop.queue_ms]].map(([kind, value]) => {
    const part = s("rect", { class: `fill ${kind}`, x, y: 0, height: 10, width: (100 * value) / most });
    x += (100 * value) / most;
    return part;
  });
  return h("span", { class: "bar" }, s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, parts));
}

function hopList(hops) {
  const most = Math.max(...hops.map((hop) => hop.queue_ms + hop.compute_ms + hop.network_ms), 0.001);
  const name = (hop) => (hop.node_id === state.node?.node_id ? "this node" : short(hop.node_id));
  return h("details", { open: hops.length > 1 },
    h("summary", {}, hops.length === 1 ? "What this node took" : `What each of ${hops.length} hops took`),
    h("ol", { class: "hops" }, hops.map((hop) =>
      h("li", { class: "hop" },
        h("span", {}, h("span", { class: "mono" }, name(hop)), ` layers ${hop.layers.replace("-", "–")}`),
        bar(hop, most),
        h("span", { class: "when" }, ms(hop.queue_ms + hop.compute_ms + hop.network_ms)),
        h("span", { class: "hidden" }, `computing ${ms(hop.compute_ms)}, network ${ms(hop.network_ms)}, waiting ${ms(hop.queue_ms)}`)))),
    h("p", { class: "legend", "aria-hidden": "true" }, [["compute", "computing"], ["net", "network"], ["queue", "waiting"]].map(([kind, word]) => h("span", {}, h("i", { class: kind }), word))));
}

let model;

/** The model of OpenAI's interface, whose template makes a dialogue; null on a node without that interface. */
async function dialogueModel() {
  if (model === undefined) {
    try {
      model = (await ask("/v1/models")).data?.[0]?.id ?? null;
    } catch (error) {
      if (error.status !== 404) throw error;
      model = null;
    }
  }
  return model;
}

export function chat(openToken) {
  const turns = h("ol", { class: "turns", "aria-label": "Conversation" });
  const status = h("p", { class: "hidden", role: "status" });
  const box = h("textarea", { id: "prompt", rows: 1, placeholder: "Write something", "aria-label": "Your message", maxlength: 100000, enterkeyhint: "send" });
  const go = h("button", { type: "submit", id: "send" }, "Send");
  const halt = h("button", { type: "button", class: "quiet", hidden: true }, "Stop");
  const fresh = h("button", { type: "button", class: "quiet", hidden: true }, "New chat");
  const tokens = h("input", { type: "number", min: 1, max: 4096, value: 100 });
  const heat = h("input", { type: "number", min: 0, max: 2, step: 0.1, value: 0.8 });
  const top = h("input", { type: "number", min: 0.05, max: 1, step: 0.05, value: 1 });
  const knobs = h("details", {}, h("summary", { class: "note" }, "Options"),
    h("div", { class: "knobs" }, field("Most tokens", tokens), field("Temperature", heat), field("Top p", top)));
  const hero = h("div", { class: "hero" },
    h("h1", {}, "Talk to the network"),
    h("p", {}, "What you write is answered by this node, together with the others that hold the model’s layers. Under each answer you see who computed it, and how long each of them took."),
    h("div", { class: "suggest" }, IDEAS.map((idea) => h("button", { type: "button", class: "quiet", onclick: () => { box.value = idea; submit(); } }, idea))));
  const form = h("form", { class: "composer" },
    h("div", { class: "box" }, box, h("div", { class: "row" }, h("div", { class: "grow" }, knobs), fresh, halt, go)));
  const element = h("section", { class: "chat", "aria-label": "Chat" }, h("h1", { class: "hidden" }, "Chat"), hero, turns, form, status);
  const messages = [];
  let running = null;

  function asked(model, text) {
    const number = (input) => Number(input.value);
    const common = { max_tokens: number(tokens), temperature: number(heat), top_p: number(top), stream: true };
    return model
      ? ["/v1/chat/completions", { model, messages: [...messages, { role: "user", content: text }], stream_options: { include_usage: true }, ...common }]
      : ["/api/v1/inference", { prompt: text, ...common }];
  }

  async function answer(text) {
    const said = h("li", { class: "said" }, h("span", { class: "hidden" }, "You: "), text);
    const words = h("p", { class: "text" }), figures = h("p", { class: "figures" }, "Waiting for the first token");
    const item = h("li", { class: "answer", "aria-busy": "true" }, h("span", { class: "hidden" }, "Answer: "), words, figures);
    turns.append(said, item);
    item.scrollIntoView({ block: "end" });
    const began = performance.now();
    const sent = Date.now();
    let first = 0, made = 0, reason = "", usage = null, failure = "";
    running = new AbortController();
    const show = () => {
      const seconds = (performance.now() - first) / 1000;
      const speed = made > 1 && seconds > 0.05 ? ` · ${((made - 1) / seconds).toFixed(1)} tokens/s` : "";
      say(figures, `${usage?.completion_tokens ?? made} tokens${speed} · first after ${ms(first - began)}`);
    };
    try {
      const model = await dialogueModel();
      const [path, body] = asked(model, text);
      const response = await send(path, { method: "POST", body, signal: running.signal, headers: { Accept: "text/event-stream", "X-Meshnode-Trace": "1" } });
      for await (const event of events(response)) {
        if (event.comment?.startsWith("trace ")) item.append(hopList(JSON.parse(event.comment.slice(6)).hops));
        if (!event.data || event.data === "[DONE]") continue;
        const data = JSON.parse(event.data);
        if (data.error) { failure = data.error.message; continue; }
        usage = data.usage ?? usage;
        const choice = data.choices?.[0];
        reason = data.finish_reason ?? choice?.finish_reason ?? reason;
        const piece = data.choices ? choice?.delta?.content : data.token === "[DONE]" && data.finish_reason ? null : data.token;
        if (piece === undefined || piece === null) continue;
        first ||= performance.now();
        made += 1;
        const below = innerHeight + scrollY > document.body.scrollHeight - 120;
        words.append(piece);
        show();
        if (below) scrollTo(0, document.body.scrollHeight);
      }
      if (failure) throw new Error(failure);
      if (!reason) throw new Error("The answer broke off: the connection to the node ended. Send it again.");
      show();
      if (reason === "length") figures.append(" · stopped at the most tokens");
      messages.push({ role: "user", content: text }, { role: "assistant", content: words.textContent });
      say(status, `Answer finished: ${words.textContent}`);
      if (!item.querySelector("details")) fromEnded(item, sent, usage?.completion_tokens);
    } catch (error) {
      if (error.name === "AbortError") {
        figures.append(" · stopped by you");
        say(status, "Stopped.");
      } else {
        if (!made) figures.remove();
        const again = h("button", { type: "button", class: "link", onclick: () => { said.remove(); item.remove(); box.value = text; submit(); } }, "Try again");
        item.append(h("p", { class: "error", role: "alert" }, error.message, " ", error.status === 401 ? h("button", { type: "button", class: "link", onclick: () => openToken() }, "Enter a token") : again));
      }
    }
    item.setAttribute("aria-busy", "false");
    running = null;
  }

  /** Without a trace in the stream, the node's events say what the hops took. */
  function fromEnded(item, sent, tokens) {
    setTimeout(() => {
      const last = state.ended.findLast((one) => one.began_ms > sent - 2000 && one.completion_tokens === tokens);
      if (!last || item.querySelector("details")) return;
      const hops = last.hops.length ? last.hops : [{ node_id: last.path[0].node_id, layers: `${last.path[0].first}-${last.path[0].last}`, compute_ms: last.inference_ms, queue_ms: last.queue_ms, network_ms: 0 }];
      item.append(hopList(hops));
    }, 700);
  }

  async function submit() {
    const text = box.value.trim();
    if (!text || running) return;
    if (!token.get()) return openToken("The chat needs a token, because answers are computed for an account.");
    hero.hidden = true;
    box.value = "";
    go.hidden = true;
    halt.hidden = false;
    fresh.hidden = true;
    await answer(text);
    go.hidden = false;
    halt.hidden = true;
    fresh.hidden = false;
    box.focus();
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  });
  halt.addEventListener("click", () => running?.abort());
  fresh.addEventListener("click", () => { messages.length = 0; put(turns); hero.hidden = false; fresh.hidden = true; box.focus(); });
  return { element };
}
