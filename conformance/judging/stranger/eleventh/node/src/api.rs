//! What the node API reads.

use crate::fault::{odd, on};
use crate::state::*;
use crate::util::*;
use serde_json::{json, Value};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

pub fn uptime() -> i64 {
    let s = st().start.elapsed();
    if on("uptime-milliseconds") {
        return s.as_millis() as i64;
    }
    if on("uptime-epoch") {
        return micros(std::time::SystemTime::now()) / 1_000_000;
    }
    if on("uptime-minutes") {
        return s.as_secs() as i64 / 60 * 60;
    }
    if on("uptime-since-request") {
        let mut x = lock(&st().scratch);
        let t = x.at.replace(Instant::now()).unwrap_or(st().start);
        return t.elapsed().as_secs() as i64;
    }
    s.as_secs() as i64
}

pub fn status() -> Reply {
    let enabled = if on("status-training-fixed") {
        true
    } else {
        training_enabled()
    };
    let node_id = if on("status-id-per-call") {
        format!("{}-{}", st().node_id, rand_hex(2))
    } else {
        st().node_id.clone()
    };
    let mut layers = LAYERS.to_vec();
    if odd("layers-descending") {
        layers.reverse();
    }
    if on("layers-one-based") {
        layers = layers.iter().map(|l| l + 1).collect();
    }
    if on("layers-twice") {
        layers.push(5);
    }
    let mut out = json!({
        "node_id": node_id, "version": "0.7.3-quartz", "uptime_seconds": uptime(),
        "status": if on("status-word-upper") { "RUNNING" } else { "running" },
        "role": "validator", "layers": layers,
        "peer_count": if on("peer-count-self") { 4 } else { 3 },
        "training": {"enabled": enabled, "epoch": 2, "step": 5_950, "loss": LOSS},
        "resources": {
            "gpu_memory_used": 2_415_919_104i64, "gpu_memory_total": 8_589_934_592i64,
            "cpu_percent": 12.5, "ram_used": 1_879_048_192i64
        },
    });
    if on("gpu-used-above-total") {
        out["resources"]["gpu_memory_used"] = json!(9_663_676_416i64);
    }
    if on("ram-u32-wrapped") {
        out["resources"]["ram_used"] = json!(3_000_000_000u64 as u32 as i32);
    }
    if on("cpu-percent-text") {
        out["resources"]["cpu_percent"] = json!("12.5");
    }
    if on("loss-null-when-off") && !enabled {
        out["training"]["loss"] = Value::Null;
    }
    if odd("status-extra") {
        out["mood"] = json!("calm");
        out["training"]["paused_by"] = Value::Null;
    }
    json_reply(200, &out)
}

pub fn metrics() -> Reply {
    let c = &st().count;
    let mut l: Vec<f64> = lock(&st().latencies).iter().copied().collect();
    l.sort_by(f64::total_cmp);
    let avg = if l.is_empty() {
        0.0
    } else {
        l.iter().sum::<f64>() / l.len() as f64
    };
    let at = (l.len() * 99).div_ceil(100).max(1) - 1;
    let mut p99 = l.get(at).copied().unwrap_or(0.0).max(avg);
    if on("p99-is-first") {
        p99 = l.first().copied().unwrap_or(0.0);
    }
    let rpm = {
        let mut r = lock(&st().recent);
        while r
            .front()
            .map_or(false, |t| t.elapsed() > Duration::from_secs(60))
        {
            r.pop_front();
        }
        r.len()
    };
    let mut total = c.requests.load(SeqCst);
    if on("metrics-requests-window") {
        let r = lock(&st().recent);
        total = r
            .iter()
            .filter(|t| t.elapsed() < Duration::from_secs(5))
            .count() as i64;
    }
    let stamp = if on("metrics-time-cached") {
        let mut s = lock(&st().scratch);
        if s.text.is_empty() {
            s.text = now_iso();
        }
        s.text.clone()
    } else if on("metrics-time-space") {
        now_iso().replace('T', " ")
    } else if on("metrics-time-local") {
        iso_micros(micros(std::time::SystemTime::now()) + 7_200_000_000)
    } else {
        now_iso()
    };
    let mut out = json!({
        "timestamp": stamp,
        "inference": {
            "requests_total": total, "requests_per_minute": rpm, "avg_latency_ms": avg,
            "p99_latency_ms": p99, "tokens_generated": c.tokens.load(SeqCst)
        },
        "training": {
            "steps_total": 5_950, "steps_per_hour": 118,
            "gradients_submitted": 40 + c.submitted.load(SeqCst),
            "gradients_accepted": 37 + c.accepted.load(SeqCst)
        },
        "network": {
            "bytes_sent": c.sent.load(SeqCst), "bytes_received": c.received.load(SeqCst),
            "active_connections": c.connections.load(SeqCst), "rpc_calls": c.calls.load(SeqCst)
        },
        "rewards": {"earned_today": 0.0876, "earned_total": 0.5621, "pending": 0.0153},
    });
    if on("accepted-above-submitted") {
        out["training"]["gradients_accepted"] = json!(41 + c.submitted.load(SeqCst));
    }
    if on("steps-per-hour-float") {
        out["training"]["steps_per_hour"] = json!(118.4);
    }
    if on("today-above-total") {
        out["rewards"]["earned_today"] = json!(0.8521);
    }
    if on("connections-underflow") {
        out["network"]["active_connections"] = json!(-1);
    }
    if on("metrics-duplicate-key") {
        let t = out
            .to_string()
            .replacen("\"bytes_sent\":", "\"bytes_sent\":0,\"bytes_sent\":", 1);
        return text_reply(200, "application/json", t);
    }
    if on("latency-nan") && l.is_empty() {
        let t = out
            .to_string()
            .replacen("\"avg_latency_ms\":0.0", "\"avg_latency_ms\":NaN", 1);
        return text_reply(200, "application/json", t);
    }
    json_reply(200, &out)
}

pub fn health() -> Reply {
    let mut out = json!({
        "healthy": true,
        "checks": {"gpu": "ok", "network": "ok", "storage": "ok", "peers": "ok"},
    });
    if on("health-bools") {
        out["checks"]["storage"] = json!(true);
    }
    if odd("health-degraded") {
        out["checks"]["gpu"] = json!("absent");
    }
    if on("health-text-plain") {
        return text_reply(200, "text/plain", out.to_string());
    }
    json_reply(200, &out)
}

pub fn network() -> Reply {
    let mut out = json!({
        "nodes": {"total": 4, "drivers": 1, "workers": 2, "validators": 1},
        "architecture": {
            "layers": TOTAL_LAYERS, "hidden_dim": HIDDEN, "parameters": PARAMS.to_string()
        },
        "capacity": {"total_memory_gb": 44.0, "used_memory_gb": 9.75},
        "training": {"epoch": 2, "global_step": 5_950, "loss": LOSS},
    });
    if on("parameters-number") {
        out["architecture"]["parameters"] = json!(PARAMS);
    }
    if on("network-layers-own") {
        out["architecture"]["layers"] = json!(LAYERS.len());
    }
    if on("nodes-total-peers") {
        out["nodes"]["total"] = json!(3);
    }
    if on("capacity-used-mb") {
        out["capacity"]["used_memory_gb"] = json!(9_984.0);
    }
    if odd("parameters-short") {
        out["architecture"]["parameters"] = json!("1.48M");
    }
    json_reply(200, &out)
}

pub fn peers() -> Reply {
    let mut list = Vec::new();
    for (i, (role, layers)) in [
        ("driver", vec![0, 1]),
        ("worker", vec![2, 4]),
        ("worker", vec![7]),
    ]
    .into_iter()
    .enumerate()
    {
        let address = format!("198.51.100.{}:{}", 11 + i, 8000 + i * 10);
        let mut p = json!({
            "id": format!("qn-peer{i}{}", &sha256_hex(&[i as u8])[..6]),
            "address": if on("peer-address-url") { format!("http://{address}") } else { address },
            "role": role, "layers": layers, "latency_ms": 8.25 + i as f64 * 3.5,
            "connected_since": iso_micros(st().start_us - 60_000_000 * (i as i64 + 1)),
        });
        if on("peer-latency-unset") && i == 2 {
            p["latency_ms"] = json!(-1);
        }
        if on("peer-since-epoch") {
            p["connected_since"] = json!(st().start_us / 1_000_000);
        }
        if on("peer-since-future") {
            p["connected_since"] = json!(iso_micros(
                micros(std::time::SystemTime::now()) + 3_600_000_000
            ));
        }
        list.push(p);
    }
    let total = list.len() + usize::from(on("peers-total-with-self"));
    if on("peers-bare") {
        return json_reply(200, &json!(list));
    }
    json_reply(200, &json!({"peers": list, "total": total}))
}

pub fn layers() -> Reply {
    let mut list = Vec::new();
    for i in LAYERS {
        let mut l =
            json!({"index": i, "type": "transformer", "memory_mb": 96 + i, "status": "active"});
        if i == 8 {
            l["type"] = json!("head");
        }
        if on("layer-memory-bytes-float") {
            l["memory_mb"] = json!((96 + i) as f64 + 0.5);
        }
        if on("layers-skip-last") && i == 8 {
            continue;
        }
        if on("layer-status-null") && i == 8 {
            l["status"] = Value::Null;
        }
        list.push(l);
    }
    let mine = if on("my-layers-all") {
        TOTAL_LAYERS
    } else {
        LAYERS.len() as i64
    };
    let mut total = TOTAL_LAYERS;
    if on("total-layers-max-index") {
        total = 8;
    }
    if on("layers-keyed") {
        let map: serde_json::Map<String, Value> = list
            .into_iter()
            .map(|l| (l["index"].to_string(), l))
            .collect();
        return json_reply(
            200,
            &json!({"layers": map, "total_layers": total, "my_layer_count": mine}),
        );
    }
    json_reply(
        200,
        &json!({"layers": list, "total_layers": total, "my_layer_count": mine}),
    )
}

/// The percentage of equal hashes is 100 here.
pub fn training(quick: bool) -> Reply {
    let enabled = training_enabled();
    if quick {
        let mut m =
            json!({"loss_trend": "improving", "hash_agreement": "100.0%", "global_loss": 2.84375});
        if on("agreement-number") {
            m["hash_agreement"] = json!(100.0);
        }
        if on("agreement-fraction") {
            m["hash_agreement"] = json!("1.0");
        }
        if on("verify-trend-stable") {
            m["loss_trend"] = json!("stable");
        }
        if odd("agreement-plain") {
            m["hash_agreement"] = json!("100 %");
        }
        let reason = if on("verify-reason-empty") {
            ""
        } else {
            "all four nodes hold one model and its loss falls"
        };
        let mut out = json!({"is_working": true, "reason": reason, "metrics": m});
        if on("verify-metrics-lost") {
            out.as_object_mut().unwrap().remove("metrics");
        }
        return json_reply(200, &out);
    }
    let node_id = if on("local-id-dht") {
        hex::encode(&st().dht_id)
    } else {
        st().node_id.clone()
    };
    let mut out = json!({
        "global_avg_loss": 2.84375, "global_min_loss": LOSS, "hash_agreement_rate": 1.0,
        "total_nodes_training": 4, "successful_syncs": 51, "failed_syncs": 9,
        "sync_success_rate": 0.85, "global_steps": 23_800, "global_tokens": 6_092_800,
        "data_shards_covered": [0, 1, 2, 5], "is_converging": true, "training_verified": true,
        "loss_trend": "improving",
        "local": {"node_id": node_id, "training_rounds": ROUND, "current_loss": LOSS, "is_training": enabled},
        "diloco": {
            "enabled": true, "inner_step_count": 140, "inner_steps_total": 350,
            "progress": 0.4, "outer_step_count": ROUND
        },
    });
    if on("agreement-percent") {
        out["hash_agreement_rate"] = json!(100.0);
    }
    if on("sync-rate-of-failed") {
        out["sync_success_rate"] = json!(0.15);
    }
    if on("sync-rate-ratio") {
        out["sync_success_rate"] = json!(51.0 / 9.0);
    }
    if on("progress-percent") {
        out["diloco"]["progress"] = json!(40.0);
    }
    if on("progress-integer-division") {
        out["diloco"]["progress"] = json!(140 / 350);
    }
    if on("min-loss-unset") {
        out["global_min_loss"] = json!(f64::from(f32::MAX));
    }
    if on("inner-steps-past") {
        out["diloco"]["inner_step_count"] = json!(490);
    }
    if on("shards-as-text") {
        out["data_shards_covered"] = json!(["0", "1", "2", "5"]);
    }
    if on("trend-capital") {
        out["loss_trend"] = json!("Improving");
    }
    if odd("diloco-half-tokens") {
        out["tokens_per_node"] = json!(1_523_200);
    }
    json_reply(200, &out)
}
