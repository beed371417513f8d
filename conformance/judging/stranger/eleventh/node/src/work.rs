//! The worker protocol.

use crate::fault::on;
use crate::http::read_body;
use crate::native::problem;
use crate::sign::*;
use crate::state::{lock, st};
use crate::util::*;
use hyper::{Body, Request};
use serde_json::{json, Value};

pub async fn answer(path: &str, req: &mut Request<Body>) -> Reply {
    if on("work-result-missing") && path == "/work/result" {
        return problem(404, "nothing is here");
    }
    let raw = match read_body(req).await {
        Ok(r) => r,
        Err(r) => return r,
    };
    let Ok(v) = serde_json::from_slice::<Value>(&raw) else {
        if on("work-broken-500") {
            return problem(500, "the message could not be read");
        }
        return problem(400, "a message is JSON");
    };
    let act = path.trim_start_matches("/work/");
    if on("work-unsigned-poll") && act == "poll" && v.get("sig").is_none() {
        return json_reply(200, &json!({"work": Value::Null}));
    }
    let envelope = v.get("message").unwrap_or(&v);
    let trust = on("work-forged") || (on("work-forged-result") && act == "result");
    let (said, signer) = match open(envelope, trust) {
        Ok(x) => x,
        Err(m) if on("work-unwrap") => panic!("{m}"),
        Err(m) => return problem(if m.contains("belongs") { 403 } else { 400 }, &m),
    };
    let Ok(said) = serde_json::from_str::<Value>(&said) else {
        return problem(400, "nothing is said");
    };
    if said["act"] != json!(act) {
        return problem(400, "this message is for another path");
    }
    if said["chain_id"] != json!(CHAIN) {
        return problem(409, "this is another chain");
    }
    let mut c = lock(&st().chain);
    if act == "poll" {
        if c.attempts <= 0 {
            return json_reply(200, &json!({"work": Value::Null}));
        }
        c.attempts -= 1;
        let attempt = format!("at-{}", 60 - c.attempts);
        c.assigned.push((attempt.clone(), signer));
        let work = json!({"attempt": attempt, "stage": "distill", "input": "rows 0 to 3"});
        return json_reply(200, &json!({"work": work, "chain_id": CHAIN}));
    }
    let attempt = said["attempt"].as_str().unwrap_or("").to_string();
    let at = c
        .assigned
        .iter()
        .position(|a| a.0 == attempt && a.1 == signer);
    match at {
        Some(i) => {
            c.assigned.remove(i);
            json_reply(200, &json!({"taken": true, "attempt": attempt}))
        }
        None => problem(409, "this attempt is not yours"),
    }
}
