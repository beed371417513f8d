//! Pages of blocks and of training updates.

use crate::chain::*;
use crate::fault::{odd, on};
use crate::native::problem;
use crate::sign::*;
use crate::state::ROUND;
use crate::util::*;
use serde_json::{json, Value};

/// limit and before of a page, or a refusal.
fn page(query: &str, default: usize, most: usize) -> Result<(usize, i64), Reply> {
    let limit = match param(query, "limit") {
        None => default,
        Some(t) => match t.parse::<usize>() {
            Ok(n) => n,
            Err(_) => return Err(problem(400, "limit is a count")),
        },
    };
    let before = match param(query, "before") {
        None => i64::MAX,
        Some(t) => match t.parse::<i64>() {
            Ok(n) => n,
            Err(_) => return Err(problem(400, "before is a number")),
        },
    };
    Ok((limit.min(most), before))
}

pub fn training(query: &str) -> Reply {
    let (mut limit, before) = match page(query, 8, 40) {
        Ok(x) => x,
        Err(r) => return r,
    };
    if on("training-limit-at-least-5") {
        limit = limit.max(5);
    }
    let mut rounds: Vec<i64> = (1..=ROUND).rev().collect();
    if odd("training-ascending") {
        rounds.reverse();
    }
    if on("training-oldest-page") && before == i64::MAX {
        rounds = (1..=limit as i64).rev().collect();
    }
    let fits = |r: i64| {
        if on("training-before-text") {
            r.to_string() < before.to_string()
        } else if on("training-before-ignored") {
            true
        } else if on("training-before-skips") && before != i64::MAX {
            r < before - 1
        } else {
            r < before
        }
    };
    let mut kept: Vec<i64> = rounds.into_iter().filter(|r| fits(*r)).collect();
    if odd("training-ascending") {
        let n = kept.len().saturating_sub(limit);
        kept = kept.split_off(n);
    }
    let list: Vec<Value> = kept
        .into_iter()
        .take(limit)
        .enumerate()
        .map(|(i, r)| {
            let n = if on("training-root-of-row") {
                i as i64
            } else {
                r
            };
            json!({
                "round": r, "loss": format!("{:.10}", 4.5 - 0.104 * r as f64),
                "training_root": root("training", n), "serving_root": root("serving", r),
                "accepted_height": r * 2,
            })
        })
        .collect();
    let name = "updates";
    json_reply(
        200,
        &json!({"chain_id": CHAIN, name: list, "index": {"reached_round": ROUND, "error": Value::Null}}),
    )
}

fn results(b: &Block) -> Vec<Value> {
    b.txs
        .iter()
        .map(|t| json!({"transaction": t.hash, "request_id": t.request_id, "code": 0, "used_atoms": TOTAL_PRICE.to_string()}))
        .collect()
}

fn block_row(b: &Block) -> Value {
    json!({
        "height": b.height, "hash": b.hash, "parent_hash": b.parent, "time": iso_micros(b.at),
        "results": results(b),
    })
}

pub fn blocks(c: &Chain, query: &str) -> Reply {
    let (mut limit, before) = match page(query, 9, 60) {
        Ok(x) => x,
        Err(r) => return r,
    };
    if on("blocks-limit-plus-one") && limit > 1 {
        limit += 1;
    }
    if on("blocks-limit-ignored") && before != i64::MAX {
        limit = 9;
    }
    if on("blocks-at-most-5") {
        limit = limit.min(5);
    }
    let fits = |h: i64| {
        if on("blocks-before-above") {
            h <= before.saturating_add(1)
        } else if on("blocks-before-skips") && before != i64::MAX && limit < 4 {
            h < before - 1
        } else if on("blocks-before-u8") && before != i64::MAX {
            h < i64::from(before as u8 & 31)
        } else {
            h < before
        }
    };
    let mut rows: Vec<Value> = Vec::new();
    for b in c.blocks.iter().rev().filter(|b| fits(b.height)).take(limit) {
        let mut row = block_row(b);
        if on("list-results-null") {
            row["results"] = Value::Null;
        }
        if on("list-hash-of-row") {
            row["hash"] = json!(sha256_hex(row.to_string().as_bytes()));
        }
        if on("list-skips-full") && !b.txs.is_empty() && limit > 3 {
            continue;
        }
        if on("list-request-id-of-hash") {
            for r in row["results"].as_array_mut().unwrap() {
                r["request_id"] = r["transaction"].clone();
            }
        }
        rows.push(row);
    }
    if on("blocks-oldest-page") && before == i64::MAX {
        rows = c.blocks.iter().take(limit).map(block_row).collect();
    }
    if odd("blocks-ascending") {
        rows.reverse();
    }
    json_reply(200, &json!({"chain_id": CHAIN, "blocks": rows}))
}

pub fn one_block(c: &Chain, h: &str) -> Reply {
    let Ok(mut height) = h.parse::<i64>() else {
        return problem(400, "a height is a number");
    };
    if on("block-above-clamped") {
        height = height.min(c.height());
    }
    if on("block-last-twenty") && height <= c.height() - 20 {
        return problem(404, "this block has been pruned");
    }
    if on("block-u8") {
        height &= 31;
    }
    let Some(b) = c.block(height) else {
        return problem(404, "no block has this height");
    };
    let mut v = block_row(b);
    let txs: Vec<Value> = b
        .txs
        .iter()
        .map(|t| {
            let mut body = t.body.clone();
            if on("block-prompt-cut") {
                let p: String = body["prompt"]
                    .as_str()
                    .unwrap_or("")
                    .chars()
                    .take(8)
                    .collect();
                body["prompt"] = json!(p);
            }
            if on("block-prompt-hidden") {
                body.as_object_mut().unwrap().remove("prompt");
            }
            json!({"hash": t.hash, "request_id": t.request_id, "signer": t.signer, "request": body})
        })
        .collect();
    v["transactions"] = json!(txs);
    if on("block-tx-hash-is-id") {
        for t in v["transactions"].as_array_mut().unwrap() {
            t["hash"] = t["request_id"].clone();
        }
    }
    if on("block-hash-of-next") {
        if let Some(n) = c.block(height + 1) {
            v["hash"] = json!(n.hash);
        }
    }
    if on("block-height-index") {
        v["height"] = json!(height - 1);
    }
    json_reply(200, &v)
}

pub fn validators(c: &Chain, query: &str) -> Reply {
    let mut list = Vec::new();
    for (owner, power, bond) in [
        (PROVIDER, 61, 12_000_000_000),
        (QUIET, 30, 6_000_000_000),
        ("val-ochre", 9, 900_000_000i128),
    ] {
        let mut v = json!({"owner": owner, "power": power, "bond_atoms": bond.to_string()});
        if on("validator-bond-null") && power < 10 {
            v["bond_atoms"] = Value::Null;
        }
        if on("validator-bond-number") {
            v["bond_atoms"] = json!(bond as i64);
        }
        list.push(v);
    }
    let from = param(query, "from")
        .and_then(|p| p.parse().ok())
        .unwrap_or(0);
    let many = param(query, "many")
        .and_then(|p| p.parse().ok())
        .unwrap_or(25);
    let rows: Vec<Value> = list.into_iter().skip(from).take(many).collect();
    json_reply(
        200,
        &json!({"chain_id": CHAIN, "height": c.height(), "validators": rows}),
    )
}
