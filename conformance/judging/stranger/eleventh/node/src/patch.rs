//! PATCH /config.

use crate::fault::{odd, on};
use crate::state::{lock, st};
use crate::util::*;
use serde_json::{json, Map, Value};

type Rule = (&'static str, &'static str, fn(&Value) -> bool);

fn int_in(v: &Value, low: i128, high: i128) -> bool {
    whole(v).map_or(false, |n| n >= low && n <= high)
}

const RULES: [Rule; 6] = [
    ("training", "enabled", |v| v.is_boolean()),
    ("training", "batch_size", |v| int_in(v, 1, 65_536)),
    ("training", "learning_rate", |v| {
        v.as_f64().map_or(false, |x| x > 0.0 && x <= 1.0) && v.is_number()
    }),
    ("training", "diloco_steps", |v| int_in(v, 1, 1_000_000)),
    ("resources", "max_memory_gb", |v| {
        v.as_f64().map_or(false, |x| x > 0.0 && x <= 8192.0) && v.is_number()
    }),
    ("resources", "cpu_threads", |v| int_in(v, 1, 2048)),
];

fn coerce(v: &Value) -> Value {
    if on("patch-strings-parsed") {
        if let Value::String(s) = v {
            if let Ok(n) = serde_json::from_str::<Value>(s) {
                return n;
            }
        }
    }
    if on("patch-array-first") {
        if let Value::Array(a) = v {
            return a.first().cloned().unwrap_or(Value::Null);
        }
    }
    if on("patch-bool-as-int") {
        if let Value::Bool(b) = v {
            return json!(i32::from(*b));
        }
    }
    v.clone()
}

fn plan(body: &Map<String, Value>) -> Result<Vec<(&'static str, &'static str, Value)>, String> {
    let mut steps = Vec::new();
    for (group, inner) in body {
        if on("patch-dotted-keys") {
            if let Some(r) = RULES.iter().find(|r| format!("{}.{}", r.0, r.1) == *group) {
                if (r.2)(inner) {
                    steps.push((r.0, r.1, inner.clone()));
                    continue;
                }
            }
        }
        if !RULES.iter().any(|r| r.0 == group) {
            if on("patch-unknown-skipped-all") {
                continue;
            }
            return Err(format!("{group} cannot be changed"));
        }
        let Value::Object(inner) = inner else {
            return Err(format!("{group} is an object"));
        };
        for (key, v) in inner {
            let Some(rule) = RULES.iter().find(|r| r.0 == group && r.1 == key) else {
                return Err(format!("{group}.{key} cannot be changed"));
            };
            let v = coerce(v);
            if on("patch-null-skipped") && v.is_null() {
                continue;
            }
            let value_ok = (rule.2)(&v) || (on("patch-bool-as-int") && rule.1 == "enabled");
            if !value_ok {
                if on("patch-refusal-partial") {
                    apply(&steps);
                }
                return Err(format!("{group}.{key} cannot have this value"));
            }
            if on("patch-enabled-only-off") && rule.1 == "enabled" && v == json!(true) {
                let on_now = lock(&st().config)["training"]["enabled"] == json!(true);
                if !on_now {
                    return Err("training is resumed by a restart".into());
                }
            }
            let mut v = v;
            if on("patch-lr-f32") && rule.1 == "learning_rate" {
                v = json!(v.as_f64().unwrap_or(0.0) as f32 as f64);
            }
            if on("patch-batch-u8") && rule.1 == "batch_size" {
                v = json!(whole(&v).unwrap_or(1) as u8);
            }
            if on("patch-memory-int") && rule.1 == "max_memory_gb" {
                v = json!(v.as_f64().unwrap_or(0.0) as i64);
            }
            if on("patch-threads-capped") && rule.1 == "cpu_threads" {
                v = json!(whole(&v).unwrap_or(1).min(16) as i64);
            }
            steps.push((rule.0, rule.1, v));
        }
    }
    Ok(steps)
}

fn apply(steps: &[(&'static str, &'static str, Value)]) {
    let mut c = lock(&st().config);
    for (group, key, v) in steps {
        if on("patch-replaces-group") {
            let defaults = json!({
                "training": {"enabled": true, "batch_size": 6, "learning_rate": 0.00025, "diloco_steps": 350},
                "resources": {"max_memory_gb": 11.5, "cpu_threads": 3},
            });
            if steps.iter().position(|s| s.0 == *group)
                == steps.iter().position(|s| s.1 == *key && s.0 == *group)
            {
                c[*group] = defaults[*group].clone();
            }
        }
        c[*group][*key] = v.clone();
        if on("patch-steps-coupled") && *key == "batch_size" {
            c["training"]["diloco_steps"] = json!(700);
        }
    }
}

pub fn change(body: &Value) -> Reply {
    let Some(object) = body.as_object() else {
        return fail(400, "BAD_BODY", "the body is no object", None);
    };
    if on("patch-one-key") {
        let n: usize = object
            .values()
            .filter_map(|v| v.as_object())
            .map(|o| o.len())
            .sum();
        if n > 1 {
            return fail(422, "BAD_VALUE", "one key at a time", None);
        }
    }
    let before = lock(&st().config).clone();
    let steps = match plan(object) {
        Ok(s) => s,
        Err(m) if on("patch-refusal-200") => {
            return json_reply(
                200,
                &json!({"success": true, "updated": [], "restart_required": false, "note": m}),
            );
        }
        Err(m) => return fail(422, "BAD_VALUE", &m, None),
    };
    if on("patch-lost-update") {
        std::thread::sleep(std::time::Duration::from_millis(60));
        let mut mine = before.clone();
        for (g, k, v) in &steps {
            mine[*g][*k] = v.clone();
        }
        *lock(&st().config) = mine;
    } else if on("patch-late") {
        let steps = steps.clone();
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
            apply(&steps);
        });
    } else if on("patch-reverts") {
        apply(&steps);
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_secs(4)).await;
            *lock(&st().config) = before;
        });
    } else if on("patch-first-key-only") {
        apply(&steps[..steps.len().min(1)]);
    } else {
        apply(&steps);
    }
    let mut updated: Vec<String> = steps.iter().map(|s| format!("{}.{}", s.0, s.1)).collect();
    if on("updated-leaf-names") {
        updated = steps.iter().map(|s| s.1.to_string()).collect();
    }
    if on("updated-all-keys") && !steps.is_empty() {
        updated = RULES
            .iter()
            .filter(|r| steps.iter().any(|s| s.0 == r.0))
            .map(|r| format!("{}.{}", r.0, r.1))
            .collect();
    }
    if on("updated-slashes") {
        updated = updated.iter().map(|u| u.replace('.', "/")).collect();
    }
    if odd("updated-reversed") {
        updated.reverse();
    }
    let mut out = json!({"success": true, "updated": updated, "restart_required": false});
    if odd("patch-shows-config") {
        out["config"] = lock(&st().config).clone();
    }
    json_reply(200, &out)
}
