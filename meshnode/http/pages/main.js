// The frame of the page: which page is shown, the token, the theme, and the state of the node.

import { chat } from "./chat.js";
import { chain } from "./chain.js";
import { h, put, say } from "./dom.js";
import { ask, token } from "./http.js";
import { key } from "./key.js";
import { connect, state, subscribe } from "./live.js";
import { network } from "./network.js";
import { node } from "./node.js";
import { training } from "./training.js";
import { short } from "./words.js";

const at = (id) => document.getElementById(id);
const PAGES = { chat, network, training, chain, key, node };
const TITLES = { chat: "Chat", network: "Network", training: "Training", chain: "Chain", key: "Your key", node: "Node" };
const made = new Map();
let shown = "";

/** A page is made when it is first opened: `{element, show(), hide()}`. */
function page(name) {
  if (!made.has(name)) made.set(name, PAGES[name](openToken));
  return made.get(name);
}

function route() {
  const name = location.hash.slice(1) in PAGES ? location.hash.slice(1) : "chat";
  if (name === shown) return;
  const first = !shown;
  made.get(shown)?.hide?.();
  shown = name;
  for (const link of document.querySelectorAll("[data-page]")) {
    if (link.dataset.page !== name) { link.removeAttribute("aria-current"); continue; }
    link.setAttribute("aria-current", "page");
    // Not scrollIntoView: the next press of Tab would begin at what it scrolls to.
    const row = link.parentElement;
    row.scrollLeft = link.offsetLeft - row.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
  }
  document.title = `${TITLES[name]} · meshnode`;
  put(at("main"), page(name).element);
  page(name).show?.();
  if (!first) { at("main").focus({ preventScroll: true }); scrollTo(0, 0); }
}

/** Ask for a token; `why` says what it is needed for. */
export function openToken(why = "") {
  at("token-field").value = token.get();
  say(at("token-error"), why);
  at("token-forget").hidden = !token.get();
  at("token-dialog").showModal();
}

at("token-button").addEventListener("click", () => openToken());
at("token-cancel").addEventListener("click", () => at("token-dialog").close());
at("token-forget").addEventListener("click", () => { token.set(""); at("token-dialog").close(); });
at("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const before = token.get(), given = at("token-field").value.trim();
  if (!given) return say(at("token-error"), "Enter a token, or cancel.");
  sessionStorage.setItem("meshnode.token", given);
  try {
    await ask("/api/v1/layers");
  } catch (error) {
    if (error.status === 401) {
      if (before) sessionStorage.setItem("meshnode.token", before); else sessionStorage.removeItem("meshnode.token");
      return say(at("token-error"), error.message);
    }
  }
  token.set(given);
  at("token-dialog").close();
});

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("meshnode.theme", document.documentElement.dataset.theme);
}
at("theme-button").addEventListener("click", theme);
if (localStorage.getItem("meshnode.theme")) document.documentElement.dataset.theme = localStorage.getItem("meshnode.theme");

function frame() {
  const dot = document.querySelector(".state .dot");
  const well = state.connected && state.health?.healthy;
  dot.className = `dot ${well ? "good" : state.connected || state.trouble ? "bad" : ""}`;
  const ill = Object.entries(state.health?.checks ?? {}).find(([, word]) => word !== "ok" && word !== "absent");
  const peers = state.figures?.peer_count ?? 0;
  const text = !state.connected ? state.trouble ? "Not connected, trying again" : "Connecting"
    : well ? `Running · ${peers ? `${peers} peer${peers === 1 ? "" : "s"}` : "alone"}` : `Not healthy: ${ill?.join(" ") ?? "see Node"}`;
  say(at("state-text"), text);
  at("state").title = state.trouble;
  say(at("token-button"), token.get() ? "Token" : "Enter token");
  if (state.node) put(at("foot-node"), `Node `, h("code", {}, short(state.node.node_id, 12)), ` · version ${state.node.version}`);
}

subscribe(frame);
addEventListener("token", frame);
addEventListener("hashchange", route);
route();
connect();
