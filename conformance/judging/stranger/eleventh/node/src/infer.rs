//! POST /inference, as one result or as a stream of events.

use crate::fault::{odd, on};
use crate::params;
use crate::state::*;
use crate::text::{generate, Made, Params};
use crate::util::*;
use crate::wallet::*;
use hyper::Body;
use serde_json::{json, Value};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const LIMIT: i64 = 16;

/// Counts a generation for as long as it runs.
pub struct Running;
impl Drop for Running {
    fn drop(&mut self) {
        if !on("running-leaks") {
            st().count.running.fetch_sub(1, SeqCst);
        }
    }
}

pub fn cost(made: &Made) -> i128 {
    made.prompt_tokens as i128 * 10 + made.pieces.len() as i128 * 2_000
}

fn pace(made: &Made) -> Duration {
    let each = if odd("slow-tokens") { 12_000 } else { 1_800 };
    Duration::from_micros(each * made.pieces.len() as u64 + 500)
}

fn count(made: &Made, p: &Params) {
    let c = &st().count;
    if on("count-racy") {
        let (r, t) = (c.requests.load(SeqCst), c.tokens.load(SeqCst));
        std::thread::sleep(Duration::from_millis(30));
        c.requests.store(r + 1, SeqCst);
        c.tokens.store(t + made.pieces.len() as i64, SeqCst);
        return;
    }
    if !(on("stream-not-counted") && p.stream) {
        c.requests.fetch_add(1, SeqCst);
    }
    if on("stream-counted-twice") && p.stream {
        c.requests.fetch_add(1, SeqCst);
    }
    let n = if on("count-max-tokens") {
        p.max_tokens
    } else if on("count-total-tokens") {
        made.pieces.len() + made.prompt_tokens
    } else if on("stream-tokens-not-counted") && p.stream {
        0
    } else {
        made.pieces.len()
    };
    c.tokens.fetch_add(n as i64, SeqCst);
    lock(&st().recent).push_back(Instant::now());
}

fn usage(made: &Made, p: &Params, streamed: bool) -> Value {
    let n = made.pieces.len();
    let mut c = n;
    let mut t = made.prompt_tokens;
    if on("usage-max-tokens") {
        c = p.max_tokens;
    }
    if on("stream-usage-plus-done") && streamed {
        c += 1;
    }
    if on("stream-prompt-bytes") && streamed {
        t = p.prompt.len();
    }
    let mut total = t + c;
    if on("usage-total-completion") {
        total = c;
    }
    if on("stream-total-short") && streamed {
        total = t + c.saturating_sub(1);
    }
    json!({"prompt_tokens": t, "completion_tokens": c, "total_tokens": total})
}

pub async fn answer(me: usize, body: &Value) -> Reply {
    let began = Instant::now();
    let mut p = match params::parse(body) {
        Ok(p) => p,
        Err(m) => {
            let streams = body.get("stream") == Some(&json!(true));
            if on("stream-refusal-event") && streams {
                let t = format!(
                    "data: {}\n\n",
                    json!({"error": {"code": "BAD_VALUE", "message": m}})
                );
                return text_reply(200, "text/event-stream", t);
            }
            let status = if on("bad-param-500") { 500 } else { 422 };
            return fail(status, "BAD_VALUE", &m, None);
        }
    };
    let n = st().count.running.fetch_add(1, SeqCst);
    let guard = Running;
    if n >= LIMIT {
        let details = if on("retry-after-ms") {
            json!({"retry_after": 1000})
        } else if on("retry-after-text") {
            json!({"retry_after": "1"})
        } else {
            json!({"retry_after": 1})
        };
        let status = if on("429-is-503") { 503 } else { 429 };
        return fail(
            status,
            "RATE_LIMITED",
            "too many generations at once",
            Some(details),
        );
    }
    if on("shared-prompt") {
        lock(&st().scratch).prompt = p.prompt.clone();
        tokio::time::sleep(Duration::from_millis(50)).await;
        p.prompt = lock(&st().scratch).prompt.clone();
    }
    let made = generate(&p);
    let price = cost(&made);
    let taken = if on("charge-max-tokens") {
        made.prompt_tokens as i128 * 10 + p.max_tokens as i128 * 2_000
    } else if on("charge-tenth") {
        price / 10
    } else if on("stream-not-charged") && p.stream {
        0
    } else if on("stream-charged-each") && p.stream {
        let n = made.pieces.len() as i128;
        n * (n + 1) / 2 * 2_000
    } else {
        price
    };
    let payer = if on("charge-first-account") { 0 } else { me };
    let payer_free = on("second-not-charged") && me == 1;
    let charged = if payer_free {
        Ok(())
    } else {
        lock(&st().wallet).charge(payer, taken)
    };
    if let Err(no) = charged {
        if on("short-stream-event") && p.stream {
            let t = format!(
                "data: {}\n\n",
                json!({"error": {"code": "INSUFFICIENT_BALANCE", "message": "too little"}})
            );
            return text_reply(200, "text/event-stream", t);
        }
        if on("short-truncates") {
            return json_reply(200, &result(&p, &made, price, began, began));
        }
        if on("short-403") {
            return fail(403, "FORBIDDEN", "pay first", None);
        }
        return refusal(no);
    }
    let started = Instant::now();
    if p.stream {
        count(&made, &p);
        return stream(p, made, started, guard);
    }
    tokio::time::sleep(pace(&made)).await;
    count(&made, &p);
    let reply = json_reply(200, &result(&p, &made, price, began, started));
    note_latency(began.elapsed().as_secs_f64() * 1000.0);
    drop(guard);
    reply
}

fn result(p: &Params, made: &Made, price: i128, began: Instant, started: Instant) -> Value {
    let ms = |d: Duration| d.as_micros() as f64 / 1000.0;
    let queue = ms(started.duration_since(began));
    let work = ms(started.elapsed());
    let mut timing = json!({
        "queue_ms": queue, "inference_ms": work, "total_ms": ms(began.elapsed()).max(queue + work),
    });
    if on("total-is-queue-only") {
        timing["total_ms"] = json!(queue);
    }
    if on("total-in-us") {
        timing["total_ms"] = json!(ms(began.elapsed()) * 1000.0);
    }
    if on("timing-zero-total") {
        timing["total_ms"] = json!(began.elapsed().as_secs());
    }
    let id = if on("id-from-prompt") {
        format!("gen-{}", &sha256_hex(p.prompt.as_bytes())[..12])
    } else {
        format!("gen-{}", rand_hex(9))
    };
    let mut text = made.text();
    if on("text-empty-long") && p.max_tokens > 30 && made.reason == "length" {
        text = String::new();
    }
    if on("text-trim") {
        text = text.trim().to_string();
    }
    let mut tokens = made.pieces.len();
    if on("tokens-generated-chars") {
        tokens = text.chars().count();
    }
    let mut out = json!({
        "id": id, "text": text, "tokens_generated": tokens, "finish_reason": made.reason,
        "usage": usage(made, p, false),
        "cost": {"amount": units(price), "currency": CURRENCY}, "timing": timing,
    });
    if on("finish-null-on-length") && made.reason == "length" {
        out["finish_reason"] = Value::Null;
    }
    if on("cost-text") {
        out["cost"]["amount"] = json!(out["cost"]["amount"].to_string());
    }
    if on("cost-negative") {
        out["cost"]["amount"] = units(-price);
    }
    if on("currency-by-size") && made.pieces.len() > 20 {
        out["cost"]["currency"] = json!("mOPAL");
    }
    if odd("result-extra") {
        out["model"] = json!("toy-40");
        out["usage"]["cached_tokens"] = json!(0);
    }
    out
}

fn stream(p: Params, made: Made, started: Instant, guard: Running) -> Reply {
    let (mut tx, body) = Body::channel();
    tokio::spawn(async move {
        let held = guard;
        let step = pace(&made) / (made.pieces.len().max(1) as u32);
        let mut events: Vec<(String, usize)> = Vec::new();
        for (i, piece) in made.pieces.iter().enumerate() {
            let i = if on("index-from-one") { i + 1 } else { i };
            events.push((piece.clone(), i));
        }
        if odd("events-of-three") {
            let all: Vec<String> = made.pieces.chunks(3).map(|c| c.concat()).collect();
            events = all.into_iter().enumerate().map(|(i, t)| (t, i)).collect();
        }
        if on("stream-drops-tail") && events.len() > 40 {
            events.truncate(40);
        }
        for (piece, index) in &events {
            tokio::time::sleep(step).await;
            let piece = if on("piece-trim-start") {
                piece.trim_start()
            } else {
                piece
            };
            let index = if on("index-u4") { index % 16 } else { *index };
            if on("stream-skips-blank") && piece.trim().is_empty() {
                continue;
            }
            let mut e = json!({"token": piece, "index": index});
            if odd("event-extra") {
                e["at"] = json!(now_iso());
            }
            let mut line = format!("data: {e}\n\n");
            if on("event-raw-newline") {
                line = line.replace("\\n", "\n");
            }
            if on("event-one-newline") {
                line = format!("data: {e}\n");
            }
            if odd("crlf-events") {
                line = format!("data: {e}\r\n\r\n");
            }
            if tx.send_data(line.into()).await.is_err() {
                return;
            }
        }
        let mut e = json!({"token": "[DONE]", "finish_reason": made.reason, "usage": usage(&made, &p, true)});
        if on("done-raw") {
            let _ = tx.send_data("data: [DONE]\n\n".into()).await;
            return;
        }
        if on("final-without-usage-on-stop") && made.reason == "stop" {
            e.as_object_mut().unwrap().remove("usage");
        }
        note_latency(started.elapsed().as_secs_f64() * 1000.0);
        if !on("running-until-close") {
            drop(held);
        }
        let mut line = format!("data: {e}\n\n");
        if on("done-twice") {
            line = line.repeat(2);
        }
        if on("final-no-blank") {
            line.pop();
        }
        if on("event-after-final") {
            line.push_str("data: {\"token\":\"\",\"index\":-1}\n\n");
        }
        if odd("crlf-events") {
            line = line.replace('\n', "\r\n");
        }
        let _ = tx.send_data(line.into()).await;
        if on("stream-stays-open") {
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
    });
    let kind = if on("stream-octets") {
        "application/octet-stream"
    } else if odd("event-charset") {
        "text/event-stream; charset=utf-8"
    } else {
        "text/event-stream"
    };
    hyper::Response::builder()
        .header("content-type", kind)
        .header("cache-control", "no-cache")
        .body(body)
        .unwrap()
}
