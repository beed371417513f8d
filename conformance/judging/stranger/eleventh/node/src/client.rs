//! Calls to peers.

use crate::fault::{odd, on};
use crate::grpc::{no, Status};
use crate::state::st;
use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

pub const UNAVAILABLE: u8 = 14;
const DEADLINE: u8 = 4;

/// The host and the port in a URL or an address.
pub fn host_port(url: &str) -> Option<(String, u16)> {
    let rest = url.split_once("://").map_or(url, |x| x.1);
    let rest = rest.split(['/', '?', '#']).next()?;
    let (host, port) = rest.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port: u16 = port.parse().ok()?;
    (!host.is_empty() && port > 0).then(|| (host.to_string(), port))
}

/// Connects to the gRPC port of a peer: its HTTP port plus 1000, or else the port itself.
async fn connect(host: &str, port: u16) -> Result<(TcpStream, u16), Status> {
    let mut ports = Vec::new();
    if !on("peer-http-port") {
        ports.extend(port.checked_add(1000));
    }
    ports.push(port);
    for p in ports {
        let to = TcpStream::connect((host, p));
        if let Ok(Ok(s)) = timeout(Duration::from_millis(1500), to).await {
            return Ok((s, p));
        }
    }
    Err(no(UNAVAILABLE, "the peer is not reached"))
}

async fn once(host: &str, port: u16, op: &str, message: &[u8]) -> Result<Bytes, Status> {
    let (socket, port) = connect(host, port).await?;
    let broken = |_| no(UNAVAILABLE, "the connection broke");
    let (send, conn) = h2::client::Builder::new()
        .initial_window_size(4 << 20)
        .handshake::<_, Bytes>(socket)
        .await
        .map_err(broken)?;
    let task = tokio::spawn(async move {
        let _ = conn.await;
    });
    let result = exchange(send, host, port, op, message).await;
    sleep(Duration::from_millis(20)).await;
    task.abort();
    result
}

async fn exchange(
    send: h2::client::SendRequest<Bytes>,
    host: &str,
    port: u16,
    op: &str,
    message: &[u8],
) -> Result<Bytes, Status> {
    let broken = |_| no(UNAVAILABLE, "the connection broke");
    let mut send = send.ready().await.map_err(broken)?;
    let mut req = Request::builder()
        .method("POST")
        .uri(format!("http://{host}:{port}/node.NodeService/{op}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "eleventh/0.7");
    if !on("call-without-deadline") {
        let t = if on("call-deadline-ms-as-s") {
            "5000S"
        } else if odd("deadline-eight") {
            "8S"
        } else {
            "5000m"
        };
        req = req.header("grpc-timeout", t);
    }
    let (answer, mut body) = send
        .send_request(req.body(()).unwrap(), false)
        .map_err(broken)?;
    let mut b = BytesMut::with_capacity(message.len() + 5);
    b.put_u8(0);
    b.put_u32(message.len() as u32);
    b.extend_from_slice(message);
    st().count.sent.fetch_add(b.len() as u64, SeqCst);
    body.send_data(b.freeze(), true).map_err(broken)?;
    let answer = answer.await.map_err(broken)?;
    let (parts, mut body) = answer.into_parts();
    let mut all = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(broken)?;
        let _ = body.flow_control().release_capacity(part.len());
        all.extend_from_slice(&part);
    }
    let end = body.trailers().await.map_err(broken)?.unwrap_or_default();
    let status = end
        .get("grpc-status")
        .or(parts.headers.get("grpc-status"))
        .and_then(|v| v.to_str().ok())
        .and_then(|s| s.parse::<u8>().ok())
        .unwrap_or(2);
    if status != 0 {
        return Err(no(status, "the peer has refused"));
    }
    if all.len() < 5 {
        return Err(no(13, "no message came back"));
    }
    Ok(all.split_off(5).freeze())
}

/// Calls a peer, up to three times where this can help.
pub async fn call(host: &str, port: u16, op: &str, message: &[u8]) -> Result<Bytes, Status> {
    let mut pause = Duration::from_millis(250);
    let mut tries = 0;
    loop {
        tries += 1;
        let one = once(host, port, op, message);
        let result = match timeout(Duration::from_secs(6), one).await {
            Ok(r) => r,
            Err(_) => Err(no(DEADLINE, "the peer took too long")),
        };
        let Err(status) = result else { return result };
        let again = match status.0 {
            UNAVAILABLE | 8 | 13 | DEADLINE => true,
            5 => on("retry-not-found"),
            _ => false,
        };
        let most = if on("retry-six-times") { 6 } else { 3 };
        if !again || tries >= most {
            return Err(status);
        }
        if !on("retry-without-pause") {
            sleep(if on("pause-five-seconds") {
                Duration::from_secs(5)
            } else {
                pause
            })
            .await;
        }
        pause *= 3;
    }
}
