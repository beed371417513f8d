//! Which single fault or peculiarity this process has, and the list of all of them.

use serde_json::{json, Value};
use std::sync::OnceLock;

static ACTIVE: OnceLock<(String, String)> = OnceLock::new();
const FAULTS: &str = include_str!("../catalogue/faults.tsv");
/// Faults that are like others of the list; they can be named, but are not listed.
const SPARE: &str = include_str!("../catalogue/spare.tsv");
const PECULIAR: &str = include_str!("../catalogue/peculiarities.tsv");

pub fn set(fault: &str, peculiar: &str) -> Result<(), String> {
    let known = |list: &str, id: &str| list.lines().any(|l| l.split('\t').next() == Some(id));
    if !fault.is_empty() && !known(FAULTS, fault) && !known(SPARE, fault) {
        return Err(format!("no fault is called {fault}"));
    }
    if !peculiar.is_empty() && !known(PECULIAR, peculiar) {
        return Err(format!("no peculiarity is called {peculiar}"));
    }
    let _ = ACTIVE.set((fault.to_string(), peculiar.to_string()));
    Ok(())
}

/// Whether this process has the fault.
pub fn on(id: &str) -> bool {
    ACTIVE.get().map_or(false, |a| a.0 == id)
}

/// Whether this process has the peculiarity.
pub fn odd(id: &str) -> bool {
    ACTIVE.get().map_or(false, |a| a.1 == id)
}

pub fn list() -> Value {
    let rows = |text: &str, names: &[&str]| -> Vec<Value> {
        text.lines()
            .filter(|l| !l.trim().is_empty())
            .map(|l| {
                let mut o = serde_json::Map::new();
                for (name, cell) in names.iter().zip(l.split('\t')) {
                    o.insert(name.to_string(), json!(cell));
                }
                Value::Object(o)
            })
            .collect()
    };
    json!({
        "faults": rows(FAULTS, &["id", "kind", "section", "sentence", "text"]),
        "peculiarities": rows(PECULIAR, &["id", "text"]),
    })
}
