// A paid question from the browser (interface 4.2): a quote, a ceiling, one signature, and what became of it.
//
// The order protects the user. The price is known and below the ceiling before anything is signed; what was signed is
// kept before it is sent; and while its outcome is unknown, the same bytes are asked for by their id, and nothing new is
// signed (rules 6 and 7).

import { Refused, ask, send } from "./http.js";
import { envelope } from "./signing.js";
import { units } from "./words.js";

const LIFETIME = 120;
const OUTBOX = "meshnode.outbox";

/** The question whose outcome is open: `{id, raw, prompt, total, expires, chain}`, or null. */
export const outbox = {
  get: () => JSON.parse(localStorage.getItem(OUTBOX) ?? "null"),
  set(entry) { if (entry) localStorage.setItem(OUTBOX, JSON.stringify(entry)); else localStorage.removeItem(OUTBOX); },
};

/** What a question would cost, after checking that the node's answers agree. Raises Error in plain words. */
export async function quote(publicKey, tokens) {
  const [network, offer, account] = await Promise.all([ask("/api/network"), ask("/api/inference"), ask(`/api/account?public_key=${publicKey}`)]);
  if (!network.ready) throw new Error(`The chain is not ready on this node (${network.reason}). Nothing was signed; try again in a minute.`);
  if (offer.chain_id !== network.chain_id || offer.genesis_sha256 !== network.genesis_sha256) throw new Error("The node’s answers are about different chains. Nothing was signed.");
  if (offer.model_root !== network.serving_root) throw new Error("The chain has just changed its model. Nothing was signed; try again.");
  const price = BigInt(offer.price_per_max_token_atoms), fee = BigInt(offer.fee_atoms);
  if (price !== BigInt(network.params.inference_token_price) || fee !== BigInt(network.params.fee)) throw new Error("The price that was offered is not the chain’s. Nothing was signed.");
  if (!offer.provider || !offer.provider_online) throw new Error("Nobody who answers is online now. Nothing was signed; try again later.");
  if (!(tokens >= 1 && tokens <= offer.max_tokens)) throw new Error(`This network allows 1 to ${offer.max_tokens} tokens.`);
  return { network, offer, account, price: price * BigInt(tokens), fee, total: price * BigInt(tokens) + fee, tokens };
}

/** Refuse a price above the ceiling or the balance. `ceiling` is in atoms. */
export function check(terms, ceiling) {
  if (terms.total > ceiling) throw new Error(`It would cost ${units(terms.total)}, above your ceiling of ${units(ceiling)}. Nothing was signed.`);
  if (terms.total > BigInt(terms.account.balance)) throw new Error(`It would cost ${units(terms.total)}, and this key has ${units(terms.account.balance)}. Pay something into it first. Nothing was signed.`);
}

/** Sign a question and keep it. Nothing is sent yet. */
export function signed(seed, terms, prompt) {
  const { network, offer, account } = terms;
  const body = {
    kind: "infer", chain_id: network.chain_id, nonce: account.nonce, provider: offer.provider, model_root: network.serving_root,
    request: { prompt, max_tokens: terms.tokens }, price: Number(terms.price),
    expires: network.latest_block_height + Math.min(LIFETIME, offer.request_lifetime_blocks),
  };
  const { raw, id } = envelope(body, seed);
  if (raw.length > network.params.max_tx_bytes) throw new Error("The question is too long for a transaction. Nothing was sent.");
  const entry = { id, raw: btoa(String.fromCharCode(...raw)), prompt, total: terms.total.toString(), expires: body.expires, chain: network.chain_id };
  outbox.set(entry);
  return entry;
}

/** Send what was signed. Raises Refused with status 0 or 503 where the outcome is unknown. */
export async function broadcast(entry) {
  const response = await send("/rpc", { method: "POST", body: { jsonrpc: "2.0", id: 1, method: "broadcast_tx_sync", params: { tx: entry.raw } } });
  const { result } = await response.json();
  if (result.code && !/already exists/.test(result.log)) throw new Refused(400, "REFUSED", result.log);
}

/** What became of a question: its record, or null while the chain does not know it. */
export async function outcome(entry) {
  try {
    return await ask(`/api/inference/request?id=${entry.id}`);
  } catch (error) {
    if (error.status === 400 || error.status === 404) return null;
    throw error;
  }
}
