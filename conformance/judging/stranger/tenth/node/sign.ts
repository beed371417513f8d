// Makes the signed messages that an operator or a test needs: sign.ts request|work '<json>'.
import { CHAIN_ID, ACCOUNT_KEYS, DEFAULT_PROVIDER, FEE, PRICE, SERVING_ROOT } from "./chaindata.ts";
import { makeTransaction, sign } from "./keys.ts";

const [kind, text] = process.argv.slice(2);
const wanted = JSON.parse(text ?? "{}");

/** Another last digit: the signature of nothing. */
const spoil = (signature: string): string => signature.slice(0, -1) + (signature.endsWith("0") ? "1" : "0");

if (kind === "request") {
  const account = wanted.account ?? "user";
  const body = {
    chain_id: wanted.chain_id ?? CHAIN_ID,
    public_key: ACCOUNT_KEYS[account],
    nonce: wanted.nonce ?? 0,
    provider: wanted.provider ?? DEFAULT_PROVIDER,
    checkpoint: wanted.checkpoint ?? SERVING_ROOT,
    prompt: wanted.prompt ?? "Hello",
    max_tokens: wanted.max_tokens ?? 16,
    price_atoms: String(PRICE),
    fee_atoms: String(FEE),
    expires_height: wanted.expires_height ?? 1000,
  };
  const genuine = sign("request", body, account);
  const tx = makeTransaction(body, account, wanted.forge ? spoil(genuine) : genuine);
  const base64 = tx.bytes.toString("base64");
  console.log(
    JSON.stringify({
      tx: base64,
      rpc: { jsonrpc: "2.0", id: 1, method: "broadcast_tx_sync", params: { tx: base64 } },
      hash: tx.hash,
      request_id: tx.request_id,
      cost_atoms: String(PRICE + FEE),
      public_key: body.public_key,
    }),
  );
} else if (kind === "work") {
  const { forge, account = "user", ...rest } = wanted;
  const message = { type: "work_poll", chain_id: CHAIN_ID, public_key: ACCOUNT_KEYS[account], ...rest };
  const genuine = sign("work", message, account);
  console.log(JSON.stringify({ message, signature: forge ? spoil(genuine) : genuine }));
} else {
  console.error("usage: sign.ts request|work '<json>'");
  process.exit(2);
}
