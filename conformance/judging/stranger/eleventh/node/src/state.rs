//! Everything that the node keeps in memory.

use crate::chain::Chain;
use crate::dht::Dht;
use crate::fault::on;
use crate::pipe::Pipe;
use crate::util::*;
use crate::wallet::Wallet;
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Instant, SystemTime};

pub const LAYERS: [i64; 4] = [3, 5, 6, 8];
pub const TOTAL_LAYERS: i64 = 9;
pub const HIDDEN: usize = 24;
pub const VOCAB: usize = 33;
pub const ROUND: i64 = 17;
pub const PARAMS: i64 = 1_482_624;
pub const LOSS: f64 = 2.718_75;

#[derive(Default)]
pub struct Counters {
    pub requests: AtomicI64,
    pub tokens: AtomicI64,
    pub running: AtomicI64,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    pub connections: AtomicI64,
    pub calls: AtomicI64,
    pub submitted: AtomicI64,
    pub accepted: AtomicI64,
}

pub struct State {
    pub port: u16,
    pub start: Instant,
    pub start_us: i64,
    pub node_id: String,
    pub dht_id: Vec<u8>,
    pub count: Counters,
    pub latencies: Mutex<VecDeque<f64>>,
    pub recent: Mutex<VecDeque<Instant>>,
    pub wallet: Mutex<Wallet>,
    pub config: Mutex<Value>,
    pub chain: Mutex<Chain>,
    pub dht: Mutex<Dht>,
    pub pipe: Mutex<Pipe>,
    pub scratch: Mutex<Scratch>,
}

/// Variables that only faults use.
#[derive(Default)]
pub struct Scratch {
    pub token: Option<usize>,
    pub bad_tokens: Vec<Instant>,
    pub balances: Vec<(usize, Instant, Value)>,
    pub prompt: String,
    pub limit: Option<usize>,
    pub n: u64,
    pub text: String,
    pub bytes: Vec<u8>,
    pub list: Vec<String>,
    pub flag: bool,
    pub at: Option<Instant>,
}

static STATE: OnceLock<State> = OnceLock::new();

pub fn st() -> &'static State {
    STATE.get().expect("the state is made first")
}

/// A lock that outlives a panic of another holder.
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

pub fn init(port: u16) {
    let key = sha256(format!("node key of port {port}").as_bytes());
    let dht_id = sha1(&key);
    let node_id = format!("qn-{}", hex::encode(&dht_id[..6]));
    let config = json!({
        "node_id": node_id,
        "port": port,
        "grpc_port": port as u32 + 1000,
        "tracker_url": "http://127.0.0.1:7400/announce",
        "training": {
            "enabled": true, "batch_size": 6, "learning_rate": 0.00025, "diloco_steps": 350
        },
        "resources": {"max_memory_gb": 11.5, "cpu_threads": 3},
    });
    let state = State {
        port,
        start: Instant::now(),
        start_us: micros(SystemTime::now()),
        node_id,
        dht_id,
        count: Counters::default(),
        latencies: Mutex::new(VecDeque::new()),
        recent: Mutex::new(VecDeque::new()),
        wallet: Mutex::new(Wallet::new()),
        config: Mutex::new(config),
        chain: Mutex::new(Chain::new()),
        dht: Mutex::new(Dht::new()),
        pipe: Mutex::new(Pipe::default()),
        scratch: Mutex::new(Scratch::default()),
    };
    if STATE.set(state).is_err() {
        panic!("the state is made once");
    }
}

pub fn training_enabled() -> bool {
    let c = lock(&st().config);
    c["training"]["enabled"].as_bool().unwrap_or(true)
}

/// What the node has served, for the latency figures.
pub fn note_latency(ms: f64) {
    let mut l = lock(&st().latencies);
    if on("latency-in-seconds") {
        l.push_back(ms / 1000.0);
    } else {
        l.push_back(ms);
    }
    if l.len() > 1000 {
        l.pop_front();
    }
}
