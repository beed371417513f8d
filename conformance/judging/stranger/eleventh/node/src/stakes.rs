//! Stakes, unstakes, and the balance.

use crate::fault::{odd, on};
use crate::util::*;
use crate::wallet::*;
use serde_json::{json, Value};

fn multiplier(days: i64) -> Value {
    json!((1.0 + days as f64 / 730.0).min(3.0))
}

impl Wallet {
    pub fn stake(&mut self, me: usize, amount: i128, days: i64) -> Result<Value, No> {
        let a = &mut self.accounts[me];
        let mut have = a.available;
        if on("stake-counts-staked") {
            have += a.staked;
        }
        if on("stake-from-pending") {
            have += a.pending;
        }
        if have < amount {
            if on("refused-stake-kept") {
                a.staked += amount;
            }
            if on("stake-short-422") {
                return Err(No::Other(422, "BAD_VALUE", "more than you have".into()));
            }
            return Err(No::Short {
                required: amount,
                available: a.available,
            });
        }
        let before = (a.available, a.staked);
        let days = if on("stake-days-u8") {
            i64::from(days as u8)
        } else {
            days
        };
        let mut today = today();
        if on("stake-starts-tomorrow") {
            today += 1;
        }
        let mut unlock = today + days;
        if on("stake-unlock-early") {
            unlock -= 1;
        }
        if on("stake-months") && days >= 30 {
            unlock = today + days / 30 * 30;
        }
        if a.staked > 0 && !on("second-stake-restarts") {
            a.unlock = a.unlock.max(unlock);
        } else {
            a.start = today;
            a.unlock = unlock;
        }
        if on("stake-taken-twice") && a.staked > 0 {
            a.available -= amount;
        }
        if on("stake-from-pending") {
            let p = a.pending.min(amount);
            a.pending -= p;
            a.available -= amount - p;
        } else {
            a.available -= amount;
        }
        if on("second-stake-replaces") {
            a.staked = amount;
        } else {
            a.staked += amount;
        }
        if on("stake-is-pending-too") {
            a.pending += amount;
        }
        let (start, unlock) = (a.start, a.unlock);
        let mut shown = unlock - start;
        if on("stake-echoes-days") {
            shown = days;
        }
        let (av, sk) = if on("new-balance-before") {
            before
        } else {
            (a.available, a.staked)
        };
        let new_balance = if on("new-balance-swapped") {
            json!({"available": units(sk), "staked": units(av)})
        } else {
            json!({"available": units(av), "staked": units(sk)})
        };
        let id = format!("st-{}", rand_hex(7));
        self.note(me, id, "stake", -amount, vec![("days", json!(days))]);
        let mut out = json!({
            "success": true,
            "stake": {
                "amount": units(amount), "duration_days": shown, "start_date": date(start),
                "unlock_date": date(unlock), "multiplier": multiplier(shown),
            },
            "new_balance": new_balance,
        });
        if on("multiplier-null") && shown < 365 {
            out["stake"]["multiplier"] = Value::Null;
        }
        if on("stake-dates-with-time") {
            out["stake"]["start_date"] = json!(iso_micros(start * 86_400_000_000));
        }
        Ok(out)
    }

    pub fn unstake(&mut self, me: usize, amount: i128) -> Result<Value, No> {
        let a = &mut self.accounts[me];
        let over = if on("unstake-strict") {
            amount >= a.staked
        } else {
            amount > a.staked
        };
        if over && !on("unstake-saturates") {
            if on("refused-unstake-clears") {
                a.pending += a.staked;
                a.staked = 0;
            }
            return Err(No::Other(
                409,
                "NOT_STAKED",
                "that much is not staked".into(),
            ));
        }
        let whole = a.staked;
        a.staked = (a.staked - amount).max(0);
        if on("unstake-keeps-staked") {
            a.staked = whole;
        }
        if on("unstake-all") {
            a.pending += whole;
            a.staked = 0;
        } else if on("unstake-at-once") {
            a.available += amount;
        } else if on("pending-overwritten") {
            a.pending = amount;
        } else if on("unstake-loses") {
            // the amount waits nowhere
        } else {
            a.pending += amount;
        }
        if a.staked == 0 {
            a.start = 0;
            a.unlock = 0;
        } else if on("unstake-restarts-term") {
            a.start = today() + COOLDOWN;
            a.unlock = a.start + 30;
        }
        let mut ready = today() + COOLDOWN;
        if on("cooldown-hours") {
            ready = today();
        }
        if on("cooldown-date-plus-one") {
            ready += 1;
        }
        let id = format!("us-{}", rand_hex(7));
        self.note(me, id, "unstake", amount, vec![]);
        let shown = if on("unstake-shows-rest") {
            units(self.accounts[me].staked)
        } else {
            units(amount)
        };
        Ok(json!({
            "success": true,
            "unstake": {
                "amount": shown, "available_date": date(ready),
                "cooldown_days": if on("cooldown-in-seconds") { COOLDOWN * 86_400 } else { COOLDOWN },
            },
        }))
    }

    pub fn balance(&self, me: usize) -> Value {
        let a = &self.accounts[me];
        let mut total = a.available + a.staked + a.pending;
        if odd("total-without-pending") {
            total = a.available + a.staked;
        }
        let mut staking = json!({ "amount": units(a.staked) });
        if a.staked > 0 || odd("staking-fields-always") {
            let (start, unlock) = if a.staked > 0 {
                (a.start, a.unlock)
            } else {
                (today(), today())
            };
            staking["duration_days"] = json!(unlock - start);
            staking["start_date"] = json!(date(start));
            staking["unlock_date"] = json!(date(unlock));
            if on("unlock-30-days") {
                staking["unlock_date"] = json!(date(start + (unlock - start) / 30 * 30));
            }
            staking["multiplier"] = multiplier(unlock - start);
        }
        if on("staking-amount-available") {
            staking["amount"] = units(a.available.min(a.staked * 2));
        }
        let mut balances = json!({
            "available": units(a.available), "staked": units(a.staked),
            "pending": units(a.pending), "total": units(total),
        });
        if on("balance-strings") {
            balances["available"] = json!(balances["available"].to_string());
        }
        if on("balance-part-above-total") {
            balances["total"] = units(a.available - a.staked);
        }
        json!({"address": a.address, "balances": balances, "staking": staking})
    }
}
