//! The HTTP server: connections, bodies, routes.

use crate::fault::{odd, on};
use crate::state::{lock, st};
use crate::util::*;
use crate::{api, auth, infer, listing, native, patch, rpc, work};
use hyper::body::HttpBody;
use hyper::server::conn::AddrStream;
use hyper::service::{make_service_fn, service_fn};
use hyper::{header, Body, Method, Request, Server};
use serde_json::Value;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

/// What a connection remembers; only faults read it.
#[derive(Default)]
pub struct Conn {
    pub token: Mutex<Option<usize>>,
    pub refused: Mutex<bool>,
    pub first: Mutex<Option<usize>>,
}

struct Gauge;
impl Drop for Gauge {
    fn drop(&mut self) {
        st().count.connections.fetch_sub(1, SeqCst);
    }
}

const MAX_BODY: usize = 2 << 20;

pub async fn serve(port: u16) -> Result<(), String> {
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let make = make_service_fn(|_: &AddrStream| {
        let conn = Arc::new(Conn::default());
        st().count.connections.fetch_add(1, SeqCst);
        let gauge = Arc::new(Gauge);
        async move {
            Ok::<_, Infallible>(service_fn(move |req| {
                let (conn, gauge) = (conn.clone(), gauge.clone());
                async move {
                    let reply = answer(req, conn).await;
                    drop(gauge);
                    Ok::<_, Infallible>(reply)
                }
            }))
        }
    });
    let server = Server::try_bind(&addr)
        .map_err(|e| e.to_string())?
        .http1_only(true)
        .http1_keepalive(!odd("no-keepalive"))
        .http1_title_case_headers(odd("title-case-headers"))
        .serve(make);
    server.await.map_err(|e| e.to_string())
}

async fn answer(req: Request<Body>, conn: Arc<Conn>) -> Reply {
    if odd("slow-answers") {
        tokio::time::sleep(std::time::Duration::from_millis(180)).await;
    }
    let task = tokio::spawn(route(req, conn));
    let mut reply = match task.await {
        Ok(r) => r,
        Err(_) => fail(500, "CRASHED", "the node failed over this request", None),
    };
    if odd("close-after-errors") && reply.status().as_u16() >= 400 {
        reply
            .headers_mut()
            .insert(header::CONNECTION, "close".parse().unwrap());
    }
    let date = http_date().parse().unwrap();
    reply.headers_mut().insert(header::DATE, date);
    let n = reply.body().size_hint().lower();
    st().count.sent.fetch_add(n, SeqCst);
    reply
}

/// Reads a body, however it is framed.
pub async fn read_body(req: &mut Request<Body>) -> Result<Vec<u8>, Reply> {
    let mut all = Vec::new();
    let cap = if on("body-limit-16k") {
        16_384
    } else {
        MAX_BODY
    };
    if on("chunked-refused") && req.headers().get(header::CONTENT_LENGTH).is_none() {
        return Err(fail(411, "LENGTH", "a length is needed", None));
    }
    while let Some(part) = req.body_mut().data().await {
        let Ok(part) = part else {
            return Err(fail(400, "BROKEN_BODY", "the body broke off", None));
        };
        all.extend_from_slice(&part);
        if all.len() > cap {
            return Err(fail(413, "TOO_LARGE", "the body is too large", None));
        }
        if on("first-chunk-only") {
            break;
        }
    }
    st().count.received.fetch_add(all.len() as u64, SeqCst);
    Ok(all)
}

/// Reads a JSON object.
pub async fn read_json(req: &mut Request<Body>) -> Result<Value, Reply> {
    let kind = req
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("")
        .to_string();
    if on("charset-415") && kind != "application/json" {
        return Err(fail(415, "MEDIA_TYPE", "send application/json", None));
    }
    let raw = read_body(req).await?;
    let parsed = if on("body-lossy") {
        serde_json::from_str::<Value>(&String::from_utf8_lossy(&raw))
    } else if on("body-prefix") {
        let mut it = serde_json::Deserializer::from_slice(&raw).into_iter::<Value>();
        it.next().unwrap_or(Ok(Value::Object(Default::default())))
    } else {
        serde_json::from_slice::<Value>(&raw)
    };
    match parsed {
        Ok(v) if v.is_object() => Ok(v),
        Ok(_) => Err(fail(400, "BAD_BODY", "the body is no object", None)),
        Err(_) if on("bad-json-is-empty") => Ok(serde_json::json!({"prompt": "", "amount": 1})),
        Err(e) => {
            let status = if on("bad-json-500") { 500 } else { 400 };
            Err(fail(status, "BAD_BODY", &format!("no JSON: {e}"), None))
        }
    }
}

fn wrong_method(allow: &str) -> Reply {
    let mut r = fail(405, "WRONG_METHOD", "this path takes another method", None);
    r.headers_mut()
        .insert(header::ALLOW, allow.parse().unwrap());
    r
}

/// Answers, and reads what is left of the body, so that the connection can go on.
async fn route(mut req: Request<Body>, conn: Arc<Conn>) -> Reply {
    let reply = choose(&mut req, conn).await;
    let mut left = 2 * MAX_BODY;
    while let Some(Ok(part)) = req.body_mut().data().await {
        if part.len() > left {
            break;
        }
        left -= part.len();
    }
    reply
}

async fn choose(req: &mut Request<Body>, conn: Arc<Conn>) -> Reply {
    let path = req.uri().path().to_string();
    let query = req.uri().query().unwrap_or("").to_string();
    let method = req.method().clone();
    let get = method == Method::GET || method == Method::HEAD;
    if let Some(rest) = path.strip_prefix("/api/v1") {
        return node_api(rest, &query, &method, req, &conn).await;
    }
    let training = if on("training-under-v1") {
        "/api/v1/training/"
    } else {
        "/api/training/"
    };
    if let Some(rest) = path.strip_prefix(training) {
        if rest == "global" || rest == "verify" {
            if !get {
                return wrong_method("GET, HEAD");
            }
            if on("verify-off-404") && rest == "verify" && !crate::state::training_enabled() {
                return fail(404, "NO_ROUTE", "nothing is here", None);
            }
            return api::training(rest == "verify");
        }
    }
    match path.as_str() {
        "/rpc" if method == Method::POST => return rpc::answer(req).await,
        "/work/poll" | "/work/result" if method == Method::POST => {
            return work::answer(&path, req).await;
        }
        _ => {}
    }
    native::answer(&path, &query, &method)
}

async fn node_api(
    rest: &str,
    query: &str,
    method: &Method,
    req: &mut Request<Body>,
    conn: &Arc<Conn>,
) -> Reply {
    let get = *method == Method::GET || *method == Method::HEAD;
    let allow = match rest {
        "/status"
        | "/metrics"
        | "/health"
        | "/network"
        | "/wallet/balance"
        | "/wallet/transactions"
        | "/peers"
        | "/layers"
        | "/proofs" => "GET, HEAD",
        "/inference" | "/wallet/send" | "/wallet/stake" | "/wallet/unstake" => "POST",
        "/config" => "GET, HEAD, PATCH",
        _ if on("unknown-path-200") => {
            return fail(200, "NO_ROUTE", "nothing is here", None);
        }
        _ => return fail(404, "NO_ROUTE", "nothing is here", None),
    };
    let fits = match allow {
        "POST" => *method == Method::POST,
        "GET, HEAD" => get,
        _ => get || *method == Method::PATCH || (on("config-put") && *method == Method::PUT),
    };
    if on("config-put") && *method == Method::PATCH {
        return wrong_method("GET, PUT");
    }
    if !fits {
        return wrong_method(allow);
    }
    match rest {
        "/status" => return api::status(),
        "/metrics" => return api::metrics(),
        "/health" => return api::health(),
        "/network" => return api::network(),
        _ => {}
    }
    let mut early = None;
    if on("json-before-token") && *method == Method::POST {
        match read_json(req).await {
            Ok(v) => early = Some(v),
            Err(r) => return r,
        }
    }
    if on("query-before-token") {
        if let Some(r) = listing::bad_query(query) {
            return r;
        }
    }
    if on("patch-before-token") && *method == Method::PATCH {
        if let Ok(v) = read_json(req).await {
            let r = patch::change(&v);
            if auth::check(req, rest, query, conn).is_ok() {
                return r;
            }
        }
    }
    let me = match auth::check(req, rest, query, conn) {
        Ok(me) => me,
        Err(r) => return r,
    };
    if get {
        let me = auth::current(me).await;
        return match rest {
            "/wallet/balance" => listing::balance(me),
            "/wallet/transactions" => listing::transactions(me, query),
            "/peers" => api::peers(),
            "/layers" => api::layers(),
            "/proofs" => listing::proofs(query),
            _ => json_reply(200, &lock(&st().config)),
        };
    }
    let body = match early {
        Some(v) => v,
        None => match read_json(req).await {
            Ok(v) => v,
            Err(r) => return r,
        },
    };
    match rest {
        "/inference" => infer::answer(me, &body).await,
        "/config" => patch::change(&body),
        _ => listing::move_money(me, rest, &body).await,
    }
}
