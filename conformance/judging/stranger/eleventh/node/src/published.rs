//! Documents and files that never change.

use crate::fault::{odd, on};
use crate::native::problem;
use crate::sign::*;
use crate::util::*;
use hyper::Body;

pub fn dataset() -> String {
    let rows: Vec<String> = (0..24u64)
        .map(|i| {
            let t: Vec<String> = (0..12)
                .map(|k| (mix(i * 12 + k) % 997).to_string())
                .collect();
            format!("  {{\"row\": {i}, \"tokens\": [{}]}}", t.join(", "))
        })
        .collect();
    format!(
        "{{\n \"name\": \"shore\",\n \"rows\": [\n{}\n ]\n}}\n",
        rows.join(",\n")
    )
}

pub fn genesis() -> String {
    format!(
        "{{\n \"chain_id\": \"{CHAIN}\",\n \"started\": \"2026-01-05T00:00:00+00:00\",\n \
         \"dataset_sha256\": \"{}\",\n \"atoms_in_a_unit\": \"1000000\",\n \
         \"accounts\": [\n  {{\"public_key\": \"{}\", \"atoms\": \"7500000123\"}},\n  \
         {{\"public_key\": \"{}\", \"atoms\": \"910000007\"}}\n ]\n}}\n",
        sha256_hex(dataset().as_bytes()),
        public("buyer"),
        public("second"),
    )
}

pub fn genesis_hash() -> String {
    sha256_hex(genesis().as_bytes())
}

/// The newest adapter: bytes that are no text.
pub fn adapter() -> Vec<u8> {
    (0..4096u64).map(|i| mix(i ^ 0xADA9) as u8).collect()
}

pub fn artifact(digest: &str) -> Reply {
    let files = [
        dataset().into_bytes(),
        genesis().into_bytes(),
        adapter(),
        b"manifest of quartzite-2: dataset, genesis, adapter\n".to_vec(),
    ];
    let hit = files.iter().find(|f| {
        let own = sha256_hex(f);
        if on("artifact-prefix") {
            return digest.len() >= 16 && own.starts_with(digest);
        }
        if on("artifact-eight-digits") {
            return digest.len() == 64 && own[..8] == digest[..8.min(digest.len())];
        }
        own == digest || (odd("artifact-any-case") && own == digest.to_lowercase())
    });
    let Some(file) = hit else {
        return problem(404, "no file has this digest");
    };
    let mut bytes = file.clone();
    if on("artifact-lossy") {
        bytes = String::from_utf8_lossy(&bytes).into_owned().into_bytes();
    }
    if on("artifact-trimmed") {
        bytes = file.trim_ascii_end().to_vec();
    }
    if on("artifact-hex") {
        bytes = hex::encode(&bytes).into_bytes();
    }
    hyper::Response::builder()
        .header("content-type", "application/octet-stream")
        .body(Body::from(bytes))
        .unwrap()
}
