//! Gradients that other nodes deliver.

use crate::ckpt;
use crate::client;
use crate::dht::Contact;
use crate::fault::{odd, on};
use crate::grpc::{Link, Status};
use crate::lz4;
use crate::pb::{Bad, Msg, Out};
use crate::state::{lock, st, ROUND};
use crate::util::sha256_hex;
use bytes::Bytes;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const LARGEST: usize = 256 << 20;

fn answer(accepted: bool, reason: &str, round: i64) -> Vec<u8> {
    let mut round = round;
    if on("refusal-round-zero") && !accepted {
        round = 0;
    }
    if on("refusals-count-rounds") && !accepted {
        let mut s = lock(&st().scratch);
        s.n += 1;
        round += s.n as i64;
    }
    if on("accepted-next-round") && accepted {
        round += 1;
    }
    let reason = if on("gossip-without-reason") {
        ""
    } else {
        reason
    };
    let flag = accepted || on("gossip-always-accepted");
    Out::default().flag(1, flag).text(2, reason).num(3, round).0
}

/// The names and the frames of the layers.
fn layers(m: &Msg) -> Result<Vec<(String, Bytes)>, Bad> {
    let mut out: Vec<(String, Bytes)> = Vec::new();
    for entry in m.all(7) {
        let e = Msg::read(&entry)?;
        let name = e.text(1)?;
        let mut data = e.bytes(2);
        if on("gradient-lossy-text") {
            data = String::from_utf8_lossy(&data).into_owned().into();
        }
        if on("gradient-utf8-needed") && std::str::from_utf8(&data).is_err() {
            return Err(Bad("a gradient is no UTF-8"));
        }
        out.retain(|(n, _)| *n != name);
        out.push((name, data));
    }
    Ok(out)
}

fn useless(m: &Msg, list: &[(String, Bytes)]) -> Result<Option<String>, Bad> {
    let round = m.int32(2);
    if round != ROUND {
        return Ok(Some(format!("round {round} is not the current one")));
    }
    let hash = m.text(3)?;
    let unchecked = on("model-hash-unchecked") || (on("model-hash-empty-ok") && hash.is_empty());
    let own = ckpt::kept()[0].hash.clone();
    let same = if on("model-hash-prefix") {
        hash.len() >= 8 && own.starts_with(&hash[..8])
    } else {
        hash == own
    };
    if !unchecked && !same {
        return Ok(Some("the gradient belongs to another model".into()));
    }
    let (loss, time) = (m.double(6), m.double(4));
    if !loss.is_finite() || !time.is_finite() {
        return Ok(Some("the loss or the time is not finite".into()));
    }
    if list.is_empty() {
        return Ok(Some("there is no layer in the gradient".into()));
    }
    for (name, data) in list {
        if name.is_empty() {
            return Ok(Some("a layer has no name".into()));
        }
        let Some(raw) = lz4::unframe(data, LARGEST) else {
            return Ok(Some(format!("the gradient of {name} is no LZ4 frame")));
        };
        if raw.is_empty() || raw.len() % 4 != 0 {
            return Ok(Some(format!("the gradient of {name} is no row of floats")));
        }
        let bad = raw
            .chunks_exact(4)
            .any(|c| !f32::from_le_bytes(c.try_into().unwrap()).is_finite());
        if bad {
            return Ok(Some(format!("the gradient of {name} is not finite")));
        }
    }
    Ok(None)
}

pub async fn gradient(raw: Bytes, link: &Link) -> Result<Vec<u8>, Status> {
    let m = Msg::read(&raw)?;
    let node = m.text(1)?;
    m.text(8)?;
    st().count.submitted.fetch_add(1, SeqCst);
    let list = layers(&m)?;
    let round = if on("round-of-sender") {
        m.int32(2)
    } else {
        ROUND
    };
    if on("gossip-ttl-zero-refused") && m.int32(9) == 0 {
        return Ok(answer(true, "", ROUND + 1));
    }
    if let Some(why) = useless(&m, &list)? {
        return Ok(answer(false, &why, round));
    }
    st().count.accepted.fetch_add(1, SeqCst);
    let ttl = m.int32(9);
    let key = sha256_hex(&[&raw[..raw.len().min(4096)], &raw.len().to_le_bytes()[..]].concat());
    let first = {
        let mut p = lock(&st().dht);
        if p.seen.contains(&key) {
            false
        } else {
            p.seen.push_back(key);
            if p.seen.len() > 500 {
                p.seen.pop_front();
            }
            true
        }
    };
    let go = (ttl > 0 || on("ttl-below-zero")) && (first || on("gossip-again"));
    if go && !odd("gossip-not-passed-on") {
        pass_on(&m, &node, ttl, &list, link)?;
    }
    Ok(answer(
        true,
        if odd("reason-when-accepted") {
            "used"
        } else {
            ""
        },
        round,
    ))
}

fn pass_on(
    m: &Msg,
    node: &str,
    ttl: i64,
    list: &[(String, Bytes)],
    link: &Link,
) -> Result<(), Bad> {
    let mut lower = ttl.min(16) - 1;
    if on("ttl-kept") {
        lower = ttl;
    }
    if on("ttl-reset") {
        lower = 3;
    }
    let model = if on("gossip-hash-dropped") {
        String::new()
    } else {
        m.text(3)?
    };
    let mut out = Out::default()
        .text(1, node)
        .num(2, m.int32(2))
        .text(3, &model);
    if on("gossip-time-ms") {
        out = out.num(4, (m.double(4) * 1000.0) as i64);
    } else {
        out = out.double(4, m.double(4));
    }
    out = out.num(5, m.int32(5)).double(6, m.double(6));
    for (name, data) in list {
        let e = if on("gossip-map-swapped") {
            Out::default().bytes(1, data).text(2, name)
        } else {
            Out::default().text(1, name).bytes(2, data)
        };
        out = out.part(7, &e.0);
    }
    let out = out.text(8, &m.text(8)?).num(9, lower);
    let on_link = lock(link).clone();
    let targets: Vec<(String, u16)> = {
        let d = lock(&st().dht);
        let named = |c: &Contact| {
            node.contains(&hex::encode(&c.id)) || node == format!("{}:{}", c.ip, c.port)
        };
        let known = d.contacts.iter().any(named);
        let mut list: Vec<&Contact> = d.contacts.iter().filter(|c| !c.fixed).collect();
        list.sort_by_key(|c| std::cmp::Reverse(c.seen));
        list.into_iter()
            .filter(|c| {
                let sender = if known {
                    named(c)
                } else {
                    on_link.contains(&c.id)
                };
                !sender || on("gossip-back-to-sender")
            })
            .take(8)
            .map(|c| (c.ip.clone(), c.port))
            .collect()
    };
    for (host, port) in targets {
        let out = out.clone();
        tokio::spawn(async move {
            let times = if on("gossip-sent-thrice") { 3 } else { 1 };
            for _ in 0..times {
                let _ = client::call(&host, port, "GossipGradient", &out.0).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    Ok(())
}
