//! The toy model: texts that depend on the prompt.

use crate::fault::{odd, on};
use crate::util::*;

pub const WORDS: [&str; 40] = [
    " amber", " basalt", " cinder", " dew", " ember", " fern", " granite", " harbor", " iris",
    " jade", " kelp", " lichen", " moss", " naïve", " onyx", " pollen", " quartz", " reed",
    " slate", " thistle", " umber", " vale", " willow", " жар", " yarrow", " zinc", ",", ".", "\n",
    " —", " 石", " \"so\"", " of", " the", " and", " in", " under", "  ", " 🜂", " once",
];

#[derive(Clone)]
pub struct Params {
    pub prompt: String,
    pub max_tokens: usize,
    pub temperature: f64,
    pub top_p: f64,
    pub top_k: usize,
    pub stream: bool,
    pub stops: Vec<String>,
}

pub struct Made {
    pub pieces: Vec<String>,
    pub reason: &'static str,
    pub prompt_tokens: usize,
}

impl Made {
    pub fn text(&self) -> String {
        self.pieces.concat()
    }
}

/// One token for each letter of the prompt.
pub fn prompt_tokens(prompt: &str) -> usize {
    if on("prompt-tokens-capped") {
        return prompt.chars().count().min(12);
    }
    if on("prompt-tokens-one") {
        return 1;
    }
    prompt.chars().count()
}

/// The greedy or sampled pieces, without stop sequences.
fn pieces(p: &Params, many: usize) -> (Vec<String>, bool) {
    let root = seed(p.prompt.as_bytes());
    let length = 110 + (mix(root) % 240) as usize;
    let k = p.top_k.min(WORDS.len()).max(1);
    let greedy = p.temperature == 0.0 || k == 1;
    let salt: u64 = rand::random();
    let mut out = Vec::new();
    let mut last = usize::MAX;
    while out.len() < many && out.len() < length {
        let i = out.len() as u64;
        let mut rank = 0;
        if !greedy {
            let weights: Vec<f64> = (0..k)
                .map(|r| (-(r as f64) / (p.temperature * 4.0)).exp())
                .collect();
            let all: f64 = weights.iter().sum();
            let mut kept = 0;
            let mut mass = 0.0;
            while kept < k && (kept == 0 || mass < p.top_p * all) {
                mass += weights[kept];
                kept += 1;
            }
            let mut x = (mix(salt ^ i) % 1_000_000) as f64 / 1e6 * mass;
            while rank + 1 < kept && x > weights[rank] {
                x -= weights[rank];
                rank += 1;
            }
        }
        let mut w = (mix(root ^ (i * 977)) as usize + rank * 7) % WORDS.len();
        if w == last {
            w = (w + 1) % WORDS.len();
        }
        last = w;
        out.push(WORDS[w].to_string());
    }
    let ended = out.len() == length && many > length;
    (out, ended)
}

fn find_stop(text: &str, stops: &[String]) -> Option<usize> {
    let stops = if on("stop-first-only") {
        &stops[..stops.len().min(1)]
    } else {
        stops
    };
    if on("stop-in-order") {
        return stops.iter().find_map(|s| text.find(s.as_str()));
    }
    if on("stop-any-case") {
        let low = text.to_lowercase();
        return stops
            .iter()
            .filter_map(|s| low.find(&s.to_lowercase()))
            .min();
    }
    if on("stop-trimmed") {
        return stops.iter().filter_map(|s| text.find(s.trim())).min();
    }
    if on("stop-last") {
        return stops.iter().filter_map(|s| text.rfind(s.as_str())).min();
    }
    stops.iter().filter_map(|s| text.find(s.as_str())).min()
}

pub fn generate(p: &Params) -> Made {
    let mut many = p.max_tokens;
    if on("max-minus-prompt") {
        many = many.saturating_sub(prompt_tokens(&p.prompt).min(many.saturating_sub(1)));
    }
    if on("max-tokens-u8") {
        many = many as u8 as usize;
    }
    if on("max-plus-one") && p.max_tokens > 1 {
        many += 1;
    }
    if on("stream-ignores-max") && p.stream && p.max_tokens < 100 {
        many = 100;
    }
    let (mut list, ended) = pieces(p, many);
    let mut reason = if ended { "stop" } else { "length" };
    let text = list.concat();
    let mut stops = p.stops.clone();
    if on("stop-not-with-stream") && p.stream {
        stops.clear();
    }
    if on("stop-not-with-max") && p.max_tokens != 100 && p.max_tokens < 60 {
        stops.clear();
    }
    if on("stop-always-newline") {
        stops.push("\n".into());
    }
    let cut = if on("stop-within-token") {
        let mut at = 0;
        let mut found = None;
        for piece in &list {
            if let Some(i) = stops.iter().filter_map(|s| piece.find(s.as_str())).min() {
                found = Some(at + i);
                break;
            }
            at += piece.len();
        }
        found
    } else {
        find_stop(&text, &stops)
    };
    if let Some(mut cut) = cut {
        reason = "stop";
        if on("stop-included") {
            let s = stops.iter().find(|s| text[cut..].starts_with(s.as_str()));
            cut += s.map_or(0, |s| s.len());
        }
        let mut kept = Vec::new();
        let mut at = 0;
        for piece in &list {
            if at >= cut {
                break;
            }
            let room = cut - at;
            if on("stop-cuts-token") && room < piece.len() {
                break;
            }
            if on("stop-keeps-token") || room >= piece.len() {
                kept.push(piece.clone());
            } else {
                let mut room = room;
                while !piece.is_char_boundary(room) {
                    room -= 1;
                }
                kept.push(piece[..room].to_string());
            }
            at += piece.len();
        }
        list = kept;
    }
    if on("text-trimmed-pieces") && p.stream {
        for piece in &mut list {
            *piece = piece.trim().to_string();
        }
    }
    if odd("finish-eos") && reason == "stop" && cut.is_none() {
        reason = "eos";
    }
    Made {
        pieces: list,
        reason,
        prompt_tokens: prompt_tokens(&p.prompt),
    }
}
