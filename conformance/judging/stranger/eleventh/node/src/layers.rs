//! The arithmetic of the toy layers.

use crate::fault::on;
use crate::grpc::{no, Status, INVALID};
use crate::state::{HIDDEN, VOCAB};

pub fn floats(b: &[u8]) -> Result<Vec<f32>, Status> {
    let v: Vec<f32> = b
        .chunks_exact(4)
        .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
        .collect();
    if v.iter().any(|x| !x.is_finite()) {
        return Err(no(INVALID, "a value is not finite"));
    }
    Ok(v)
}

pub fn bytes(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// One layer: its output, and its cache of a row for each sequence.
pub fn layer(l: i64, x: &[f32], size: [usize; 3], past: Option<&[f32]>) -> (Vec<f32>, Vec<f32>) {
    let [b, s, h] = size;
    let mut y = vec![0f32; x.len()];
    let mut cache = vec![0f32; b * h];
    if let Some(p) = past {
        cache.copy_from_slice(p);
    }
    for i in 0..b {
        for j in 0..s {
            for k in 0..h {
                let at = (i * s + j) * h + k;
                let side = x[(i * s + j) * h + (k + l as usize) % h];
                let seen = cache[i * h + k] / (j + 1) as f32;
                y[at] = (0.8 * x[at] + 0.15 * side + 0.04 * (l + 1) as f32 + 0.1 * seen).tanh();
            }
            for k in 0..h {
                cache[i * h + k] += x[(i * s + j) * h + k];
            }
        }
    }
    if on("weak-layer") {
        y = x.to_vec();
    }
    (y, cache)
}

pub fn head(x: &[f32], size: [usize; 3]) -> Vec<f32> {
    let rows = size[0] * size[1];
    let mut out = Vec::with_capacity(rows * VOCAB);
    for r in 0..rows {
        for v in 0..VOCAB {
            let mut sum = 0f32;
            for k in 0..HIDDEN {
                sum += x[r * HIDDEN + k] * ((v * 7 + k * 3) as f32).cos();
            }
            out.push(sum / 4.0);
        }
    }
    out
}

/// The mean cross entropy of labels of 32 bits, little end first.
pub fn loss(scores: &[f32], labels: &[u8]) -> f64 {
    let mut sum = 0f64;
    let n = labels.len() / 4;
    for (row, l) in scores.chunks(VOCAB).zip(labels.chunks_exact(4)) {
        let l = u32::from_le_bytes(l.try_into().unwrap()) as usize % VOCAB;
        let top = row.iter().copied().fold(f32::MIN, f32::max);
        let all: f64 = row.iter().map(|v| f64::from(v - top).exp()).sum();
        sum += all.ln() - f64::from(row[l] - top);
    }
    sum / n.max(1) as f64
}

/// The gradients of the input from those of the output.
pub fn gradients(g: &[f32], size: [usize; 3], h: usize) -> Vec<f32> {
    let rows = size[0] * size[1];
    let w = size[2];
    let mut out = Vec::with_capacity(rows * h);
    for r in 0..rows {
        for k in 0..h {
            let a = g[r * w + k % w];
            let b = g[r * w + (k + 3) % w];
            out.push(0.7 * a + 0.15 * b + 0.001);
        }
    }
    out
}
