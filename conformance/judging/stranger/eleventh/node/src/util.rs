//! Small helpers: times, digests, exact decimals, answers.

use crate::fault::{odd, on};
use hyper::{header, Body, Response};
use serde_json::{json, Number, Value};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub type Reply = Response<Body>;
pub const ATOMS: i128 = 1_000_000;

pub fn micros(t: SystemTime) -> i64 {
    t.duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_micros() as i64
}

/// Year, month and day of a number of days since 1970.
pub fn civil(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let d = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let m = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(m <= 2), m, d)
}

pub fn date(days: i64) -> String {
    let (y, m, d) = civil(days);
    format!("{y:04}-{m:02}-{d:02}")
}

pub fn today() -> i64 {
    micros(SystemTime::now()) / 86_400_000_000
}

pub fn iso_micros(us: i64) -> String {
    let s = us.div_euclid(1_000_000);
    let (y, m, d) = civil(s.div_euclid(86_400));
    let r = s.rem_euclid(86_400);
    let (h, mi, se) = (r / 3600, r / 60 % 60, r % 60);
    let frac = us.rem_euclid(1_000_000);
    let day = format!("{y:04}-{m:02}-{d:02}");
    if odd("time-z-millis") {
        return format!("{day}T{h:02}:{mi:02}:{se:02}.{:03}Z", frac / 1000);
    }
    if odd("time-basic-z") {
        return format!("{day}T{h:02}:{mi:02}:{se:02}.{frac:06}Z");
    }
    format!("{day}T{h:02}:{mi:02}:{se:02}.{frac:06}+00:00")
}

pub fn now_iso() -> String {
    iso_micros(micros(SystemTime::now()))
}

/// The time of this moment as a Date header has it.
pub fn http_date() -> String {
    let s = micros(SystemTime::now()) / 1_000_000;
    let days = s / 86_400;
    let (y, m, d) = civil(days);
    let week = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let names = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let r = s % 86_400;
    format!(
        "{week}, {d:02} {} {y:04} {:02}:{:02}:{:02} GMT",
        names[m as usize - 1],
        r / 3600,
        r / 60 % 60,
        r % 60
    )
}

pub fn sha256(data: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, data)
        .as_ref()
        .to_vec()
}

pub fn sha256_hex(data: &[u8]) -> String {
    hex::encode(sha256(data))
}

pub fn sha1(data: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, data)
        .as_ref()
        .to_vec()
}

pub fn seed(data: &[u8]) -> u64 {
    u64::from_le_bytes(sha256(data)[..8].try_into().unwrap())
}

pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A JSON number from its text.
pub fn raw_num(text: &str) -> Value {
    serde_json::from_str::<Number>(text)
        .map(Value::Number)
        .unwrap_or(Value::Null)
}

/// A number of atoms as whole units with decimals.
pub fn units(atoms: i128) -> Value {
    let a = atoms.unsigned_abs();
    let (w, f) = (a / ATOMS as u128, a % ATOMS as u128);
    let mut s = format!("{w}.{f:06}");
    if odd("money-six-places") {
        // keep all six
    } else {
        while s.ends_with('0') && !s.ends_with(".0") {
            s.pop();
        }
        if odd("money-whole-as-int") && s.ends_with(".0") {
            s.truncate(s.len() - 2);
        }
    }
    if atoms < 0 {
        s.insert(0, '-');
    }
    raw_num(&s)
}

/// The number as an integer count of 10^-places; None if it has more places or is huge.
pub fn scaled(n: &Value, places: i32) -> Option<i128> {
    let Value::Number(n) = n else { return None };
    let t = n.to_string();
    let (mant, exp) = match t.find(['e', 'E']) {
        Some(i) => (
            &t[..i],
            t[i + 1..].trim_start_matches('+').parse::<i32>().ok()?,
        ),
        None => (&t[..], 0),
    };
    let (neg, mant) = match mant.strip_prefix('-') {
        Some(m) => (true, m),
        None => (false, mant),
    };
    let (whole, frac) = mant.split_once('.').unwrap_or((mant, ""));
    let mut digits = format!("{whole}{frac}");
    let mut shift = exp.checked_add(places)?.checked_sub(frac.len() as i32)?;
    if digits.bytes().all(|b| b == b'0') {
        return Some(0);
    }
    while shift < 0 {
        if digits.pop() != Some('0') {
            return None;
        }
        shift += 1;
    }
    if shift > 30 {
        return None;
    }
    digits.push_str(&"0".repeat(shift as usize));
    let digits = digits.trim_start_matches('0');
    if digits.len() > 30 {
        return None;
    }
    let v: i128 = digits.parse().ok()?;
    Some(if neg { -v } else { v })
}

/// An integer in any notation without a fraction.
pub fn whole(v: &Value) -> Option<i128> {
    scaled(v, 0)
}

pub fn json_reply(status: u16, v: &Value) -> Reply {
    let mut text = if odd("json-pretty") {
        serde_json::to_string_pretty(v).unwrap()
    } else {
        v.to_string()
    };
    if odd("json-escaped") {
        text = ascii(&text);
    }
    if odd("json-newline") {
        text.push('\n');
    }
    text_reply(status, "application/json", text)
}

/// Every letter beyond ASCII as an escape.
pub fn ascii(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            let mut b = [0u16; 2];
            for u in c.encode_utf16(&mut b) {
                out.push_str(&format!("\\u{u:04x}"));
            }
        }
    }
    out
}

pub fn text_reply(status: u16, kind: &str, text: String) -> Reply {
    let kind = if odd("charset") && kind == "application/json" {
        "application/json; charset=utf-8"
    } else {
        kind
    };
    let body = if odd("chunked") {
        let (mut tx, body) = Body::channel();
        tokio::spawn(async move {
            let bytes = text.into_bytes();
            for part in bytes.chunks(bytes.len() / 3 + 1) {
                if tx.send_data(part.to_vec().into()).await.is_err() {
                    return;
                }
            }
        });
        body
    } else {
        Body::from(text)
    };
    let mut r = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind);
    if odd("extra-headers") {
        r = r
            .header("x-node-build", "eleventh")
            .header("cache-control", "no-store");
    }
    r.body(body).unwrap()
}

/// The error body of the node API.
pub fn fail(status: u16, code: &str, message: &str, details: Option<Value>) -> Reply {
    let mut e = json!({"code": code, "message": message});
    if let Some(d) = details {
        e["details"] = d;
    }
    if odd("error-extra-fields") {
        e["hint"] = json!("see the operator's page");
        e["at"] = json!(now_iso());
    }
    let mut body = json!({ "error": e });
    if on("error-body-flat") && status != 401 && status != 402 && status != 429 {
        body = json!({"error": message, "code": code});
    }
    json_reply(status, &body)
}

/// Decodes percent escapes, and plus signs as spaces.
pub fn unescape(s: &str) -> String {
    let b = s.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    while i < b.len() {
        if b[i] == b'%' && i + 2 < b.len() {
            if let Ok(v) = u8::from_str_radix(s.get(i + 1..i + 3).unwrap_or("zz"), 16) {
                out.push(v);
                i += 3;
                continue;
            }
        }
        out.push(if b[i] == b'+' { b' ' } else { b[i] });
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The last value of a parameter of a query.
pub fn param(query: &str, name: &str) -> Option<String> {
    let mut found = None;
    for pair in query.split('&') {
        let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
        let (k, v) = if on("query-not-decoded") {
            (k.to_string(), v.to_string())
        } else {
            (unescape(k), unescape(v))
        };
        if k == name {
            found = Some(v);
        }
    }
    found
}

pub fn rand_hex(n: usize) -> String {
    let mut b = vec![0u8; n];
    rand::Rng::fill(&mut rand::thread_rng(), &mut b[..]);
    hex::encode(b)
}
