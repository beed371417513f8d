//! Weights and checkpoints.

use crate::fault::{odd, on};
use crate::grpc::{no, Status, INVALID, NOT_FOUND};
use crate::lz4;
use crate::pb::{Msg, Out};
use crate::state::{HIDDEN, LAYERS, LOSS, PARAMS, ROUND};
use crate::util::*;
use bytes::Bytes;
use std::sync::OnceLock;

pub struct Checkpoint {
    pub version: i64,
    pub phase: &'static str,
    pub loss: f64,
    pub hash: String,
    pub data: Vec<u8>,
    pub raw_size: usize,
}

/// The newest checkpoint, and the one before it.
pub fn kept() -> &'static [Checkpoint] {
    static KEPT: OnceLock<Vec<Checkpoint>> = OnceLock::new();
    KEPT.get_or_init(|| {
        let mut list = Vec::new();
        for (version, phase, loss) in [(ROUND, "settling", LOSS), (ROUND - 1, "early", 2.828)] {
            let mut raw = format!("QZCP {version}\n").into_bytes();
            for l in LAYERS {
                raw.extend(layer_weights(l, version));
            }
            list.push(Checkpoint {
                version,
                phase,
                loss,
                hash: sha256_hex(&raw),
                data: lz4::frame(&raw),
                raw_size: raw.len(),
            });
        }
        list
    })
}

fn layer_weights(layer: i64, version: i64) -> Vec<u8> {
    let mut out = (layer as u32).to_be_bytes().to_vec();
    out.extend_from_slice(&(HIDDEN as u32).to_be_bytes());
    for i in 0..(HIDDEN * HIDDEN) as u64 {
        let r = mix(i ^ (layer as u64) << 20 ^ (version as u64) << 40);
        let v = (r % 20_001) as f32 / 10_000.0 - 1.0;
        out.extend_from_slice(&v.to_le_bytes());
    }
    out
}

fn range(text: &str) -> Option<Vec<i64>> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let part = part.trim_start_matches('[').trim_end_matches(']').trim();
        let (a, b) = match part.split_once(['-', ':']) {
            Some((a, b)) => (a.trim().parse().ok()?, b.trim().parse().ok()?),
            None => {
                let n: i64 = part.parse().ok()?;
                (n, n)
            }
        };
        if a > b || b - a > 1000 {
            return None;
        }
        out.extend(a..=b);
    }
    Some(out)
}

pub fn weights(raw: Bytes) -> Result<Vec<u8>, Status> {
    let m = Msg::read(&raw)?;
    let text = m.text(if on("range-number-two") { 2 } else { 1 })?;
    let absent = |t: String| {
        if on("weights-absent-invalid") {
            no(INVALID, t)
        } else if on("weights-absent-internal") {
            no(13, t)
        } else {
            no(NOT_FOUND, t)
        }
    };
    if on("weights-all-by-default") && (text.is_empty() || range(&text).is_none()) {
        let all = LAYERS.iter().flat_map(|l| layer_weights(*l, ROUND));
        return Ok(Out::default().bytes(1, &all.collect::<Vec<u8>>()).0);
    }
    let Some(mut list) = range(&text) else {
        return Err(absent("this names no layers here".into()));
    };
    if on("weights-skip-absent") {
        list.retain(|l| LAYERS.contains(l));
        if list.is_empty() {
            return Err(absent("no such layer is here".into()));
        }
    }
    if on("weights-absent-empty") && list.iter().any(|l| !LAYERS.contains(l)) {
        return Ok(Vec::new());
    }
    if let Some(l) = list.iter().find(|l| !LAYERS.contains(l)) {
        if !on("weights-edges-checked") || l == &list[0] || Some(l) == list.last() {
            return Err(absent(format!("layer {l} is not on this node")));
        }
    }
    let mut out = b"QZW1".to_vec();
    for l in list {
        let l = if on("weights-of-first") { LAYERS[0] } else { l };
        let mut w = layer_weights(l, ROUND);
        if on("weights-of-first") {
            w[..4].copy_from_slice(&[0; 4]);
        }
        out.extend(w);
    }
    Ok(Out::default().bytes(1, &out).0)
}

fn lowest<'a>(list: &'a [Checkpoint], min: i64) -> Option<&'a Checkpoint> {
    list.iter().find(|c| {
        if on("min-version-strict") {
            c.version > min
        } else if on("min-version-ignored") {
            true
        } else {
            c.version >= min
        }
    })
}

pub fn checkpoint(raw: Bytes) -> Result<Vec<u8>, Status> {
    let m = Msg::read(&raw)?;
    let (mut hash, mut min) = (m.text(1)?, m.int32(2));
    if on("checkpoint-hash-ignored") {
        hash.clear();
    }
    if on("checkpoint-hash-beats-version") && !hash.is_empty() {
        min = 0;
    }
    let list = kept();
    let hit = if hash.is_empty() {
        lowest(list, min)
    } else if on("checkpoint-hash-prefix") {
        list.iter()
            .find(|c| c.hash.starts_with(&hash[..hash.len().min(8)]))
    } else {
        list.iter().find(|c| c.hash == hash && c.version >= min)
    };
    let Some(c) = hit else {
        if on("checkpoint-failure-with-newest") {
            let c = &list[0];
            return Ok(Out::default()
                .flag(1, false)
                .text(2, "another version is here")
                .num(3, c.version)
                .text(4, &c.hash)
                .bytes(6, &c.data)
                .num(7, 1)
                .0);
        }
        let why = if on("checkpoint-without-reason") {
            ""
        } else {
            "no such checkpoint is here"
        };
        return Ok(Out::default().flag(1, false).text(2, why).0);
    };
    let mut version = c.version;
    if on("checkpoint-version-asked") && min > 0 {
        version = min;
    }
    let mut phase = c.phase;
    if on("checkpoint-phase-by-hash") && !hash.is_empty() {
        phase = "bootstrap";
    }
    let mut data = c.data.clone();
    let mut size = c.raw_size as i64;
    if odd("size-compressed") {
        size = c.data.len() as i64;
    }
    if on("checkpoint-raw") {
        data = lz4::unframe(&c.data, 1 << 30).unwrap();
    }
    if on("checkpoint-lz4-block") {
        data = data.split_off(7);
    }
    if on("checkpoint-by-version-no-data") && min > 0 {
        data.clear();
    }
    if on("size-negative") {
        size = i64::from(3_000_000_000u32 as i32);
    }
    if on("size-by-way") && min > 0 {
        size = data.len() as i64;
    }
    Ok(Out::default()
        .flag(1, true)
        .num(3, version)
        .text(
            4,
            if on("checkpoint-hash-short") {
                &c.hash[..16]
            } else {
                &c.hash
            },
        )
        .text(5, phase)
        .bytes(6, &data)
        .num(if on("size-number-eight") { 8 } else { 7 }, size)
        .0)
}

pub fn info(raw: Bytes) -> Result<Vec<u8>, Status> {
    Msg::read(&raw)?;
    let c = &kept()[usize::from(on("info-older"))];
    let params = if on("params-zero") { 0 } else { PARAMS };
    let mut out = Out::default()
        .num(1, c.version)
        .text(2, &c.hash)
        .text(
            3,
            if on("info-phase-other") {
                "early"
            } else {
                c.phase
            },
        )
        .num(4, params);
    out = out.double(
        5,
        if on("info-loss-nan") {
            f64::NAN
        } else {
            c.loss
        },
    );
    if on("info-with-data") {
        out = out.bytes(6, &c.data);
    }
    Ok(out.0)
}
