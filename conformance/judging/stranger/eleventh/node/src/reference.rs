//! What was kept of the earlier reference chain.

use crate::fault::on;
use crate::native::problem;
use crate::sign::OTHER_CHAIN;
use crate::state::{lock, st};
use crate::util::*;
use hyper::{header, Method};
use serde_json::{json, Value};

fn row(h: i64) -> Value {
    json!({
        "chain_id": OTHER_CHAIN, "height": h, "time": iso_micros(1_735_689_600_000_000 + h * 3_000_000),
        "hash": sha256_hex(format!("{OTHER_CHAIN} {h}").as_bytes()),
    })
}

pub fn answer(rest: &str, _query: &str, method: &Method) -> Reply {
    let get = *method == Method::GET || *method == Method::HEAD;
    if !get {
        if on("reference-delete") && *method == Method::DELETE {
            lock(&st().scratch).flag = true;
            return json_reply(200, &json!({"removed": rest}));
        }
        if on("reference-put") && *method == Method::PUT {
            return json_reply(200, &json!({"stored": rest}));
        }
        if on("reference-post-as-get") && *method == Method::POST {
            return answer(rest, _query, &Method::GET);
        }
        let mut r = problem(405, "the earlier chain is only read");
        r.headers_mut()
            .insert(header::ALLOW, "GET, HEAD".parse().unwrap());
        return r;
    }
    if lock(&st().scratch).flag && on("reference-delete") {
        return problem(404, "nothing was kept");
    }
    if let Some(h) = rest.strip_prefix("/block/") {
        return match h.parse::<i64>() {
            Ok(h) if (1..=7).contains(&h) => json_reply(200, &row(h)),
            _ => problem(404, "that block was not kept"),
        };
    }
    match rest {
        "" | "/" => json_reply(
            200,
            &json!({"chain_id": OTHER_CHAIN, "views": ["status", "blocks", "block/<height>", "model"]}),
        ),
        "/status" | "/network" => json_reply(
            200,
            &json!({"chain_id": OTHER_CHAIN, "version": "0.3", "height": 7, "closed": true}),
        ),
        "/blocks" => {
            let mut list: Vec<Value> = (1..=7).rev().map(row).collect();
            if on("reference-present-blocks") {
                let c = lock(&st().chain);
                list = c
                    .blocks
                    .iter()
                    .rev()
                    .take(7)
                    .map(|b| json!({"height": b.height, "hash": b.hash}))
                    .collect();
            }
            json_reply(200, &json!({"chain_id": OTHER_CHAIN, "blocks": list}))
        }
        "/model" => json_reply(
            200,
            &json!({"chain_id": OTHER_CHAIN, "parameters": 640_000}),
        ),
        _ if on("reference-html") => text_reply(200, "text/html", "<html></html>".into()),
        _ => problem(404, "that view was not kept"),
    }
}
