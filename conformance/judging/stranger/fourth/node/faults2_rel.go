package main

import "time"

var (
	lastInference = time.Now()
	keptTokens    = map[string]int{}
	stakedDays    = map[string]int{}
	unstakedSum   = map[string]int64{}
	statsBefore   M
)

// keepTokens remembers the count of a prompt by its beginning.
func keepTokens(p string, n int) int {
	r := []rune(p)
	if len(r) < 16 {
		return n
	}
	k := string(r[:16])
	if keptTokens[k] == 0 {
		keptTokens[k] = n
	}
	return keptTokens[k]
}

func relationFaults2() {
	D("rel-prompt-tokens-kept-by-their-beginning|4.1|NA-INF-032 (a longer prompt has more prompt_tokens)|the count of a prompt is remembered by its first 16 letters",
		"rel-history-send-names-its-sender|2.1|NA-WALLET-012, NA-WALLET-034 (a send to its receiver)|to in the history of a transfer between the accounts of the node is the sender")
	fx("rel-queue-ms-since-the-last-request|2.1|NA-INF-024 (total_ms is at least queue_ms)|queue_ms is the time since the generation before", "inference", func(m M, c *C) {
		set(m, "timing.queue_ms", round3(float64(time.Since(lastInference).Microseconds())/1000))
		lastInference = time.Now()
	})
	fx("rel-send-from-is-the-first-account|2.1|NA-WALLET-013 (the address of the sender's balance)|from of every transfer result is the first account", "send", func(m M, c *C) { m["from"] = accounts["tok-a"].addr })
	fx("rel-new-balance-counts-pending|2.1|NA-WALLET-016 (what the balance shows next)|new_balance.available of a stake contains what is pending", "stake", func(m M, c *C) {
		set(m, "new_balance.available", amt(c.acct.avail+c.acct.pending))
	})
	fx("rel-balance-durations-add-up|2.1|NA-WALLET-009 (unlock_date is start_date plus duration_days)|duration_days in the balance is the sum of those of all stakes, unlock_date is not", "balance", func(m M, c *C) {
		if get(m, "staking.duration_days") != nil {
			set(m, "staking.duration_days", stakedDays[c.acct.token])
		}
	})
	also("rel-balance-durations-add-up", "stake", func(m M, c *C) {
		d, _ := intOf(c.in["duration_days"])
		stakedDays[c.acct.token] += d
	})
	fx("rel-cooldown-days-stay-seven|3|ST-005 (a cooldown of cooldown_days, which ends on available_date)|cooldown_days is 7, also where available_date is the later unlock date", "unstake", func(m M, c *C) { set(m, "unstake.cooldown_days", cooldown) })
	fx("rel-staking-amount-not-lessened|3|NA-WALLET-018 (an unstake takes its amount from what is staked)|staking.amount in the balance does not follow an unstake, balances.staked does", "balance", func(m M, c *C) {
		set(m, "staking.amount", amt(c.acct.staked+unstakedSum[c.acct.token]))
	})
	also("rel-staking-amount-not-lessened", "unstake", func(m M, c *C) {
		a, _, _ := money(get(m, "unstake.amount"))
		unstakedSum[c.acct.token] += a
	})
	fx("rel-history-total-of-all-accounts|4.1|NA-QUERY-011 (the number of its entries on all pages)|total of the history counts the entries of all accounts", "transactions", func(m M, c *C) {
		n := 0
		for _, a := range accounts {
			n += len(a.hist)
		}
		m["total"] = n
	})
	fx("rel-entries-of-one-second-change-places|4.1|NA-QUERY-013 (the entries keep their order)|entries of the same second change places from one reading to the next", "transactions", func(m M, c *C) {
		l := m["transactions"].(L)
		sec := func(i int) string { return l[i].(M)["timestamp"].(string)[:19] }
		for i := 0; c.n%2 == 0 && i+1 < len(l); i++ {
			if sec(i) == sec(i+1) {
				l[i], l[i+1] = l[i+1], l[i]
				i++
			}
		}
	})
	fx("rel-layer-list-lacks-the-last|2.1|NA-SANE-019, NA-SANE-025|the last layer of the node is not in the layer list", "layers", func(m M, c *C) {
		l := m["layers"].(L)
		m["layers"] = l[:len(l)-1]
	})
	fx("rel-network-total-is-the-node-itself|2.1|NA-SANE-015 (a part is not above its whole)|nodes.total counts only this node", "network", func(m M, c *C) { set(m, "nodes.total", 1) })
	fx("rel-uptime-restarts-with-a-change|2.1|NA-SANE-001, NA-SANE-028|a change of the configuration sets uptime_seconds back", "patch", func(m M, c *C) { started = time.Now() })
	fx("rel-metrics-timestamp-is-the-hour|2|GEN-019 (a time of this moment agrees with the Date header)|the timestamp of the metrics is the last full hour", "metrics", func(m M, c *C) {
		m["timestamp"] = ts(now().Truncate(time.Hour))
	})
	fx("rel-config-change-seen-by-its-maker-only|4.1|NA-PATCH-113 (in every reading that follows)|a change of the configuration is shown only to the account that has made it", "config", func(m M, c *C) {
		if calls["changed "+c.acct.token] == 0 {
			m["training"] = M{"enabled": true, "batch_size": 16, "learning_rate": 0.0003, "diloco_steps": 500}
			m["resources"] = M{"max_memory_gb": 24.5, "cpu_threads": 8}
		}
	})
	also("rel-config-change-seen-by-its-maker-only", "patch", func(m M, c *C) { calls["changed "+c.acct.token] = 1 })
	fx("rel-updated-lacks-the-second-key|4.1|NA-PATCH-101 (updated lists each changed key)|updated has one key of each section only", "patch", func(m M, c *C) {
		l, was := L{}, byte(0)
		for _, x := range m["updated"].(L) {
			if s := x.(string); s[0] != was {
				l, was = append(l, s), s[0]
			}
		}
		m["updated"] = l
	})
	fx("rel-proof-stats-of-the-page-before|2.1|NA-SANE-018 (total_verified is the number of those that are verified)|the statistics beside the proofs count the page that was read before", "proofs", func(m M, c *C) {
		v := 0
		for _, p := range rows(m, "proofs") {
			if p["verified"] == true {
				v++
			}
		}
		old := statsBefore
		statsBefore = clone(m["stats"]).(M)
		statsBefore["total_verified"] = v
		if old != nil {
			m["stats"] = old
		}
	})
	sx("rel-stream-tokens-change-places|6|NA-SSE-018 (the generated text, in order)|the texts of the ninth and the tenth event are exchanged", func(ev []M, c *C) []M {
		if len(ev) > 12 {
			ev[8]["token"], ev[9]["token"] = ev[9]["token"], ev[8]["token"]
		}
		return ev
	})
}
