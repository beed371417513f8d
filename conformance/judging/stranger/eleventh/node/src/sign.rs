//! Keys and signed messages. The private keys are those of the test clients, not of the node.

use crate::util::*;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, UnparsedPublicKey};
use serde_json::{json, Value};

pub const CHAIN: &str = "quartzite-2";
pub const OTHER_CHAIN: &str = "feldspar-1";
pub const PROVIDER: &str = "prov-cobalt";
pub const QUIET: &str = "prov-hush";
pub const PRICE: i128 = 240_000;
pub const PRICE_FEE: i128 = 1_500;

pub const KEYS: [(&str, &str, &str); 5] = [
    (
        "buyer",
        "72dd694456586c0b5d6ef70e81cc9ea0f76c0d7c089d92aceb40cff091e76d58",
        "04a20191665e7972774296933370a20eceddc0329060c9d9b01d4298e8b120bb3bf48803bfea69bce772242331e98b88bfb49c1b28e81ee95adfa1d0f4be49556a",
    ),
    (
        "second",
        "1685493e4423d3e605aaade2eee94f5ce6bc64efd6f53c9c4cd996a7b6235023",
        "0419f7e73f917a5ae02a0ed32df8c384407c5b61c2b37b6bc43d43484038ea18d831df662226daf1237392e0273191a3c3a52910edbe48f928eec88e37aa9e76ac",
    ),
    (
        "worker",
        "e61b5cf4e67553a4b22846e590ac335fe75e69a76aacf1360024f268326c41f7",
        "04e3b536b27c9874aa1c3493f5132080d29b3005f0b4384cd2d06bcb7e76b96b349efb7768936410b43b9d93bed59feb27dc7cfa34af99e7cb28677c34716fb4eb",
    ),
    (
        "provider",
        "5ee99781f796b605c76f168f3afb360028ff7acd055dd8ac987b461ea3494b59",
        "04a2eec066a8964d1adaebb450be82b515052ad9c14a888d6ff2aee521713f3cace4f90015c9d0288c198a08e904adedbac71c759c9a2f0d8b4e8312105ccc09c2",
    ),
    (
        "sleeper",
        "c35ed9290a3bea07a47720f201c03c6323f0ebb367da167d82346ce53f7634cd",
        "0409a6403091f7cace4134385b9c65656ad450539339648343d8f4e93152dbd572a4347d2fc3b11aa0df69790416224654a5fd8b060e2fbc61dea8c2779826c4e5",
    ),
];

/// The compressed form of an uncompressed key, in hexadecimal.
pub fn compress(open: &str) -> String {
    let even = u8::from_str_radix(&open[128..130], 16).unwrap_or(0) % 2 == 0;
    format!("{}{}", if even { "02" } else { "03" }, &open[2..66])
}

pub fn public(name: &str) -> String {
    KEYS.iter()
        .find(|k| k.0 == name)
        .map(|k| compress(k.2))
        .unwrap_or_default()
}

/// An envelope: the body as text, the open key and the signature over the body.
pub fn seal(name: &str, body: &str, forge: bool) -> Value {
    let k = KEYS.iter().find(|k| k.0 == name).unwrap_or(&KEYS[0]);
    let rng = SystemRandom::new();
    let pair = EcdsaKeyPair::from_private_key_and_public_key(
        &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        &hex::decode(k.1).unwrap(),
        &hex::decode(k.2).unwrap(),
    )
    .unwrap();
    let signed = if forge {
        body.replacen('{', "{\"also\":1,", 1)
    } else {
        body.to_string()
    };
    let sig = pair.sign(&rng, signed.as_bytes()).unwrap();
    json!({"said": body, "key": k.2, "sig": hex::encode(sig.as_ref())})
}

/// The body of an envelope whose signature is right, and its signer.
pub fn open(envelope: &Value, trust: bool) -> Result<(String, String), String> {
    let text = |k: &str| {
        envelope
            .get(k)
            .and_then(|v| v.as_str())
            .ok_or(format!("{k} is missing"))
    };
    let (said, key, sig) = (text("said")?, text("key")?, text("sig")?);
    let raw = hex::decode(key).map_err(|_| "key is no hexadecimal number".to_string())?;
    if raw.len() != 65 || raw[0] != 4 {
        return Err("key is no open key".into());
    }
    let sig = hex::decode(sig).map_err(|_| "sig is no hexadecimal number".to_string())?;
    let key_check = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, &raw);
    if !trust && key_check.verify(said.as_bytes(), &sig).is_err() {
        return Err("the signature belongs to something else".into());
    }
    Ok((said.to_string(), compress(&key.to_lowercase())))
}

pub fn request_body(input: &Value) -> Value {
    let tokens = input
        .get("max_tokens")
        .and_then(|v| v.as_i64())
        .unwrap_or(24);
    json!({
        "act": "infer",
        "chain_id": input.get("chain_id").and_then(|v| v.as_str()).unwrap_or(CHAIN),
        "nonce": input.get("nonce").and_then(|v| v.as_i64()).unwrap_or(0),
        "provider": input.get("provider").and_then(|v| v.as_str()).unwrap_or(PROVIDER),
        "checkpoint": crate::chain::serving_root(),
        "prompt": input.get("prompt").and_then(|v| v.as_str()).unwrap_or("a question"),
        "max_tokens": tokens,
        "price_atoms": PRICE.to_string(), "fee_atoms": PRICE_FEE.to_string(),
        "expires_height": input.get("expires_height").and_then(|v| v.as_i64()).unwrap_or(1_000_000),
    })
}

pub fn request_id(body: &str, signer: &str) -> String {
    format!(
        "rq{}",
        &sha256_hex(format!("{signer}|{body}").as_bytes())[..40]
    )
}

/// Prints a signed message for a client.
pub fn command(args: &[String]) -> Result<Value, String> {
    let input: Value = match args.get(1) {
        Some(t) => serde_json::from_str(t).map_err(|e| e.to_string())?,
        None => json!({}),
    };
    let forge = input
        .get("forge")
        .map_or(false, |f| *f == json!(true) || f.is_string());
    let given = input.get("account").and_then(|v| v.as_str());
    match args.first().map(|s| s.as_str()) {
        Some("request") => {
            let name = given.unwrap_or("buyer");
            let name = KEYS
                .iter()
                .find(|k| k.0 == name || compress(k.2) == name)
                .map_or("buyer", |k| k.0);
            let body = request_body(&input).to_string();
            let tx = seal(name, &body, forge).to_string();
            let b64 = base64::encode(&tx);
            Ok(json!({
                "tx": b64,
                "rpc": {"jsonrpc": "2.0", "id": 7, "method": "broadcast_tx_sync", "params": {"tx": b64}},
                "hash": sha256_hex(tx.as_bytes()),
                "request_id": request_id(&body, &public(name)),
                "cost_atoms": (PRICE + PRICE_FEE).to_string(),
                "public_key": public(name),
            }))
        }
        Some("work") => {
            let name = given.unwrap_or("worker");
            let act = input.get("act").and_then(|v| v.as_str()).unwrap_or("poll");
            let mut body = json!({
                "act": act,
                "chain_id": input.get("chain_id").and_then(|v| v.as_str()).unwrap_or(CHAIN),
                "nonce": input.get("nonce").cloned().unwrap_or(json!(rand_hex(8))),
            });
            if act == "result" {
                body["attempt"] = input.get("attempt").cloned().unwrap_or(json!("at-1"));
                body["output"] = input.get("output").cloned().unwrap_or(json!("done"));
            }
            let message = seal(name, &body.to_string(), forge);
            Ok(
                json!({"message": message, "public_key": public(name), "path": format!("/work/{act}")}),
            )
        }
        _ => Err("sign request or sign work".into()),
    }
}
