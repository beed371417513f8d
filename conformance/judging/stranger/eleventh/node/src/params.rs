//! The body of POST /inference.

use crate::fault::on;
use crate::text::Params;
use crate::util::*;
use serde_json::Value;

fn scalar(v: &Value) -> Value {
    if on("param-array-first") {
        if let Value::Array(a) = v {
            return a.first().cloned().unwrap_or(Value::Null);
        }
    }
    if on("param-text-parsed") {
        if let Value::String(s) = v {
            return serde_json::from_str(s).unwrap_or(v.clone());
        }
    }
    v.clone()
}

pub fn parse(body: &Value) -> Result<Params, String> {
    let mut p = Params {
        prompt: String::new(),
        max_tokens: if on("default-max-64") { 64 } else { 100 },
        temperature: 1.0,
        top_p: 1.0,
        top_k: 50,
        stream: false,
        stops: Vec::new(),
    };
    if on("default-max-128") {
        p.max_tokens = 128;
    }
    match body.get("prompt") {
        Some(Value::String(s)) if !s.is_empty() => p.prompt = s.clone(),
        None if on("prompt-default-empty") => p.prompt = String::new(),
        Some(Value::Array(a)) if on("prompt-array") && !a.is_empty() => {
            p.prompt = a.iter().map(|x| x.to_string()).collect();
        }
        Some(Value::Number(n)) if on("prompt-number") => p.prompt = n.to_string(),
        _ => return Err("prompt is a text that is not empty".into()),
    }
    if on("prompt-limit-256") && p.prompt.len() > 256 {
        return Err("prompt is too long".into());
    }
    if on("prompt-no-control") && p.prompt.contains(['\n', '\t']) {
        return Err("prompt has a letter that is not allowed".into());
    }
    if on("prompt-slice-panic") && p.prompt.len() > 16 {
        let _ = &p.prompt[..16];
    }
    if on("prompt-utf16-panic") && p.prompt.chars().any(|c| c as u32 > 0xFFFF) {
        panic!("no such letter");
    }
    if let Some(v) = body.get("max_tokens").map(scalar) {
        if on("max-tokens-u64-cast") && v.as_i64().map_or(false, |n| n < 0) {
            p.max_tokens = 100;
        } else if on("max-tokens-float") && v.as_f64().map_or(false, |n| n >= 0.0) {
            p.max_tokens = v.as_f64().unwrap().min(4096.0) as usize;
        } else {
            match whole(&v) {
                Some(n) if (0..=4096).contains(&n) => p.max_tokens = n as usize,
                _ => return Err("max_tokens is an integer from 0 to 4096".into()),
            }
            if on("max-zero-unlimited") && p.max_tokens == 0 {
                p.max_tokens = 100;
            }
        }
    }
    if let Some(v) = body.get("temperature").map(scalar) {
        let t = v.as_f64().filter(|_| v.is_number());
        match t {
            Some(t) if (0.0..=2.0).contains(&t) => {
                if on("temperature-two-refused") && t >= 2.0 {
                    return Err("temperature is below 2".into());
                }
                if on("temperature-zero-refused") && t == 0.0 {
                    return Err("temperature is above 0".into());
                }
                p.temperature = t;
            }
            Some(t) if on("temperature-clamped") => p.temperature = t.clamp(0.0, 2.0),
            Some(t) if on("temperature-low-only") && t > 2.0 => p.temperature = 2.0,
            _ => return Err("temperature is a number from 0 to 2".into()),
        }
        if on("temperature-int-refused") && v.as_i64().is_some() {
            return Err("temperature is a float".into());
        }
    }
    if let Some(v) = body.get("top_p").map(scalar) {
        match v.as_f64().filter(|_| v.is_number()) {
            Some(t) if on("top-p-one-refused") && t >= 1.0 => {
                return Err("top_p is below 1".into());
            }
            Some(t) if t > 0.0 && t <= 1.0 => p.top_p = t,
            _ => return Err("top_p is a number above 0 and at most 1".into()),
        }
    }
    if let Some(v) = body.get("top_k").map(scalar) {
        match whole(&v) {
            Some(n) if on("top-k-vocabulary") && n > 40 => {
                return Err("top_k is above the vocabulary".into());
            }
            Some(n) if n >= 1 => p.top_k = n.min(1 << 30) as usize,
            _ => return Err("top_k is an integer above 0".into()),
        }
    }
    match body.get("stream") {
        None => {}
        Some(Value::Bool(b)) => p.stream = *b,
        Some(Value::Object(_) | Value::Array(_)) if on("stream-truthy") => p.stream = true,
        Some(Value::Null) if on("stream-null") => {}
        Some(Value::String(s)) if on("stream-text") => p.stream = s == "true",
        Some(_) => return Err("stream is true or false".into()),
    }
    if on("stream-key-present") && body.get("stream").is_some() {
        p.stream = true;
    }
    match body.get("stop") {
        None => {}
        Some(Value::Array(a)) => {
            if on("stop-empty-refused") && a.is_empty() {
                return Err("stop is empty".into());
            }
            if on("stop-at-most-one") && a.len() > 1 {
                return Err("stop has one text".into());
            }
            for s in a {
                match s.as_str() {
                    Some(s) if !s.is_empty() => p.stops.push(s.to_string()),
                    None if on("stop-skips-other-types") => {}
                    _ => return Err("stop has texts that are not empty".into()),
                }
            }
        }
        Some(Value::String(s)) if on("stop-string") => p.stops.push(s.clone()),
        Some(Value::Object(_)) if on("stop-object-ignored") => {}
        Some(_) => return Err("stop is an array of texts".into()),
    }
    Ok(p)
}
