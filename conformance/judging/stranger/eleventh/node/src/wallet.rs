//! The accounts of the node API and what moves their money.

use crate::fault::{odd, on};
use crate::util::*;
use serde_json::{json, Value};
use std::time::SystemTime;

pub const FEE: i128 = 12_500;
pub const COOLDOWN: i64 = 5;
pub const CURRENCY: &str = "OPAL";

pub struct Entry {
    pub id: String,
    pub kind: &'static str,
    pub amount: i128,
    pub at: i64,
    pub more: Vec<(&'static str, Value)>,
}

pub struct Account {
    pub token: &'static str,
    pub address: &'static str,
    pub available: i128,
    pub staked: i128,
    pub pending: i128,
    pub start: i64,
    pub unlock: i64,
    pub history: Vec<Entry>,
}

pub struct Wallet {
    pub accounts: Vec<Account>,
    pub made: u64,
}

/// Why money does not move.
pub enum No {
    Short { required: i128, available: i128 },
    Other(u16, &'static str, String),
}

pub const EXPIRED: &str = "opal-expired-40c1";

impl Wallet {
    pub fn new() -> Wallet {
        let now = micros(SystemTime::now());
        let mut accounts = Vec::new();
        let rows = [
            ("opal-rich-9f27d3", "opl1quartz7w4k", 50_000 * ATOMS, 5),
            ("opal-second-61be08", "opl1basalt2m9c", 800 * ATOMS, 2),
            ("opal-poor-3a55e1", "opl1pumice5x0r", 60_000, 0),
        ];
        for (n, (token, address, available, rewards)) in rows.into_iter().enumerate() {
            let mut history = Vec::new();
            for i in 0..rewards {
                history.push(Entry {
                    id: format!("rw-{n}-{i:04}"),
                    kind: "reward",
                    amount: reward(n * 5 + i),
                    at: now - (rewards - i) as i64 * 7_200_000_000 - n as i64 * 1_000_000,
                    more: vec![(
                        "details",
                        json!({"proof_id": proof_id(n * 5 + i), "role": "validator"}),
                    )],
                });
            }
            accounts.push(Account {
                token,
                address,
                available,
                staked: 0,
                pending: 0,
                start: 0,
                unlock: 0,
                history,
            });
        }
        Wallet { accounts, made: 0 }
    }

    fn new_id(&mut self) -> String {
        self.made += 1;
        if on("tx-id-by-second") {
            return format!("tx-{}", micros(SystemTime::now()) / 1_000_000);
        }
        format!("tx-{:05}-{}", self.made, rand_hex(6))
    }

    pub fn send(&mut self, me: usize, to: &str, amount: i128, memo: &str) -> Result<Value, No> {
        let fee = if odd("no-fee") { 0 } else { FEE };
        let mut need = amount + fee;
        if on("fee-not-checked") {
            need = amount;
        }
        let mut available = self.accounts[me].available;
        if on("send-counts-pending") {
            available += self.accounts[me].pending;
        }
        if on("send-all-refused") && need == available {
            available -= 1;
        }
        if available < need {
            if on("fee-on-refusal") && self.accounts[me].available >= fee {
                self.accounts[me].available -= fee;
            }
            if on("refused-send-listed") {
                let id = self.new_id();
                self.note(me, id, "send", -amount, vec![("to", json!(to))]);
            }
            let required = if on("required-without-fee") {
                amount
            } else {
                amount + fee
            };
            return Err(No::Short {
                required,
                available: self.accounts[me].available,
            });
        }
        let id = self.new_id();
        let other = self.accounts.iter().position(|a| a.address == to);
        let before = other.map(|o| self.accounts[o].available);
        let taken = if on("send-takes-whole-units") {
            amount / ATOMS * ATOMS + fee
        } else if on("send-fee-ten-times") && amount >= 10 * ATOMS {
            amount + fee * 10
        } else if on("fee-not-taken-with-memo") && !memo.is_empty() {
            amount
        } else {
            amount + fee
        };
        self.accounts[me].available -= taken;
        if let Some(o) = other {
            if on("self-transfer-stale") && o == me {
                self.accounts[o].available = before.unwrap() + amount;
            } else if on("receiver-two-decimals") {
                self.accounts[o].available += amount / 10_000 * 10_000;
            } else if on("received-is-pending") {
                self.accounts[o].pending += amount;
            } else if on("receiver-gets-net") {
                self.accounts[o].available += (amount - fee).max(0);
            } else {
                self.accounts[o].available += amount;
            }
            if o != me || on("self-transfer-received") {
                let sign = if on("received-negative") { -1 } else { 1 };
                let kind = if on("received-as-send") {
                    "send"
                } else {
                    "receive"
                };
                let from = self.accounts[me].address;
                let rid = if on("tx-id-shared") {
                    id.clone()
                } else {
                    format!("{id}-in")
                };
                let mut more = vec![("from", json!(from)), ("memo", json!(memo))];
                if kind == "send" {
                    more.push(("to", json!(to)));
                }
                self.note(o, rid, kind, sign * amount, more);
            }
        }
        let mut list_to = to.to_string();
        if on("history-to-foreign-lost") && other.is_none() {
            list_to = "external".into();
        }
        let skip = (on("memo-less-not-listed") && memo.is_empty())
            || (on("foreign-not-listed") && other.is_none());
        let listed = if on("history-amount-with-fee") {
            -(amount + fee)
        } else if on("history-send-positive") {
            amount
        } else if on("history-amount-truncated") {
            -(amount / ATOMS * ATOMS)
        } else {
            -amount
        };
        let who = if on("history-at-receiver") {
            other.unwrap_or(me)
        } else {
            me
        };
        if !skip {
            let more = vec![("to", json!(list_to)), ("memo", json!(memo))];
            self.note(who, id.clone(), "send", listed, more);
        }
        let mut shown = memo.to_string();
        if on("memo-ascii") {
            shown = memo.replace(|c: char| !c.is_ascii(), "?");
        } else if on("memo-html") {
            shown = memo.replace('&', "&amp;").replace('<', "&lt;");
        } else if on("memo-trimmed-32") {
            shown = memo.chars().take(32).collect();
        }
        let from = if on("from-is-token-owner-0") {
            self.accounts[0].address
        } else {
            self.accounts[me].address
        };
        let at = if on("tx-time-of-start") {
            crate::state::st().start_us
        } else if on("tx-time-local") {
            micros(SystemTime::now()) + 3_600_000_000
        } else {
            micros(SystemTime::now())
        };
        let mut amount_out = units(amount);
        if on("amount-f32") {
            amount_out = json!(f64::from(amount as f32 / 1e6_f32));
        }
        let fee_out = if on("fee-in-atoms") {
            raw_num(&fee.to_string())
        } else {
            units(fee)
        };
        Ok(json!({
            "transaction_id": id, "from": from,
            "to": if on("to-lowercase") { to.to_lowercase() } else { to.to_string() },
            "amount": amount_out, "fee": fee_out, "memo": shown,
            "status": if on("status-upper") { "CONFIRMED" } else if odd("transfer-settled") { "settled" } else { "confirmed" },
            "timestamp": iso_micros(at),
        }))
    }

    pub fn note(
        &mut self,
        who: usize,
        id: String,
        kind: &'static str,
        amount: i128,
        more: Vec<(&'static str, Value)>,
    ) {
        let mut at = micros(SystemTime::now());
        if on("tx-time-of-start") {
            at = crate::state::st().start_us;
        }
        self.accounts[who].history.push(Entry {
            id,
            kind,
            amount,
            at,
            more,
        });
    }

    /// Takes the cost of a generation.
    pub fn charge(&mut self, me: usize, cost: i128) -> Result<(), No> {
        let a = &mut self.accounts[me];
        if a.available < cost {
            let available = a.available;
            if on("charge-takes-rest") {
                a.available = 0;
            }
            return Err(No::Short {
                required: cost,
                available,
            });
        }
        a.available -= cost;
        Ok(())
    }
}

pub fn proof_id(i: usize) -> String {
    format!("pf-{}", &sha256_hex(format!("proof {i}").as_bytes())[..14])
}

/// What the proof has earned, in atoms.
pub fn reward(i: usize) -> i128 {
    if i % 4 == 3 {
        0
    } else {
        40_000 + 7_300 * i as i128
    }
}

pub fn refusal(no: No) -> Reply {
    match no {
        No::Short {
            required,
            available,
        } => {
            let mut d = json!({"required": units(required), "available": units(available)});
            if on("402-in-atoms") {
                d["available"] = raw_num(&available.to_string());
            }
            if on("402-strings") {
                d = json!({"required": d["required"].to_string(), "available": d["available"].to_string()});
            }
            if on("402-swapped") {
                d = json!({"required": units(available), "available": units(required)});
            }
            if on("402-missing-is-difference") {
                d["required"] = units(required - available);
            }
            if odd("402-more-details") {
                d["short_by"] = units(required - available);
            }
            let code = if on("402-code-other") {
                "INSUFFICIENT_FUNDS"
            } else {
                "INSUFFICIENT_BALANCE"
            };
            fail(402, code, "this account has too little for that", Some(d))
        }
        No::Other(status, code, message) => fail(status, code, &message, None),
    }
}
