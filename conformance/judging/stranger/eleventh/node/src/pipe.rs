//! The pipeline: passes forward, and gradients back.

use crate::client;
use crate::fault::{odd, on};
use crate::grpc::{no, Status, INVALID, NOT_FOUND};
use crate::layers::*;
use crate::pb::{Msg, Out};
use crate::state::{lock, st, HIDDEN, LAYERS, VOCAB};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// A pass whose graph is kept for its gradients.
#[derive(Clone)]
pub struct Kept {
    pub session: String,
    pub request: String,
    pub shard: i64,
    pub source: i64,
    pub url: String,
    pub shape: [usize; 3],
}

#[derive(Default)]
pub struct Pipe {
    pub kept: VecDeque<Kept>,
}

/// The layers from a shard on that follow one another here.
fn run_from(shard: i64) -> Result<Vec<i64>, Status> {
    let mut shard = shard;
    if on("shard-negative-abs") {
        shard = shard.abs();
    }
    if on("shard-negative-last") && shard < 0 {
        shard = (9 + shard % 9) % 9;
    }
    if on("shard-clamped") && shard > 8 {
        shard = 8;
    }
    if on("shard-u8") {
        shard &= 15;
    }
    if on("shard-six-lost") && shard == 6 {
        return Err(no(NOT_FOUND, "layer 6 is not here"));
    }
    if !LAYERS.contains(&shard) {
        let code = if on("absent-unavailable") {
            14
        } else if on("absent-invalid") {
            INVALID
        } else if on("absent-internal") {
            13
        } else {
            NOT_FOUND
        };
        return Err(no(code, format!("layer {shard} is not on this node")));
    }
    let mut run = vec![shard];
    while LAYERS.contains(&(run[run.len() - 1] + 1)) {
        run.push(run[run.len() - 1] + 1);
    }
    Ok(run)
}

fn shape(list: &[i64], width: usize, bytes: usize) -> Result<[usize; 3], Status> {
    let bad = |m: &str| no(INVALID, m);
    let &[b, s, h] = list else {
        return Err(bad("a shape has three dimensions"));
    };
    if b < 1 || s < 1 || b > 4096 || s > 65_536 || h != width as i64 {
        return Err(bad("the shape does not fit this model"));
    }
    let (b, s) = (b as usize, s as usize);
    if b * s * width * 4 != bytes {
        return Err(bad("the tensor is not as long as its shape says"));
    }
    Ok([b, s, width])
}

fn failure(request: &str, why: &str) -> Vec<u8> {
    Out::default()
        .text(1, request)
        .flag(2, false)
        .text(
            3,
            if on("failure-without-reason") {
                ""
            } else {
                why
            },
        )
        .0
}

pub async fn forward(raw: Bytes) -> Result<Vec<u8>, Status> {
    let m = Msg::read(&raw)?;
    let (session, request) = (m.text(1)?, m.text(2)?);
    let url = m.text(12)?;
    let mut target = m.int32(10);
    if on("target-is-source") {
        target = m.int32(9);
    }
    let run = match run_from(target) {
        Ok(r) => r,
        Err(s) if on("absent-success-false") => return Ok(failure(&request, &s.1)),
        Err(_) if on("absent-passed-through") => {
            let out = Out::default().text(1, &request).flag(2, true);
            return Ok(out.bytes(4, &m.bytes(3)).nums(5, &m.nums(4)?).0);
        }
        Err(s) => return Err(s),
    };
    let mut data = m.bytes(3);
    let mut dims = m.nums(4)?;
    if on("batch-first-only") && dims.len() == 3 && dims[0] > 1 && data.len() % 4 == 0 {
        data = data.slice(..data.len() / dims[0] as usize);
        dims[0] = 1;
    }
    let size = match shape(&dims, HIDDEN, data.len()) {
        Ok(s) => s,
        Err(s) if on("bad-shape-internal") => return Err(no(13, s.1)),
        Err(_) if on("bad-shape-panics") => panic!("the shape does not fit"),
        Err(s) => return Err(s),
    };
    if on("two-sequences-refused") && size[0] > 1 {
        return Ok(failure(&request, "one sequence at a time"));
    }
    let mut x = floats(&data)?;
    if on("passes-crossed") {
        lock(&st().scratch).bytes = data.to_vec();
        tokio::time::sleep(Duration::from_millis(60)).await;
        let other = lock(&st().scratch).bytes.clone();
        if other.len() == data.len() {
            x = floats(&other)?;
        }
    }
    if on("previous-tensor") {
        let mut s = lock(&st().scratch);
        let old = std::mem::replace(&mut s.bytes, data.to_vec());
        if old.len() == data.len() {
            x = floats(&old)?;
        }
    }
    let last = run[run.len() - 1] == 8;
    let labels = if last { m.bytes(11) } else { Bytes::new() };
    if !labels.is_empty() && labels.len() != size[0] * size[1] * 4 {
        return Err(no(
            INVALID,
            "there is one label of 32 bits for each position",
        ));
    }
    let mut past: Vec<Vec<f32>> = Vec::new();
    for p in m.all(7) {
        if p.len() != size[0] * HIDDEN * 4 {
            return Err(no(INVALID, "the cache belongs to another batch"));
        }
        past.push(floats(&p)?);
    }
    if !past.is_empty() && past.len() != run.len() {
        return Err(no(INVALID, "the cache has one part for each layer"));
    }
    if on("cache-input-ignored") {
        past.clear();
    }
    let mut cache = Vec::new();
    for (i, l) in run.iter().enumerate() {
        let (y, c) = layer(*l, &x, size, past.get(i).map(|p| &p[..]));
        x = y;
        cache.push(c);
    }
    if on("hidden-nan-last") {
        let n = x.len();
        x[n - 1] = f32::NAN;
    }
    let kept = Kept {
        session,
        request: request.clone(),
        shard: run[0],
        source: m.int32(9),
        url,
        shape: size,
    };
    keep(kept);
    let mut echoed = request.clone();
    if on("request-id-cut") {
        echoed = request.chars().take(24).collect();
    }
    if on("request-id-trimmed") {
        echoed = request.trim().to_lowercase();
    }
    let out_shape: Vec<i64> = if on("hidden-shape-flat") {
        vec![(size[0] * size[1]) as i64, HIDDEN as i64]
    } else {
        size.iter().map(|d| *d as i64).collect()
    };
    let mut out = Out::default().text(1, &echoed).flag(2, true);
    let hidden = if on("hidden-big-endian") {
        x.iter().flat_map(|v| v.to_be_bytes()).collect()
    } else if on("hidden-doubles") {
        x.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect()
    } else {
        bytes(&x)
    };
    if !last || odd("final-has-hidden") {
        out = out.bytes(4, &hidden);
        if !on("hidden-without-shape") {
            out = out.nums(5, &out_shape);
        }
    }
    if m.flag(8) && !on("cache-not-returned") {
        for c in &cache {
            out = out.part(6, &bytes(c));
        }
    }
    let final_flag = (last && !(on("final-false-in-batch") && size[0] > 1)) || on("final-always");
    out = out.flag(7, final_flag);
    if last || on("logits-always") {
        let scores = head(&x, size);
        let mut data = bytes(&scores);
        if on("logits-last-position") {
            data = data.split_off(data.len() - VOCAB * 4);
        }
        out = out.bytes(8, &data);
        out = out.nums(9, &[size[0] as i64, size[1] as i64, VOCAB as i64]);
        if !labels.is_empty() && !on("loss-missing") {
            let mut l = loss(&scores, &labels);
            if on("loss-infinite") {
                l = f64::INFINITY;
            }
            out = out.double(10, l);
        }
    }
    Ok(out.0)
}

fn keep(kept: Kept) {
    let mut p = lock(&st().pipe);
    if on("kept-by-request") {
        p.kept.retain(|k| k.request != kept.request);
    } else if on("kept-by-session") {
        p.kept.retain(|k| k.session != kept.session);
    } else if on("kept-one") {
        p.kept.clear();
    } else {
        p.kept.retain(|k| {
            k.session != kept.session || k.request != kept.request || k.shard != kept.shard
        });
    }
    if on("url-of-first") {
        let mut s = lock(&st().scratch);
        if s.text.is_empty() {
            s.text = kept.url.clone();
        }
    }
    if on("url-of-last") {
        lock(&st().scratch).text = kept.url.clone();
    }
    p.kept.push_back(kept);
    if p.kept.len() > 512 {
        p.kept.pop_front();
    }
}

fn answer(why: Option<&str>) -> Vec<u8> {
    match why {
        None => Out::default().flag(1, true).0,
        Some(w) => {
            Out::default()
                .flag(1, false)
                .text(2, if on("back-without-reason") { "" } else { w })
                .0
        }
    }
}

pub async fn backward(raw: Bytes) -> Result<Vec<u8>, Status> {
    let m = Msg::read(&raw)?;
    let (mut session, mut request) = (m.text(1)?, m.text(2)?);
    if on("back-ids-swapped") {
        std::mem::swap(&mut session, &mut request);
    }
    let shard = match run_from(m.int32(5)) {
        Ok(r) => r[0],
        Err(_) if on("back-absent-success") => return Ok(answer(None)),
        Err(s) if on("back-absent-unavailable") => return Err(no(14, s.1)),
        Err(s) => return Err(s),
    };
    let data = m.bytes(3);
    let dims = m.nums(4)?;
    let width = if shard == 8 && dims.last() == Some(&(VOCAB as i64)) {
        VOCAB
    } else {
        HIDDEN
    };
    let found = {
        let p = lock(&st().pipe);
        let at = p
            .kept
            .iter()
            .position(|k| k.session == session && k.request == request && k.shard == shard);
        at.map(|i| p.kept[i].clone())
    };
    let Some(kept) = found else {
        if on("refusal-clears-kept") {
            lock(&st().pipe).kept.clear();
        }
        if on("back-unknown-accepted") {
            return Ok(answer(None));
        }
        return Ok(answer(Some("no pass is kept for these gradients")));
    };
    let size = match shape(&dims, width, data.len()) {
        Ok(s) if s[..2] == kept.shape[..2] => s,
        Ok(_) => {
            return Ok(answer(Some(
                "the gradients have another shape than the pass",
            )))
        }
        Err(s) => {
            if on("wrong-gradients-consume") {
                lock(&st().pipe).kept.retain(|k| k.request != kept.request);
            }
            return Err(s);
        }
    };
    let grads = floats(&data)?;
    if !on("gradients-again") {
        let mut p = lock(&st().pipe);
        let before = p.kept.len();
        p.kept
            .retain(|k| k.session != session || k.request != request || k.shard != shard);
        if before == p.kept.len() {
            return Ok(answer(Some("these gradients have been taken already")));
        }
    }
    if on("session-ends-with-back") {
        lock(&st().pipe).kept.retain(|k| k.session != session);
    }
    send_back(kept, size, grads);
    Ok(answer(None))
}

/// Sends the gradients of the input to where the pass came from.
fn send_back(kept: Kept, size: [usize; 3], grads: Vec<f32>) {
    let mut url = kept.url.clone();
    if on("url-of-first") || on("url-of-last") {
        url = lock(&st().scratch).text.clone();
    }
    if on("back-not-sent") {
        return;
    }
    let Some((host, port)) = client::host_port(&url) else {
        return;
    };
    let mut back = gradients(&grads, size, HIDDEN);
    if on("back-unchanged") && size[2] == HIDDEN {
        back = grads;
    }
    if on("back-first-sequence") {
        back.truncate(size[1] * HIDDEN);
    }
    let dims: Vec<i64> = kept.shape.iter().map(|d| *d as i64).collect();
    let out = Out::default();
    let out = if on("back-sends-swapped-ids") {
        out.text(1, &kept.request).text(2, &kept.session)
    } else {
        out.text(1, &kept.session).text(2, &kept.request)
    };
    let mut out = out.bytes(3, &bytes(&back));
    out = if on("back-shape-as-text") {
        out.text(4, &format!("{dims:?}"))
    } else {
        out.nums(4, &dims)
    };
    let out = out.num(5, kept.source);
    tokio::spawn(async move {
        let times = if on("back-sent-twice") { 2 } else { 1 };
        for _ in 0..times {
            let _ = client::call(&host, port, "PipelineBackward", &out.0).await;
        }
    });
}
