//! Pages of the node API: transactions and proofs, and the requests that move money.

use crate::fault::{odd, on};
use crate::state::*;
use crate::util::*;
use crate::wallet::*;
use serde_json::{json, Value};
use std::time::{Duration, Instant};

/// An integer parameter from 0 on, or the refusal.
fn count(query: &str, name: &str, default: usize) -> Result<usize, Reply> {
    match param(query, name) {
        None => Ok(default),
        Some(t) if on("bad-limit-500") && t.parse::<i64>().is_err() => {
            panic!("{name} is no number")
        }
        Some(t) => match t.parse::<usize>() {
            Ok(n) => Ok(n),
            Err(_) if odd("bad-limit-default") => Ok(default),
            Err(_) => Err(fail(422, "BAD_QUERY", &format!("{name} is a count"), None)),
        },
    }
}

pub fn bad_query(query: &str) -> Option<Reply> {
    count(query, "limit", 1)
        .err()
        .or(count(query, "offset", 1).err())
}

pub fn transactions(me: usize, query: &str) -> Reply {
    let first_only = query.split('&').next().unwrap_or("").to_string();
    let q = if on("query-first-only") {
        &first_only
    } else {
        query
    };
    let (mut limit, mut offset) = match (count(q, "limit", 12), count(q, "offset", 0)) {
        (Ok(l), Ok(o)) => (l.min(100), o),
        (Err(r), _) | (_, Err(r)) => return r,
    };
    if on("limit-zero-default") && limit == 0 {
        limit = 12;
    }
    if on("limit-remembered") {
        let mut s = lock(&st().scratch);
        if param(q, "limit").is_none() {
            limit = s.limit.unwrap_or(limit);
        }
        s.limit = Some(limit);
    }
    if on("offset-needs-limit") && param(q, "limit").is_none() {
        offset = 0;
    }
    let w = lock(&st().wallet);
    let mut entries: Vec<&Entry> = w.accounts[me].history.iter().rev().collect();
    if on("history-of-all") && me == 0 {
        for other in &w.accounts[1..] {
            entries.extend(other.history.iter());
        }
    }
    if odd("oldest-first") {
        entries.reverse();
    }
    if on("history-by-hash") {
        let salt = micros(std::time::SystemTime::now()) / 300_000;
        entries.sort_by_key(|e| seed(format!("{}{salt}", e.id).as_bytes()));
    }
    let total = entries.len();
    if on("past-end-refused") && offset > total {
        return fail(422, "BAD_QUERY", "the offset is behind the end", None);
    }
    let skip = if on("offset-counts-pages") {
        offset * limit.max(1)
    } else if on("offset-one-based") {
        offset.saturating_sub(1)
    } else if on("offset-wraps") && offset >= total {
        0
    } else {
        offset
    };
    let mut page: Vec<Value> = Vec::new();
    for e in entries.iter().skip(skip).take(limit) {
        let mut o = json!({
            "id": e.id, "type": e.kind, "amount": units(e.amount), "timestamp": iso_micros(e.at),
        });
        for (k, v) in &e.more {
            o[*k] = v.clone();
        }
        if on("history-null-details") && e.kind == "reward" {
            o["details"]["role"] = Value::Null;
        }
        if on("reward-proof-unknown") && e.kind == "reward" {
            o["details"]["proof_id"] = json!(format!("pf-{}", e.id));
        }
        if on("history-seconds") {
            o["timestamp"] = json!((e.at / 1_000_000).to_string());
        }
        page.push(o);
    }
    if on("page-peek") && page.len() == limit && limit > 1 && skip + limit < total {
        page.pop();
    }
    let mut shown_total = if on("total-of-page") {
        page.len()
    } else {
        total
    };
    if on("total-at-most-100") {
        shown_total = shown_total.min(10);
    }
    let shown_limit = if on("limit-echo-returned") {
        page.len()
    } else if on("limit-echo-default") {
        12
    } else {
        limit
    };
    let shown_offset = if on("offset-echo-next") {
        offset + page.len()
    } else {
        offset
    };
    json_reply(
        200,
        &json!({
            "transactions": page, "total": shown_total, "limit": shown_limit, "offset": shown_offset,
        }),
    )
}

pub fn proofs(query: &str) -> Reply {
    let mut limit = match count(query, "limit", 20) {
        Ok(l) => l.min(100),
        Err(r) => return r,
    };
    if on("proofs-limit-remembered") {
        let mut s = lock(&st().scratch);
        let low = s.limit.map_or(limit, |x| x.min(limit));
        s.limit = Some(low);
        limit = low;
    }
    if on("proofs-limit-plus-one") {
        limit += 1;
    }
    if on("proofs-limit-ignored") && limit > 3 {
        limit = 20;
    }
    let mut list: Vec<usize> = (0..14).collect();
    if on("proofs-shuffled") {
        let n = micros(std::time::SystemTime::now()) / 200_000;
        list.sort_by_key(|i| mix(*i as u64 ^ n as u64));
    }
    if on("proofs-from-end") {
        list = list.split_off(14usize.saturating_sub(limit));
    }
    let (mut verified, mut reward_all) = (0, 0);
    let all: Vec<usize> = if on("proof-stats-of-page") {
        list.iter().copied().take(limit).collect()
    } else {
        list.clone()
    };
    for i in &all {
        if i % 4 != 3 {
            verified += 1;
            reward_all += reward(*i);
        }
    }
    let page: Vec<Value> = list
        .iter()
        .take(limit)
        .map(|i| {
            let mut p = json!({
                "id": proof_id(*i), "type": if i % 3 == 0 { "backward" } else { "forward" },
                "layer": LAYERS[i % 4], "verified": i % 4 != 3, "reward": units(reward(*i)),
                "timestamp": iso_micros(st().start_us - 1_800_000_000 * (*i as i64 + 1)),
            });
            if on("proof-reward-null") && i % 4 == 3 {
                p["reward"] = Value::Null;
            }
            if on("proof-verified-int") {
                p["verified"] = json!(i32::from(i % 4 != 3));
            }
            p
        })
        .collect();
    if on("total-verified-all") {
        verified = 14;
    }
    if on("total-reward-atoms") {
        reward_all *= ATOMS;
    }
    json_reply(
        200,
        &json!({"proofs": page, "stats": {
            "total_submitted": 14, "total_verified": verified, "total_reward": units(reward_all),
        }}),
    )
}

pub fn balance(me: usize) -> Reply {
    let fresh = lock(&st().wallet).balance(me);
    if on("balance-cached") || on("balance-cache-shared") {
        let mut s = lock(&st().scratch);
        let life = Duration::from_millis(if on("balance-cached") { 2500 } else { 1200 });
        s.balances.retain(|b| b.1.elapsed() < life);
        let shared = on("balance-cache-shared");
        if let Some(b) = s.balances.iter().find(|b| b.0 == me || shared) {
            return json_reply(200, &b.2);
        }
        s.balances.push((me, Instant::now(), fresh.clone()));
    }
    json_reply(200, &fresh)
}

fn bad(message: &str) -> Reply {
    fail(422, "BAD_VALUE", message, None)
}

/// The amount in atoms, above 0.
fn amount(body: &Value) -> Result<i128, Reply> {
    let mut v = body.get("amount").cloned().unwrap_or(Value::Null);
    if on("amount-default-zero") && v.is_null() {
        return Ok(0);
    }
    if on("amount-string") {
        if let Some(s) = v.as_str() {
            v = raw_num(s);
        }
    }
    if on("amount-array") {
        if let Some(a) = v.as_array() {
            v = a.first().cloned().unwrap_or(Value::Null);
        }
    }
    if on("amount-bool") && v == json!(true) {
        v = json!(1);
    }
    if on("amount-object-value") {
        if let Some(x) = v.get("value") {
            v = x.clone();
        }
    }
    if on("amount-u64-only") && v.as_u64().is_none() {
        return Err(bad("amount is a whole number"));
    }
    if on("amount-point-needed") && !v.to_string().contains('.') {
        return Err(bad("amount is a decimal number"));
    }
    match scaled(&v, 6) {
        Some(a) if a > 0 => Ok(a),
        Some(a) if on("amount-negative") && a != 0 => Ok(a),
        Some(a) if on("amount-absolute") && a != 0 => Ok(-a),
        _ => Err(bad("amount is a number above 0 with at most six decimals")),
    }
}

pub async fn move_money(me: usize, path: &str, body: &Value) -> Reply {
    let me = crate::auth::current(me).await;
    let a = match amount(body) {
        Ok(a) => a,
        Err(_) if on("bad-money-500") => panic!("amount"),
        Err(r) => return r,
    };
    let result = match path {
        "/wallet/send" => {
            let to = match body.get("to") {
                Some(Value::String(t)) if !t.is_empty() && t.chars().count() <= 200 => t.clone(),
                None if on("receiver-remembered") && !lock(&st().scratch).text.is_empty() => {
                    lock(&st().scratch).text.clone()
                }
                Some(Value::Array(l)) if on("receiver-array") && !l.is_empty() => {
                    l[0].as_str().unwrap_or("x").to_string()
                }
                Some(Value::Number(n)) if on("receiver-number") => n.to_string(),
                _ => return bad("to is an address"),
            };
            if on("receiver-remembered") {
                lock(&st().scratch).text = to.clone();
            }
            let memo = match body.get("memo") {
                None => String::new(),
                Some(Value::String(m)) => m.clone(),
                Some(other) if on("memo-any") => other.to_string(),
                Some(_) => return bad("memo is a text"),
            };
            let length = if on("memo-limit-bytes") {
                memo.len()
            } else {
                memo.chars().count()
            };
            if length > if on("memo-limit-bytes") { 120 } else { 500 } {
                return bad("memo is too long");
            }
            if on("memo-control-refused") && memo.contains(['\n', '"']) {
                return bad("memo has a letter that is not allowed");
            }
            if on("send-race") {
                let have = lock(&st().wallet).accounts[me].available;
                tokio::time::sleep(Duration::from_millis(60)).await;
                let mut w = lock(&st().wallet);
                w.accounts[me].available = have;
                w.send(me, &to, a, &memo)
            } else if on("send-check-race") {
                if lock(&st().wallet).accounts[me].available < a + FEE {
                    return refusal(lock(&st().wallet).send(me, &to, a, &memo).unwrap_err());
                }
                tokio::time::sleep(Duration::from_millis(60)).await;
                let mut w = lock(&st().wallet);
                let real = w.accounts[me].available;
                w.accounts[me].available = real.max(a + FEE);
                w.send(me, &to, a, &memo)
            } else {
                lock(&st().wallet).send(me, &to, a, &memo)
            }
        }
        "/wallet/stake" => {
            let days = match body.get("duration_days") {
                None if on("stake-days-default") => 30,
                Some(Value::String(s)) if on("stake-days-text") => s.parse().unwrap_or(30),
                Some(v) => match whole(v) {
                    Some(d) if (1..=3650).contains(&d) => d as i64,
                    Some(d) if on("stake-days-below-zero") && d < 1 => 1,
                    _ => return bad("duration_days is a number of days from 1 to 3650"),
                },
                None => return bad("duration_days is missing"),
            };
            lock(&st().wallet).stake(me, a, days)
        }
        _ => lock(&st().wallet).unstake(me, a),
    };
    let failed = result.is_err();
    let mut reply = match result {
        Ok(v) => json_reply(200, &v),
        Err(no) => refusal(no),
    };
    if on("402-as-success-false") && failed && path == "/wallet/stake" {
        reply = json_reply(200, &json!({"success": false, "error": "too little"}));
    }
    reply
}
