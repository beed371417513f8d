//! The distributed hash table.

use crate::fault::{odd, on};
use crate::grpc::{no, Link, Status, INVALID};
use crate::pb::{Bad, Msg, Out};
use crate::state::{lock, st};
use crate::util::sha1;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

pub struct Contact {
    pub id: Vec<u8>,
    pub ip: String,
    pub port: u16,
    pub seen: Instant,
    pub fixed: bool,
}

pub struct Dht {
    pub contacts: Vec<Contact>,
    pub values: BTreeMap<Vec<u8>, String>,
    pub seen: VecDeque<String>,
}

const K: usize = 7;
const MOST: usize = 5000;

impl Dht {
    pub fn new() -> Dht {
        let mut contacts = Vec::new();
        for i in 0..3u16 {
            contacts.push(Contact {
                id: sha1(&[0x51, i as u8]),
                ip: format!("198.51.100.{}", 11 + i),
                port: 8000 + i * 10,
                seen: Instant::now(),
                fixed: true,
            });
        }
        Dht {
            contacts,
            values: BTreeMap::new(),
            seen: VecDeque::new(),
        }
    }

    fn closest(&self, target: &[u8], asker: &[u8]) -> Vec<&Contact> {
        let mut list: Vec<&Contact> = self.contacts.iter().collect();
        if on("distance-two-bytes") {
            list.sort_by_key(|c| {
                let d: Vec<u8> =
                    c.id.iter()
                        .zip(target)
                        .take(2)
                        .map(|(a, b)| a ^ b)
                        .collect();
                (d, std::cmp::Reverse(c.seen))
            });
        } else if on("distance-absolute") {
            let n = |b: &[u8]| i128::from_be_bytes([&[0], &b[..15]].concat().try_into().unwrap());
            list.sort_by_key(|c| (n(&c.id) - n(target)).abs());
        } else if on("distance-newest") {
            list.sort_by_key(|c| std::cmp::Reverse(c.seen));
        } else if on("distance-signed") {
            list.sort_by_key(|c| {
                let x = |i: usize| (c.id[i] ^ target[i]) as i8;
                (0..20).map(x).collect::<Vec<i8>>()
            });
        } else {
            list.sort_by_key(|c| {
                c.id.iter()
                    .zip(target)
                    .map(|(a, b)| a ^ b)
                    .collect::<Vec<u8>>()
            });
        }
        if on("exact-left-out") {
            list.retain(|c| c.id != target);
        }
        if on("search-first-twenty") {
            let old: Vec<&Vec<u8>> = self.contacts.iter().take(6).map(|c| &c.id).collect();
            list.retain(|c| old.contains(&&c.id));
        }
        if odd("asker-left-out") {
            list.retain(|c| c.id != asker || c.id == target);
        }
        list.truncate(if odd("k-twelve") { 12 } else { K });
        if odd("far-first") {
            list.reverse();
        }
        list
    }
}

fn node(id: &[u8], ip: &str, port: i64) -> Vec<u8> {
    Out::default().bytes(1, id).text(2, ip).num(3, port).0
}

fn responder() -> Vec<u8> {
    let id = if on("responder-id-hex") {
        hex::encode(&st().dht_id).into_bytes()
    } else if on("responder-id-32") {
        crate::util::sha256(&st().dht_id)
    } else {
        st().dht_id.clone()
    };
    let mut port = i64::from(st().port);
    if odd("responder-grpc-port") {
        port += 1000;
    }
    if on("responder-port-i16") {
        port = i64::from(port as u16 as i16) - 40_000;
    }
    if on("responder-port-zero") {
        port = 0;
    }
    node(
        &id,
        if on("responder-no-ip") {
            ""
        } else {
            "127.0.0.1"
        },
        port,
    )
}

/// Remembers who asks, if it can be reached.
fn learn(m: &Msg, link: &Link) -> Result<Vec<u8>, Bad> {
    let s = m.inner(1)?;
    let (id, ip, port) = (s.bytes(1).to_vec(), s.text(2)?, s.int32(3));
    if id.len() == 20 {
        let mut l = lock(link);
        if !l.contains(&id) {
            l.push(id.clone());
        }
    }
    let plain = !ip.is_empty() && ip.chars().all(|c| c.is_ascii_graphic());
    let reachable = (plain || (on("contact-no-address") && ip.is_empty()))
        && ((1..=65_535).contains(&port) || on("contact-any-port"));
    if id.len() != 20 || !reachable || id == st().dht_id {
        return Ok(id);
    }
    let mut d = lock(&st().dht);
    let port = port as u16;
    let at = d.contacts.iter().position(|c| {
        if on("moved-listed-twice") {
            c.id == id && c.ip == ip && c.port == port
        } else {
            c.id == id
        }
    });
    match at {
        Some(i) => {
            let c = &mut d.contacts[i];
            c.seen = Instant::now();
            if !on("moved-keeps-old") {
                c.ip = ip;
                c.port = port;
            }
        }
        None => {
            if d.contacts.len() >= MOST {
                d.contacts.remove(3);
            }
            d.contacts.push(Contact {
                id: id.clone(),
                ip,
                port,
                seen: Instant::now(),
                fixed: false,
            });
        }
    }
    Ok(id)
}

fn key_of(key: &[u8]) -> Vec<u8> {
    if on("key-eight-bytes") {
        return key[..key.len().min(8)].to_vec();
    }
    if on("key-as-text") {
        return String::from_utf8_lossy(key).into_owned().into_bytes();
    }
    if on("key-c-string") {
        return key.iter().copied().take_while(|b| *b != 0).collect();
    }
    key.to_vec()
}

fn nodes(out: Out, no: u32, target: &[u8], asker: &[u8]) -> Out {
    let d = lock(&st().dht);
    let mut out = out;
    for c in d.closest(target, asker) {
        let mut id = c.id.clone();
        if on("listed-id-cut") && id[19] == 0 {
            id.truncate(19);
        }
        let mut port = i64::from(c.port);
        if on("listed-port-i16") {
            port = i64::from(c.port as i16);
        }
        let ip = if on("listed-ip-raw") {
            String::from_utf8(c.ip.bytes().map(|b| b & 0x1f).collect()).unwrap_or_default()
        } else {
            c.ip.clone()
        };
        out = out.part(no, &node(&id, &ip, port));
    }
    if on("self-listed-twice") {
        for _ in 0..2 {
            out = out.part(no, &responder());
        }
    }
    out
}

pub fn answer(name: &str, raw: Bytes, link: &Link) -> Result<Vec<u8>, Status> {
    let m = Msg::read(&raw)?;
    let asker = learn(&m, link)?;
    let out = if on("responder-is-sender") && name == "DHTFindNode" {
        Out::default().bytes(1, &m.bytes(1))
    } else if on("ping-empty") && name == "DHTPing" {
        return Ok(Vec::new());
    } else {
        Out::default().part(1, &responder())
    };
    if name == "DHTPing" {
        return Ok(out.0);
    }
    let key = m.bytes(2);
    if key.len() != 20 {
        if on("key-length-panics") {
            panic!("the key has another length");
        }
        if on("key-length-unknown") {
            return Err(no(2, "the key has another length"));
        }
        return Err(no(INVALID, "an id or a key has 20 bytes"));
    }
    match name {
        "DHTFindNode" => Ok(nodes(out, 2, &key, &asker).0),
        "DHTStore" => {
            let mut value = m.text(if on("store-number-four") { 4 } else { 3 })?;
            if value.is_empty() || value.len() > 1 << 20 {
                return Ok(out.flag(2, false).0);
            }
            if on("value-limit-255") && value.len() > 255 {
                let mut n = 255;
                while !value.is_char_boundary(n) {
                    n -= 1;
                }
                value.truncate(n);
            }
            if on("value-trimmed") {
                value = value.trim().to_string();
            }
            if on("refused-store-kept") && value.len() > 64 {
                lock(&st().dht).values.insert(key_of(&key), value);
                return Ok(out.flag(2, false).0);
            }
            let mut d = lock(&st().dht);
            if on("values-at-most-two") && d.values.len() >= 2 {
                d.values.pop_first();
            }
            if on("store-clears-others") && value.len() > 64 {
                d.values.clear();
            }
            if !on("store-forgotten") {
                d.values.insert(key_of(&key), value);
            }
            Ok(out.flag(2, true).0)
        }
        _ => {
            let k = key_of(&key);
            let mut found = lock(&st().dht).values.get(&k).cloned();
            if on("value-found-once") {
                lock(&st().dht).values.remove(&k);
            }
            if on("find-value-own-key-only") && key[0] >= 0x80 {
                found = None;
            }
            match found {
                Some(v) => {
                    let out = out.text(2, &v);
                    Ok(out
                        .flag(if on("found-number-five") { 5 } else { 4 }, true)
                        .0)
                }
                None => {
                    if on("not-found-with-value") {
                        return Ok(nodes(out.text(2, "none"), 3, &key, &asker).0);
                    }
                    if on("not-found-status") {
                        return Err(no(5, "nothing is stored there"));
                    }
                    if on("not-found-no-nodes") {
                        return Ok(out.0);
                    }
                    Ok(nodes(out, 3, &key, &asker).0)
                }
            }
        }
    }
}
