//! The chain: blocks, accounts, and the jobs of inference.

use crate::fault::on;
use crate::sign::*;
use crate::text::{generate, Params};
use crate::util::*;
use serde_json::{json, Value};
use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

pub struct Tx {
    pub hash: String,
    pub signer: String,
    pub request_id: String,
    pub body: Value,
}

pub struct Block {
    pub height: i64,
    pub hash: String,
    pub parent: String,
    pub at: i64,
    pub txs: Vec<Tx>,
}

#[derive(Default, Clone)]
pub struct Account {
    pub spendable: i128,
    pub locked: i128,
    pub nonce: i64,
}

#[derive(Clone, PartialEq)]
pub enum Phase {
    Pending,
    Completed { text: String, height: i64 },
    Expired { height: i64 },
}

#[derive(Clone)]
pub struct Job {
    pub account: String,
    pub body: Value,
    pub tx_hash: String,
    pub phase: Phase,
    pub in_block: i64,
}

pub struct Chain {
    pub blocks: Vec<Block>,
    pub accounts: BTreeMap<String, Account>,
    pub jobs: BTreeMap<String, Job>,
    pub finished: VecDeque<String>,
    pub waiting: Vec<Tx>,
    pub attempts: i64,
    pub assigned: Vec<(String, String)>,
}

pub fn root(kind: &str, round: i64) -> String {
    sha256_hex(format!("{kind} root of round {round}").as_bytes())
}

pub fn serving_root() -> String {
    root("serving", 16)
}

pub const TOTAL_PRICE: i128 = PRICE + PRICE_FEE;

impl Chain {
    pub fn new() -> Chain {
        let mut c = Chain {
            blocks: Vec::new(),
            accounts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            finished: VecDeque::new(),
            waiting: Vec::new(),
            attempts: 60,
            assigned: Vec::new(),
        };
        for (name, atoms) in [
            ("buyer", 7_500_000_123),
            ("second", 910_000_007),
            ("provider", 42),
        ] {
            let a = c.accounts.entry(public(name)).or_default();
            a.spendable = atoms;
        }
        let start = micros(SystemTime::now()) - 44 * 1_500_000;
        let prompts = [
            "why is basalt dark",
            "name a river",
            "count the leaves",
            "what is dew",
            "hush",
        ];
        let mut n = 0;
        for i in 0..44 {
            if [4, 11, 19, 26, 33].contains(&i) {
                let quiet = n == 4;
                let input = json!({
                    "prompt": prompts[n], "nonce": n, "max_tokens": 12,
                    "provider": if quiet { QUIET } else { PROVIDER },
                    "expires_height": if quiet { 38 } else { 400 },
                });
                let tx = seal("buyer", &request_body(&input).to_string(), false);
                let _ = c.submit(tx.to_string().as_bytes());
                n += 1;
            }
            c.tick(start + i * 1_500_000);
        }
        c
    }

    pub fn height(&self) -> i64 {
        self.blocks.last().map_or(0, |b| b.height)
    }

    /// Makes the next block.
    pub fn tick(&mut self, at: i64) {
        let height = self.height() + 1;
        let parent = self
            .blocks
            .last()
            .map_or("0".repeat(64), |b| b.hash.clone());
        let txs: Vec<Tx> = self.waiting.drain(..).collect();
        for tx in &txs {
            if let Some(j) = self.jobs.get_mut(&tx.request_id) {
                j.in_block = height;
            }
        }
        let mut text = format!("{height}|{parent}|{at}");
        for tx in &txs {
            text.push_str(&tx.hash);
        }
        let hash = sha256_hex(text.as_bytes());
        self.blocks.push(Block {
            height,
            hash,
            parent,
            at,
            txs,
        });
        let open: Vec<String> = self
            .jobs
            .iter()
            .filter(|(_, j)| j.phase == Phase::Pending && j.in_block > 0)
            .map(|(id, _)| id.clone())
            .collect();
        for id in open {
            self.advance(&id, height);
        }
    }

    fn advance(&mut self, id: &str, height: i64) {
        let fresh = height > 44;
        let Some(j) = self.jobs.get_mut(id) else {
            return;
        };
        let expires = j.body["expires_height"].as_i64().unwrap_or(0);
        let account = j.account.clone();
        let mut awake = j.body["provider"] == json!(PROVIDER);
        if on("quiet-provider-answers") && height + 1 >= expires {
            awake = true;
        }
        if on("never-completed") && fresh {
            awake = false;
        }
        let late = on("late-answer-counts") && !awake && height >= expires && fresh;
        if late || (awake && height > j.in_block && height < expires) {
            let p = Params {
                prompt: j.body["prompt"].as_str().unwrap_or("").to_string(),
                max_tokens: j.body["max_tokens"].as_u64().unwrap_or(1).min(256) as usize,
                temperature: 0.0,
                top_p: 1.0,
                top_k: 1,
                stream: false,
                stops: Vec::new(),
            };
            let text = generate(&p).text();
            j.phase = Phase::Completed { text, height };
            self.settle(&account, true, fresh);
            self.finish(id);
        } else if height >= expires && !(on("never-expires") && fresh) {
            j.phase = Phase::Expired { height };
            self.settle(&account, false, fresh);
            self.finish(id);
        }
    }

    fn settle(&mut self, account: &str, done: bool, fresh: bool) {
        let a = self.accounts.entry(account.to_string()).or_default();
        let keep = fresh && on("lock-stays") && done;
        if !keep {
            a.locked -= TOTAL_PRICE;
        }
        if done {
            if fresh && on("taken-again-at-end") {
                a.spendable -= TOTAL_PRICE;
            }
            let p = self.accounts.entry(public("provider")).or_default();
            p.spendable += TOTAL_PRICE;
        } else if fresh && on("refund-nothing") {
            a.spendable += 0;
        } else {
            a.spendable += TOTAL_PRICE;
        }
    }

    fn finish(&mut self, id: &str) {
        self.finished.push_back(id.to_string());
        let keep = if on("jobs-kept-two") { 2 } else { 128 };
        while self.finished.len() > keep {
            if let Some(old) = self.finished.pop_front() {
                self.jobs.remove(&old);
            }
        }
    }

    /// The preliminary check of a transaction: its hash, or a code and a reason.
    pub fn submit(&mut self, raw: &[u8]) -> Result<String, (i64, String)> {
        let bad = |m: &str| (3, m.to_string());
        let text = std::str::from_utf8(raw).map_err(|_| bad("the transaction is no text"))?;
        let envelope: Value =
            serde_json::from_str(text).map_err(|_| bad("the transaction is no envelope"))?;
        let trust = on("tx-signature-unchecked");
        let (said, signer) = open(&envelope, trust).map_err(|m| (4, m))?;
        let body: Value = serde_json::from_str(&said).map_err(|_| bad("nothing is said"))?;
        let text_of = |k: &str| body[k].as_str().unwrap_or("").to_string();
        if text_of("act") != "infer" || text_of("prompt").is_empty() {
            return Err(bad("only requests of inference are taken"));
        }
        if text_of("chain_id") != CHAIN && !on("tx-any-chain") {
            return Err((5, "this is another chain".into()));
        }
        let expires = body["expires_height"].as_i64().unwrap_or(0);
        if expires <= self.height() && !on("tx-past-expiry") {
            return Err((6, "the block of its expiry has been made".into()));
        }
        let atoms = |k: &str| text_of(k).parse::<i128>().unwrap_or(-1);
        if atoms("price_atoms") != PRICE || atoms("fee_atoms") != PRICE_FEE {
            return Err((8, "the price is another one".into()));
        }
        if ![PROVIDER, QUIET].contains(&text_of("provider").as_str()) {
            return Err((9, "no such provider".into()));
        }
        if text_of("checkpoint") != serving_root() {
            return Err((10, "that checkpoint is not served".into()));
        }
        let fresh = self.height() >= 44;
        let a = self.accounts.entry(signer.clone()).or_default();
        if body["nonce"].as_i64() != Some(a.nonce) {
            let replay = body["nonce"].as_i64() < Some(a.nonce);
            if on("replay-takes-fee") && replay {
                a.spendable -= PRICE_FEE;
            }
            if on("replay-raises-nonce") && replay {
                a.nonce += 1;
            }
            return Err((7, format!("the next nonce is {}", a.nonce)));
        }
        if a.spendable < TOTAL_PRICE {
            return Err((11, "the account has too little".into()));
        }
        if !(on("nonce-stays") && fresh) {
            a.nonce += 1;
        }
        if !(on("budget-not-taken") && fresh) {
            a.spendable -= TOTAL_PRICE;
            a.locked += TOTAL_PRICE;
        }
        if on("budget-taken-tenfold") && fresh {
            a.spendable -= TOTAL_PRICE * 9;
        }
        let hash = sha256_hex(raw);
        let request_id = if on("request-id-is-hash") {
            hash.clone()
        } else {
            request_id(&said, &signer)
        };
        self.jobs.insert(
            request_id.clone(),
            Job {
                account: signer.clone(),
                body: body.clone(),
                tx_hash: hash.clone(),
                phase: Phase::Pending,
                in_block: 0,
            },
        );
        if on("tx-listed-twice") && fresh {
            self.waiting.push(Tx {
                hash: hash.clone(),
                signer: signer.clone(),
                request_id: request_id.clone(),
                body: body.clone(),
            });
        }
        let shown = if on("accepted-hash-is-id") && fresh {
            request_id.clone()
        } else {
            hash.clone()
        };
        self.waiting.push(Tx {
            hash,
            signer,
            request_id,
            body,
        });
        Ok(shown)
    }

    pub fn block(&self, height: i64) -> Option<&Block> {
        self.blocks.iter().find(|b| b.height == height)
    }
}
