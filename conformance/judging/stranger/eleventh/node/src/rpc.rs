//! POST /rpc.

use crate::chain::*;
use crate::fault::{odd, on};
use crate::http::read_body;
use crate::native::{job_view, problem};
use crate::sign::*;
use crate::state::{lock, st};
use crate::util::*;
use hyper::{Body, Request};
use serde_json::{json, Value};

type Outcome = Result<Value, (i64, String)>;

pub async fn answer(req: &mut Request<Body>) -> Reply {
    let raw = match read_body(req).await {
        Ok(r) => r,
        Err(r) => return r,
    };
    let Ok(call) = serde_json::from_slice::<Value>(&raw) else {
        if on("rpc-broken-500") {
            return problem(500, "broken");
        }
        return envelope(&Value::Null, Err((-32700, "no JSON".into())));
    };
    let id = call.get("id").cloned().unwrap_or(Value::Null);
    let Some(method) = call.get("method").and_then(|m| m.as_str()) else {
        return envelope(
            &id,
            Err((-32600, "a call is an object with a method".into())),
        );
    };
    let none = json!({});
    let params = call.get("params").unwrap_or(&none);
    let method = if on("rpc-method-any-case") {
        method.to_lowercase()
    } else {
        method.to_string()
    };
    envelope(&id, run(&method, params))
}

fn envelope(id: &Value, outcome: Outcome) -> Reply {
    let mut v = json!({"jsonrpc": "2.0", "id": id});
    match outcome {
        Ok(r) => v["result"] = r,
        Err((code, message)) => v["error"] = json!({"code": code, "message": message}),
    }
    if odd("rpc-error-400") && v.get("error").is_some() {
        return json_reply(400, &v);
    }
    json_reply(200, &v)
}

/// The height of the parameters; the tip without one.
fn height(c: &Chain, params: &Value) -> Result<i64, (i64, String)> {
    let given = match params {
        Value::Array(a) => a.first(),
        _ => params.get("height"),
    };
    let wrong = (-32602, "height is that of a block".to_string());
    let h = match given {
        None | Some(Value::Null) => c.height(),
        Some(Value::String(s)) => s.parse().map_err(|_| wrong.clone())?,
        Some(v) => whole(v).ok_or(wrong.clone())? as i64,
    };
    if c.block(h).is_none() {
        return Err(wrong);
    }
    Ok(h)
}

fn header(b: &Block) -> Value {
    json!({"chain_id": CHAIN, "height": b.height.to_string(), "time": iso_micros(b.at), "last_block_id": {"hash": b.parent}})
}

fn run(method: &str, params: &Value) -> Outcome {
    let mut c = lock(&st().chain);
    match method {
        "status" => {
            let b = c.blocks.last().unwrap();
            let chain = if on("rpc-status-chain") {
                "quartzite"
            } else {
                CHAIN
            };
            Ok(json!({
                "node_info": {"network": chain, "version": "0.4.0"},
                "sync_info": {"latest_block_height": b.height.to_string(), "latest_block_hash": b.hash, "catching_up": false},
            }))
        }
        "block" => {
            let mut h = height(&c, params)?;
            if on("rpc-block-newest") {
                h = c.height();
            }
            if on("rpc-block-needs-height") && params.get("height").is_none() {
                return Err((-32602, "height is missing".into()));
            }
            let b = c.block(h).unwrap();
            let mut hash = b.hash.clone();
            if on("rpc-block-parent-hash") {
                hash = b.parent.clone();
            }
            let txs: Vec<&String> = b.txs.iter().map(|t| &t.hash).collect();
            Ok(
                json!({"block_id": {"hash": hash}, "block": {"header": header(b), "data": {"txs": txs}}}),
            )
        }
        "validators" => {
            if on("rpc-validators-no-height") && params.get("height").is_some() {
                return Err((-32602, "no parameters are taken".into()));
            }
            let h = height(&c, params)?;
            Ok(
                json!({"block_height": h.to_string(), "total": "3", "validators": [
                    {"owner": PROVIDER, "power": 61}, {"owner": QUIET, "power": 30}, {"owner": "val-ochre", "power": 9},
                ]}),
            )
        }
        "abci_query" => query(&c, params),
        "broadcast_tx_sync" => {
            let tx = match params {
                Value::Array(a) => a.first(),
                _ => params.get("tx"),
            };
            let Some(tx) = tx.and_then(|t| t.as_str()) else {
                return Err((-32602, "tx is missing".into()));
            };
            if on("rpc-broadcast-missing") {
                return Err((-32601, "there is no such method".into()));
            }
            let raw = base64::decode(tx).map_err(|_| (-32602, "tx is no base64".to_string()))?;
            if raw.len() > 65_536 {
                return Err((-32602, "the transaction is too long".into()));
            }
            match c.submit(&raw) {
                Ok(hash) => Ok(json!({"code": 0, "hash": hash, "log": ""})),
                Err((code, why)) if on("refused-tx-code-zero") => Ok(
                    json!({"code": 0, "hash": sha256_hex(&raw), "log": format!("{code}: {why}")}),
                ),
                Err((code, why)) if odd("rpc-refusal-in-result") => {
                    Ok(json!({"code": code, "hash": sha256_hex(&raw), "log": why}))
                }
                Err((code, why)) => Err((-32050 - code, why)),
            }
        }
        "net_info" if on("rpc-net-info") => Ok(json!({"listening": true, "peers": []})),
        "unsafe_flush_mempool" | "dump_consensus_state" if on("rpc-admin") => Ok(json!({})),
        "broadcast_tx_commit" if on("rpc-commit") => Ok(json!({"height": c.height().to_string()})),
        m if on("rpc-unknown-null") && !m.is_empty() => Ok(Value::Null),
        _ => Err((-32601, "there is no such method".into())),
    }
}

fn query(c: &Chain, params: &Value) -> Outcome {
    if on("rpc-query-missing") {
        return Err((-32601, "there is no such method".into()));
    }
    let path = params.get("path").and_then(|p| p.as_str()).unwrap_or("");
    let data = params.get("data").and_then(|p| p.as_str()).unwrap_or("");
    let data = hex::decode(data).unwrap_or_else(|_| data.as_bytes().to_vec());
    let data = String::from_utf8_lossy(&data).into_owned();
    let value = match path {
        "/job" | "job" => match c.jobs.get(&data) {
            Some(j) => job_view(j, &data),
            None => {
                return Ok(
                    json!({"response": {"code": 1, "log": "no such job", "height": c.height().to_string()}}),
                )
            }
        },
        "/jobs" | "jobs" => {
            if on("rpc-jobs-missing") {
                return Err((-32602, "there is no such path".into()));
            }
            let ids: Vec<&String> = c.jobs.keys().collect();
            json!({"jobs": ids, "price": PRICE as i64})
        }
        _ => return Err((-32602, "there is no such path".into())),
    };
    let value = base64::encode(value.to_string());
    Ok(json!({"response": {"code": 0, "value": value, "height": c.height().to_string()}}))
}
