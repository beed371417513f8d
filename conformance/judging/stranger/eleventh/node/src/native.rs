//! The native API for readers.

use crate::chain::*;
use crate::fault::{odd, on};
use crate::pages::{blocks, one_block, training, validators};
use crate::published::*;
use crate::sign::*;
use crate::state::{lock, st, ROUND};
use crate::util::*;
use hyper::{header, Method};
use serde_json::{json, Value};

/// The error of the native API.
pub fn problem(status: u16, text: &str) -> Reply {
    json_reply(status, &json!({"problem": text, "status": status}))
}

fn atoms(n: i128) -> Value {
    if on("atoms-numbers") {
        return raw_num(&n.to_string());
    }
    if on("atoms-in-units") {
        return json!(units(n).to_string());
    }
    if on("atoms-exponent") {
        return json!(format!("{:e}", n as f64));
    }
    json!(n.to_string())
}

fn redirect(to: &str) -> Reply {
    let mut r = text_reply(303, "text/plain", format!("see {to}\n"));
    if odd("redirect-308") {
        *r.status_mut() = hyper::StatusCode::PERMANENT_REDIRECT;
    }
    r.headers_mut()
        .insert(header::LOCATION, to.parse().unwrap());
    r
}

const GONE: [&str; 5] = [
    "/register",
    "/api/register",
    "/api/account/register",
    "/api/auth/register",
    "/auth/register",
];
const LOGIN: [&str; 6] = [
    "/login",
    "/signup",
    "/api/login",
    "/api/signup",
    "/auth/login",
    "/auth/signup",
];

pub fn answer(path: &str, query: &str, method: &Method) -> Reply {
    let get = *method == Method::GET || *method == Method::HEAD;
    if GONE.contains(&path) {
        if on("register-post-created") && *method == Method::POST {
            return json_reply(201, &json!({"registered": true}));
        }
        if on("register-404") {
            return problem(404, "nothing is here");
        }
        if on("register-get-only-410") && *method == Method::POST {
            return problem(405, "another method");
        }
        return problem(410, "accounts are no longer registered; keys are enough");
    }
    if LOGIN.contains(&path) {
        if on("login-gone") {
            return problem(410, "gone");
        }
        let to = if on("login-to-root") { "/" } else { "/join" };
        if on("signup-page") && path.ends_with("signup") {
            return json_reply(200, &json!({"signup": "closed"}));
        }
        if on("login-200-location") {
            let mut r = redirect(to);
            *r.status_mut() = hyper::StatusCode::OK;
            return r;
        }
        return redirect(to);
    }
    if let Some(rest) = path.strip_prefix("/reference/v03/api") {
        return crate::reference::answer(rest, query, method);
    }
    if path == "/rpc" || path == "/work/poll" || path == "/work/result" {
        let mut r = problem(405, "this path takes POST");
        r.headers_mut()
            .insert(header::ALLOW, "POST".parse().unwrap());
        return r;
    }
    let reply = read(path, query);
    if !get && reply.status() != 404 {
        let mut r = problem(405, "this path is only read");
        r.headers_mut()
            .insert(header::ALLOW, "GET, HEAD".parse().unwrap());
        return r;
    }
    reply
}

fn read(path: &str, query: &str) -> Reply {
    let c = lock(&st().chain);
    if let Some(h) = path.strip_prefix("/api/block/") {
        return one_block(&c, h);
    }
    if let Some(d) = path.strip_prefix("/artifacts/sha256/") {
        return artifact(d);
    }
    match path {
        "/healthz" => {
            let mut v = json!({"ready": true, "state": "following", "height": c.height()});
            if on("healthz-stalled-200") {
                v = json!({"ready": false, "state": "stalled", "status": "stalled", "height": c.height()});
            }
            let status = if on("healthz-204") { 204 } else { 200 };
            if on("healthz-500") {
                return json_reply(500, &v);
            }
            json_reply(status, &v)
        }
        "/api/network" => network(&c),
        "/api/model" => model(),
        "/api/model/checkpoint.json" => checkpoint(),
        "/api/training" => training(query),
        "/api/blocks" => blocks(&c, query),
        "/api/account" => account(&c, query),
        "/api/validators" => validators(&c, query),
        "/api/inference" => info(&c),
        "/api/inference/request" => request(&c, query),
        "/network/genesis.json" => text_reply(200, "application/json", genesis()),
        "/network/dataset.json" => {
            let mut t = dataset();
            if on("dataset-reserialised") {
                t = serde_json::from_str::<Value>(&t).unwrap().to_string();
            }
            text_reply(200, "application/json", t)
        }
        "/work/status" => json_reply(
            200,
            &json!({
                "chain_id": CHAIN, "sponsor": Value::Null,
                "stages": [{"stage": "distill", "available": true}, {"stage": "audit", "available": false}],
                "attempts_remaining": c.attempts,
            }),
        ),
        "/join" => json_reply(200, &json!({"join": "make a key pair and ask for atoms"})),
        _ => problem(404, "nothing is here"),
    }
}

fn network(c: &Chain) -> Reply {
    let tip = c.blocks.last().unwrap();
    let mut pair = (tip.height, tip.hash.clone());
    if on("tip-hash-is-parent") {
        pair.1 = tip.parent.clone();
    }
    if on("tip-hash-cached") {
        let mut s = lock(&st().scratch);
        if s.text.is_empty() {
            s.text = pair.1.clone();
        }
        pair.1 = s.text.clone();
    }
    if on("tip-height-plus-one") {
        pair.0 += 1;
    }
    let supply: i128 = c.accounts.values().map(|a| a.spendable + a.locked).sum();
    let mut v = json!({
        "chain_id": CHAIN, "genesis_hash": genesis_hash(), "height": pair.0,
        "tip": {"height": pair.0, "hash": pair.1}, "training_round": ROUND,
        "supply_atoms": atoms(supply), "ready": true, "edition": "0.4.0",
    });
    if on("network-round-behind") {
        v["training_round"] = json!(ROUND - 1);
    }
    if on("network-genesis-other") {
        v["genesis_hash"] = json!(sha256_hex(b"genesis"));
    }
    if on("supply-u32") {
        v["supply_atoms"] = raw_num(&(supply as u32).to_string());
    }
    json_reply(200, &v)
}

fn model() -> Reply {
    let mut v = json!({
        "chain_id": CHAIN, "frozen_parameters": 1_400_000, "trained_parameters": 82_624,
        "revision": "q2-r17", "training_root": root("training", ROUND),
        "serving_root": serving_root(), "losses": {"training": "2.71875", "held_out": "2.90625"},
        "execution_profile": "f32-sequential",
    });
    if on("model-serving-root-newest") {
        v["serving_root"] = json!(root("serving", ROUND));
    }
    json_reply(200, &v)
}

fn checkpoint() -> Reply {
    let mut r = root("training", ROUND);
    let mut round = ROUND;
    if on("checkpoint-root-older") {
        r = root("training", ROUND - 1);
    }
    if on("checkpoint-round-older") {
        round -= 1;
    }
    if on("checkpoint-root-case") {
        r = r.to_uppercase();
    }
    let chain = if on("checkpoint-old-chain") {
        OTHER_CHAIN
    } else {
        CHAIN
    };
    json_reply(
        200,
        &json!({
            "chain_id": chain, "genesis_hash": genesis_hash(), "round": round, "root": r,
            "adapter": {"sha256": sha256_hex(&adapter()), "bytes": adapter().len()},
            "served_round": 16,
        }),
    )
}

fn account(c: &Chain, query: &str) -> Reply {
    let Some(key) = param(query, "public_key") else {
        return problem(400, "public_key is missing");
    };
    let mut key = key.to_lowercase();
    let right = key.len() == 66
        && hex::decode(&key).is_ok()
        && (key.starts_with("02") || key.starts_with("03"));
    if !right {
        return problem(400, "a compressed key has 33 bytes in hexadecimal");
    }
    if on("account-02-only") && key.starts_with("03") {
        return problem(400, "not on the curve");
    }
    if on("account-sticky") {
        let mut s = lock(&st().scratch);
        if s.list.is_empty() {
            s.list.push(key.clone());
        }
        key = s.list[0].clone();
    }
    let a = if on("account-by-x") {
        let hit = c.accounts.iter().find(|(k, _)| k[2..] == key[2..]);
        hit.map(|(_, a)| a.clone()).unwrap_or_default()
    } else if on("account-by-prefix") {
        let hit = c.accounts.iter().find(|(k, _)| k[..2] == key[..2]);
        hit.map(|(_, a)| a.clone()).unwrap_or_default()
    } else {
        c.accounts.get(&key).cloned().unwrap_or_default()
    };
    let mut nonce = a.nonce;
    if on("account-last-nonce") {
        nonce -= 1;
    }
    let liquid = if on("liquid-without-locked") {
        a.spendable
    } else {
        a.spendable + a.locked
    };
    json_reply(
        200,
        &json!({
            "chain_id": CHAIN, "public_key": key, "spendable_atoms": atoms(a.spendable),
            "locked_atoms": atoms(a.locked), "liquid_total_atoms": atoms(liquid), "next_nonce": nonce,
        }),
    )
}

fn info(c: &Chain) -> Reply {
    let mut queue = c
        .jobs
        .values()
        .filter(|j| j.phase == Phase::Pending)
        .count();
    if on("queue-counts-all") {
        queue = c.jobs.len();
    }
    let mut serving = serving_root();
    if on("info-root-is-training") {
        serving = root("training", ROUND);
    }
    let mut v = json!({
        "chain_id": CHAIN, "genesis_hash": genesis_hash(), "serving_root": serving,
        "default_provider": PROVIDER, "heartbeat": {"state": "fresh", "height": c.height()},
        "price_atoms": atoms(PRICE), "fee_atoms": atoms(PRICE_FEE), "queue_length": queue,
    });
    if on("info-chain-other") {
        v["chain_id"] = json!("quartzite-1");
    }
    json_reply(200, &v)
}

fn request(c: &Chain, query: &str) -> Reply {
    let Some(id) = param(query, "id") else {
        return problem(400, "id is missing");
    };
    record(c, &id)
}

pub fn record(c: &Chain, id: &str) -> Reply {
    let mut id = id.to_string();
    if on("request-sticky") {
        let mut s = lock(&st().scratch);
        if s.list.is_empty() && c.jobs.contains_key(&id) {
            s.list.push(id.clone());
        }
        id = s.list.first().cloned().unwrap_or(id);
    }
    let found = if on("request-by-prefix") {
        c.jobs
            .iter()
            .find(|(k, _)| k.starts_with(id.get(..2).unwrap_or("-")))
    } else {
        c.jobs.get_key_value(&id)
    };
    let Some((key, job)) = found else {
        if on("request-unknown-pending") {
            return json_reply(200, &json!({"request_id": id, "state": "pending"}));
        }
        return problem(404, "no request has this id");
    };
    if on("pending-hidden") && job.phase == Phase::Pending {
        return problem(404, "no request has this id");
    }
    if on("completed-read-once") && job.phase != Phase::Pending {
        let mut s = lock(&st().scratch);
        if s.list.contains(key) {
            return problem(404, "no request has this id");
        }
        s.list.push(key.clone());
    }
    let mut v = job_view(job, key);
    if on("response-salted") && v.get("response").is_some() {
        v["response"]["text"] = json!(format!("{} {}", v["response"]["text"], rand_hex(2)));
    }
    if on("response-null") && v.get("response").is_some() {
        v["response"] = Value::Null;
    }
    if on("refund-null") && v.get("refund").is_some() {
        v.as_object_mut().unwrap().remove("refund");
    }
    if on("request-prompt-of-first") {
        if let Some(j) = c.jobs.values().next() {
            v["prompt"] = j.body["prompt"].clone();
        }
    }
    json_reply(200, &v)
}

pub fn job_view(job: &Job, id: &str) -> Value {
    let mut v = json!({
        "request_id": id, "transaction": job.tx_hash, "prompt": job.body["prompt"],
        "provider": job.body["provider"], "max_tokens": job.body["max_tokens"],
        "expires_height": job.body["expires_height"], "price_atoms": PRICE.to_string(),
        "account": job.account,
    });
    match &job.phase {
        Phase::Pending => v["state"] = json!("pending"),
        Phase::Completed { text, height } => {
            v["state"] = json!("completed");
            v["response"] = json!({"text": text, "height": height});
        }
        Phase::Expired { height } => {
            v["state"] = json!(if on("expired-called-pending") {
                "pending"
            } else {
                "expired"
            });
            v["refund"] = json!({"atoms": TOTAL_PRICE.to_string(), "height": height});
        }
    }
    v
}
