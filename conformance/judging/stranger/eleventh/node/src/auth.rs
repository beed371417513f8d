//! Bearer tokens.

use crate::fault::{odd, on};
use crate::http::Conn;
use crate::state::{lock, st};
use crate::util::*;
use crate::wallet::EXPIRED;
use hyper::{header, Body, Method, Request};
use serde_json::json;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

fn refuse(conn: &Conn, path: &str) -> Reply {
    *lock(&conn.refused) = true;
    if on("lockout") {
        lock(&st().scratch).bad_tokens.push(Instant::now());
    }
    if on("wallet-403") && path.starts_with("/wallet/s") {
        return fail(403, "FORBIDDEN", "this token may not move money", None);
    }
    if on("401-plain") {
        return text_reply(401, "text/plain", "unauthorized".into());
    }
    let details = on("401-details").then(|| json!({"scheme": "Bearer"}));
    let code = if on("401-other-code") && path == "/inference" {
        "INVALID_TOKEN"
    } else {
        "UNAUTHORIZED"
    };
    let mut r = fail(401, code, "a valid token is needed here", details);
    if odd("www-authenticate") {
        let h = "Bearer realm=\"node\"".parse().unwrap();
        r.headers_mut().insert(header::WWW_AUTHENTICATE, h);
    }
    r
}

fn matches(known: &str, given: &str) -> bool {
    if on("token-prefix") {
        return given.len() >= 8 && known.starts_with(given);
    }
    if on("token-begins") {
        return given.starts_with(known);
    }
    if on("token-case") {
        return known.eq_ignore_ascii_case(given);
    }
    if on("token-length-zip") {
        return known.len() == given.len()
            && known
                .bytes()
                .zip(given.bytes())
                .take(12)
                .all(|(a, b)| a == b);
    }
    known == given
}

/// The number of the account, or the refusal.
pub fn check(req: &Request<Body>, path: &str, query: &str, conn: &Conn) -> Result<usize, Reply> {
    if on("head-open") && req.method() == Method::HEAD {
        return Ok(0);
    }
    if on("proofs-query-open") && path == "/proofs" && !query.is_empty() {
        return Ok(0);
    }
    if on("busy-open") && st().count.running.load(SeqCst) > 0 {
        return Ok(0);
    }
    if on("poisoned-connection") && *lock(&conn.refused) {
        return Err(refuse(conn, path));
    }
    if on("lockout") {
        let mut s = lock(&st().scratch);
        s.bad_tokens
            .retain(|t| t.elapsed() < Duration::from_secs(4));
        if s.bad_tokens.len() >= 3 {
            drop(s);
            return Err(refuse(conn, path));
        }
    }
    let given = req
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok());
    let mut token = match given.and_then(|g| g.split_once(' ')) {
        Some((scheme, t)) => {
            let right = if odd("any-case-bearer") {
                scheme.eq_ignore_ascii_case("bearer")
            } else {
                scheme == "Bearer"
            };
            if right || on("any-scheme") {
                Some(t.trim_start().to_string())
            } else {
                None
            }
        }
        None if on("bare-token") => given.map(|g| g.to_string()),
        None => None,
    };
    if on("token-in-query") && token.is_none() {
        token = param(query, "access_token").or(param(query, "token"));
    }
    if given.is_none() {
        if on("connection-token") {
            if let Some(me) = *lock(&conn.token) {
                return Ok(me);
            }
        }
        if on("connection-token-posts") && req.method() != Method::GET {
            if let Some(me) = *lock(&conn.token) {
                return Ok(me);
            }
        }
        if on("missing-header-reads") && req.method() == Method::GET && path != "/wallet/balance" {
            return Ok(0);
        }
    }
    let Some(token) = token else {
        return Err(refuse(conn, path));
    };
    if token == EXPIRED {
        let reads = req.method() == Method::GET;
        if (on("expired-reads") && reads) || (on("expired-moves") && path == "/wallet/send") {
            return Ok(0);
        }
        if on("expired-403") {
            return Err(fail(403, "EXPIRED", "the token has expired", None));
        }
    }
    let found = {
        let w = lock(&st().wallet);
        w.accounts.iter().position(|a| matches(a.token, &token))
    };
    let Some(mut me) = found else {
        return Err(refuse(conn, path));
    };
    if on("second-reads-only") && me == 1 && req.method() == Method::PATCH {
        return Err(refuse(conn, path));
    }
    if on("first-token-stays") {
        let mut first = lock(&conn.first);
        me = *first.get_or_insert(me);
    }
    *lock(&conn.token) = Some(me);
    lock(&st().scratch).token = Some(me);
    Ok(me)
}

/// The account of the request. A fault takes it from a shared variable after a pause.
pub async fn current(me: usize) -> usize {
    if on("shared-account") {
        tokio::time::sleep(Duration::from_millis(40)).await;
        return lock(&st().scratch).token.unwrap_or(me);
    }
    me
}
