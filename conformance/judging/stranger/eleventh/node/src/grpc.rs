//! The gRPC server, by hand over HTTP/2.

use crate::fault::{odd, on};
use crate::state::st;
use crate::{ckpt, dht, gossip, ops, pipe};
use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use http::{HeaderMap, Response};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};

pub const MAX: usize = 100 * 1024 * 1024;

pub const NOT_FOUND: u8 = 5;
pub const INVALID: u8 = 3;
pub const EXHAUSTED: u8 = 8;
pub const UNIMPLEMENTED: u8 = 12;
pub const INTERNAL: u8 = 13;

/// A failed call: its status code and message.
pub struct Status(pub u8, pub String);

impl From<crate::pb::Bad> for Status {
    fn from(b: crate::pb::Bad) -> Status {
        let code = if on("garbage-internal") {
            INTERNAL
        } else {
            INVALID
        };
        Status(code, b.0.to_string())
    }
}

pub fn no(code: u8, text: impl Into<String>) -> Status {
    Status(code, text.into())
}

/// The node IDs that senders on this connection have given.
pub type Link = Arc<Mutex<Vec<Vec<u8>>>>;

pub async fn serve(port: u16) -> Result<(), String> {
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = TcpListener::bind(addr).await.map_err(|e| e.to_string())?;
    loop {
        if let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(connection(socket));
        }
    }
}

async fn connection(socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .max_concurrent_streams(if odd("eight-streams") { 8 } else { 200 });
    let Ok(mut conn) = builder.handshake::<_, Bytes>(socket).await else {
        return;
    };
    st().count.connections.fetch_add(1, SeqCst);
    let link: Link = Arc::default();
    while let Some(next) = conn.accept().await {
        let Ok((req, reply)) = next else { break };
        let link = link.clone();
        st().count.calls.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            if odd("slow-grpc") {
                tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            }
            call(req, reply, link).await;
        });
    }
    st().count.connections.fetch_sub(1, SeqCst);
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        if (0x20..0x7f).contains(&b) && b != b'%' {
            out.push(b as char);
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

fn trailers(status: &Status) -> HeaderMap {
    let mut t = HeaderMap::new();
    t.insert("grpc-status", status.0.to_string().parse().unwrap());
    if !status.1.is_empty() {
        t.insert("grpc-message", escape(&status.1).parse().unwrap());
    }
    t
}

fn head() -> Response<()> {
    let kind = if odd("grpc-proto-type") {
        "application/grpc+proto"
    } else {
        "application/grpc"
    };
    Response::builder()
        .header("content-type", kind)
        .body(())
        .unwrap()
}

fn refuse(mut reply: SendResponse<Bytes>, status: Status) {
    let mut r = head();
    if odd("errors-with-trailers") {
        if let Ok(mut s) = reply.send_response(r, false) {
            let _ = s.send_trailers(trailers(&status));
        }
        return;
    }
    r.headers_mut().extend(trailers(&status));
    let _ = reply.send_response(r, true);
}

fn framed(message: &[u8]) -> Bytes {
    let mut b = BytesMut::with_capacity(message.len() + 5);
    b.extend_from_slice(&[0]);
    b.extend_from_slice(&(message.len() as u32).to_be_bytes());
    b.extend_from_slice(message);
    st().count.sent.fetch_add(b.len() as u64, SeqCst);
    b.freeze()
}

/// Takes a whole message from the front of the buffer.
fn take(buf: &mut BytesMut) -> Result<Option<Bytes>, Status> {
    if buf.len() < 5 {
        return Ok(None);
    }
    if buf[0] != 0 {
        return Err(no(INVALID, "messages are not compressed here"));
    }
    let n = u32::from_be_bytes(buf[1..5].try_into().unwrap()) as usize;
    let cap = if on("grpc-four-mib") { 4 << 20 } else { MAX };
    if n > cap {
        return Err(no(EXHAUSTED, "the message is too large"));
    }
    if buf.len() < 5 + n {
        return Ok(None);
    }
    let _ = buf.split_to(5);
    Ok(Some(buf.split_to(n).freeze()))
}

/// Reads the rest of a call that is refused, up to three times the largest message.
async fn drain(body: &mut h2::RecvStream) {
    let mut left = 3 * MAX;
    while let Some(Ok(part)) = body.data().await {
        let _ = body.flow_control().release_capacity(part.len());
        left = left.saturating_sub(part.len());
        if left == 0 {
            return;
        }
    }
}

async fn call(req: http::Request<h2::RecvStream>, mut reply: SendResponse<Bytes>, link: Link) {
    let path = req.uri().path().to_string();
    let Some(name) = path.strip_prefix("/node.NodeService/") else {
        return refuse(reply, no(UNIMPLEMENTED, "no such service"));
    };
    let name = name.to_string();
    if (on("op-stake-missing") && name == "GossipStake")
        || (on("op-vote-missing") && name == "GossipValidationVote")
        || (on("op-shard-info-missing") && name == "GetShardInfo")
    {
        return refuse(reply, no(UNIMPLEMENTED, "no such operation"));
    }
    let mut body = req.into_body();
    let mut buf = BytesMut::new();
    if name == "StreamInference" {
        return stream(body, reply).await;
    }
    let mut message = None;
    loop {
        match take(&mut buf) {
            Ok(Some(m)) => {
                message = Some(m);
                if body.is_end_stream() {
                    break;
                }
            }
            Ok(None) => {}
            Err(s) => {
                drain(&mut body).await;
                return refuse(reply, s);
            }
        }
        match body.data().await {
            Some(Ok(part)) => {
                let _ = body.flow_control().release_capacity(part.len());
                st().count.received.fetch_add(part.len() as u64, SeqCst);
                buf.extend_from_slice(&part);
            }
            Some(Err(_)) => return,
            None => {
                if message.is_none() {
                    message = take(&mut buf).unwrap_or(None);
                }
                break;
            }
        }
    }
    let Some(message) = message else {
        return refuse(reply, no(INVALID, "a message is missing"));
    };
    let task = tokio::spawn(async move { dispatch(&name, message, link).await });
    let outcome = match task.await {
        Ok(o) => o,
        Err(_) => Err(no(INTERNAL, "the node failed over this call")),
    };
    match outcome {
        Ok(m) => {
            let Ok(mut s) = reply.send_response(head(), false) else {
                return;
            };
            let bytes = framed(&m);
            if on("unary-twice") && path.ends_with("DHTPing") {
                let _ = s.send_data(bytes.clone(), false);
            }
            let _ = s.send_data(bytes, false);
            let _ = s.send_trailers(trailers(&no(0, "")));
        }
        Err(status) => {
            if on("garbage-goaway") && status.0 == INVALID {
                reply.send_reset(h2::Reason::PROTOCOL_ERROR);
                return;
            }
            refuse(reply, status);
        }
    }
}

async fn dispatch(name: &str, m: Bytes, link: Link) -> Result<Vec<u8>, Status> {
    match name {
        "PipelineForward" => pipe::forward(m).await,
        "PipelineBackward" => pipe::backward(m).await,
        "GossipGradient" => gossip::gradient(m, &link).await,
        "GetWeights" => ckpt::weights(m),
        "GetCheckpoint" => ckpt::checkpoint(m),
        "GetCheckpointInfo" => ckpt::info(m),
        "DHTPing" | "DHTStore" | "DHTFindNode" | "DHTFindValue" => dht::answer(name, m, &link),
        _ => ops::answer(name, m),
    }
}

/// StreamInference: each message that comes is answered with the pieces of its text.
async fn stream(mut body: h2::RecvStream, mut reply: SendResponse<Bytes>) {
    let Ok(mut s) = reply.send_response(head(), false) else {
        return;
    };
    let mut buf = BytesMut::new();
    let mut taken = 0;
    let end = loop {
        match take(&mut buf) {
            Ok(Some(m)) => {
                taken += 1;
                if on("stream-one-message") && taken > 1 {
                    break no(UNIMPLEMENTED, "one message only");
                }
                match ops::pieces(&m) {
                    Ok(list) => {
                        for one in list {
                            let _ = s.send_data(framed(&one), false);
                        }
                    }
                    Err(status) => break status,
                }
                continue;
            }
            Ok(None) => {}
            Err(status) => break status,
        }
        match body.data().await {
            Some(Ok(part)) => {
                let _ = body.flow_control().release_capacity(part.len());
                buf.extend_from_slice(&part);
            }
            Some(Err(_)) => return,
            None => break no(0, ""),
        }
    };
    let _ = s.send_trailers(trailers(&end));
}
