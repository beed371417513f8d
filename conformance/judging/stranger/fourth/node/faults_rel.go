package main

import (
	"fmt"
	"math"
	"time"
)

var firstMetrics string

func relationFaults() {
	fx("rel-total-tokens-without-prompt|2.1|NA-INF-022|total_tokens is completion_tokens", "inference", func(m M, c *C) { set(m, "usage.total_tokens", get(m, "usage.completion_tokens")) })
	fx("rel-tokens-generated-counts-the-prompt-when-stopped|2.1|NA-INF-023|tokens_generated counts one more than usage if a stop sequence ended the text", "inference", func(m M, c *C) {
		if m["finish_reason"] == "stop" {
			m["tokens_generated"] = int(num(m["tokens_generated"])) + 1
		}
	})
	fx("rel-total-ms-below-inference-ms-of-long-texts|2.1|NA-INF-037|total_ms of a generation of more than 100 tokens is half of inference_ms", "inference", func(m M, c *C) {
		if num(m["tokens_generated"]) > 100 {
			v := num(get(m, "timing.inference_ms"))
			set(m, "timing.inference_ms", v+0.2)
			set(m, "timing.total_ms", round3(v/2))
		}
	})
	fx("rel-total-ms-in-microseconds|2.1|NA-INF-034 (not longer than the request took)|the figures of timing are in microseconds", "inference", func(m M, c *C) {
		for _, k := range []string{"queue_ms", "inference_ms", "total_ms"} {
			set(m, "timing."+k, (num(get(m, "timing."+k))+1)*1000)
		}
	})
	fx("rel-queue-ms-negative|2.1|NA-INF-024 (none of the three is negative)|queue_ms is below zero", "inference", func(m M, c *C) { set(m, "timing.queue_ms", -0.125) })
	fx("rel-same-id-for-the-same-prompt|2.1|NA-INF-026|the id of a result follows from its prompt", "inference", func(m M, c *C) { m["id"] = "inf_" + hx(c.prompt)[:20] })
	fx("rel-cost-of-currency-empty|2.1|NA-INF-025|the currency of a cost is empty", "inference", func(m M, c *C) { set(m, "cost.currency", "") })
	fx("rel-cost-is-a-tenth-of-the-charge|2.1|NA-WALLET-023|cost is a tenth of what is taken", "inference", func(m M, c *C) { set(m, "cost.amount", num(get(m, "cost.amount"))/10) })
	fx("rel-prompt-tokens-differ-by-one-in-results|6|NA-SSE-017 (a stream counts a prompt as a result does)|results count one token more for the prompt than streams", "inference", func(m M, c *C) {
		set(m, "usage.prompt_tokens", int(num(get(m, "usage.prompt_tokens")))+1)
		set(m, "usage.total_tokens", int(num(get(m, "usage.total_tokens")))+1)
	})
	fx("rel-prompt-tokens-constant|4.1|NA-INF-032 (a longer prompt has more prompt_tokens)|prompt_tokens is 8 for every prompt", "inference", func(m M, c *C) {
		set(m, "usage.prompt_tokens", 8)
		set(m, "usage.total_tokens", 8+int(num(get(m, "usage.completion_tokens"))))
	})
	fx("rel-send-repeats-a-rounded-amount|2.1|NA-WALLET-001|the amount of a transfer result is rounded to two decimals", "send", func(m M, c *C) { m["amount"] = math.Round(num(m["amount"])*100) / 100 })
	fx("rel-send-amount-includes-the-fee|2.1|NA-WALLET-001|the amount of a transfer result includes the fee", "send", func(m M, c *C) { m["amount"] = math.Round((num(m["amount"])+num(m["fee"]))*unit) / unit })
	fx("rel-send-memo-in-ascii|2.1|NA-WALLET-032 (in whatever letters)|letters outside ASCII are question marks in the memo of the result", "send", func(m M, c *C) { m["memo"] = ascii(m["memo"].(string)) })
	fx("rel-send-memo-trimmed|2.1|NA-WALLET-001|the memo of a transfer result is cut after 32 characters", "send", func(m M, c *C) {
		if r := []rune(m["memo"].(string)); len(r) > 32 {
			m["memo"] = string(r[:32])
		}
	})
	fx("rel-send-from-is-the-node|2.1|NA-WALLET-013|from of a transfer result is the node id", "send", func(m M, c *C) { m["from"] = nodeID })
	fx("rel-history-has-other-transaction-ids|2.1|NA-WALLET-006|the history writes the ids of new transfers in capitals", "transactions", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if t["type"] == "send" {
				t["id"] = "TX" + t["id"].(string)[2:]
			}
		}
	})
	fx("rel-unlock-date-counts-months-of-30-days|2.1|NA-WALLET-003|unlock_date of a stake result is wrong by a day for more than 30 days", "stake", func(m M, c *C) {
		if d := num(get(m, "stake.duration_days")); d > 30 {
			t, _ := time.Parse("2006-01-02", get(m, "stake.start_date").(string))
			set(m, "stake.unlock_date", date(t.Add(days(int(d)+1))))
		}
	})
	fx("rel-balance-unlock-date-is-start-date|2.1|NA-WALLET-009|unlock_date in the balance is the start_date", "balance", func(m M, c *C) {
		if get(m, "staking.start_date") != nil {
			set(m, "staking.unlock_date", get(m, "staking.start_date"))
		}
	})
	fx("rel-stake-new-balance-is-the-old-one|2.1|NA-WALLET-016|available in new_balance is that before the stake", "stake", func(m M, c *C) {
		set(m, "new_balance.available", amt(int64(math.Round((num(get(m, "new_balance.available"))+num(get(m, "stake.amount")))*unit))))
	})
	fx("rel-staking-shows-the-latest-stake-only|2.1|NA-WALLET-017, part and whole|staking.amount in the balance is half of what is staked", "balance", func(m M, c *C) {
		if c.acct.staked > 0 {
			set(m, "staking.amount", amt(c.acct.staked/2))
		}
	})
	fx("rel-unstake-date-without-cooldown|3|ST-005 (a cooldown of cooldown_days, which ends on available_date)|available_date is a day early", "unstake", func(m M, c *C) {
		t, _ := time.Parse("2006-01-02", get(m, "unstake.available_date").(string))
		set(m, "unstake.available_date", date(t.Add(-days(1))))
	})
	fx("rel-unstake-repeats-what-remains|2.1|NA-WALLET-004|the amount of an unstake result is what remains staked", "unstake", func(m M, c *C) { set(m, "unstake.amount", amt(c.acct.staked)) })
	fx("rel-history-total-is-that-of-the-page|4.1|NA-QUERY-011|total of the history is the number of entries on the page", "transactions", func(m M, c *C) { m["total"] = len(m["transactions"].(L)) })
	fx("rel-history-total-from-the-start|4.1|NA-QUERY-011, NA-QUERY-017|total of the history does not count entries that were made since the start", "transactions", func(m M, c *C) { m["total"] = min(m["total"].(int), 50) })
	fx("rel-history-repeats-no-offset|4.1|NA-QUERY-003|offset of the history is always 0", "transactions", func(m M, c *C) { m["offset"] = 0 })
	fx("rel-history-limit-is-the-page-length|4.1|NA-QUERY-010|limit of the history is the number of entries of the page", "transactions", func(m M, c *C) {
		if c.q["offset"] > 0 || c.q["limit"] < 10 {
			m["limit"] = len(m["transactions"].(L)) + 1
		}
	})
	fx("rel-history-order-turns|4.1|NA-QUERY-013|every second reading of the history has the page in reverse", "transactions", func(m M, c *C) {
		if c.n%2 == 0 {
			l := m["transactions"].(L)
			for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
				l[i], l[j] = l[j], l[i]
			}
		}
	})
	fx("rel-peer-total-counts-the-node|2.1|NA-SANE-007|total of the peers counts the node itself", "peers", func(m M, c *C) { m["total"] = m["total"].(int) + 1 })
	fx("rel-layer-count-is-total|2.1|NA-SANE-005|my_layer_count is one more than the layers of the status", "layers", func(m M, c *C) { m["my_layer_count"] = len(myLayers) + 1 })
	fx("rel-layer-indices-from-one|2.1|NA-SANE-006, NA-SANE-025|the indices in the layer list count from 1", "layers", func(m M, c *C) {
		for _, r := range rows(m, "layers") {
			r["index"] = r["index"].(int) + 1
		}
	})
	fx("rel-total-layers-not-those-of-the-network|2.1|NA-SANE-021|total_layers of the layer list is 24, that of the network 12", "layers", func(m M, c *C) { m["total_layers"] = 24 })
	fx("rel-config-has-another-node-id|2.1|NA-SANE-003|node_id in the configuration has a suffix", "config", func(m M, c *C) { m["node_id"] = nodeID + "-1" })
	fx("rel-config-grpc-port-is-port-plus-one|1|GEN-001|grpc_port in the configuration is port plus 1", "config", func(m M, c *C) { m["grpc_port"] = httpPort + 1 })
	fx("rel-config-ports-are-the-defaults|2.1|NA-SANE-030|the ports in the configuration are always 8000 and 9000", "config", func(m M, c *C) { m["port"], m["grpc_port"] = 8000, 9000 })
	fx("rel-status-does-not-follow-training-enabled|2.1|NA-PATCH-116, NA-SANE-017|training.enabled in the status is always true", "status", func(m M, c *C) { set(m, "training.enabled", true) })
	fx("rel-node-id-changes|2.1|NA-SANE-002|node_id in the status differs from the fourth reading on", "status", func(m M, c *C) {
		if c.n > 3 {
			m["node_id"] = "orn-" + hx("other")[:16]
		}
	})
	fx("rel-uptime-twice-as-fast|2.1|NA-SANE-016|uptime_seconds counts half seconds", "status", func(m M, c *C) { m["uptime_seconds"] = int(time.Since(started).Seconds()*2) + 1 })
	fx("rel-uptime-stands-still|2.1|NA-SANE-023|uptime_seconds is that of the first reading", "status", func(m M, c *C) {
		if calls["up"] == 0 {
			calls["up"] = uptime()
		}
		m["uptime_seconds"] = calls["up"]
	})
	fx("rel-memory-used-above-total|2.1|NA-SANE-015|gpu_memory_used is above gpu_memory_total", "status", func(m M, c *C) { set(m, "resources.gpu_memory_used", int64(27179869184)) })
	fx("rel-metrics-timestamp-stays|2.1|NA-SANE-027 (other figures are of another time)|the timestamp of the metrics is that of the first reading", "metrics", func(m M, c *C) {
		if firstMetrics == "" {
			firstMetrics = m["timestamp"].(string)
		}
		m["timestamp"] = firstMetrics
	})
	fx("rel-metrics-accepted-above-submitted|2.1|NA-SANE-015 (a part is not above its whole)|gradients_accepted is above gradients_submitted", "metrics", func(m M, c *C) { set(m, "training.gradients_accepted", 397) })
	fx("rel-metrics-earned-today-above-total|2.1|NA-SANE-015|earned_today is above earned_total", "metrics", func(m M, c *C) { set(m, "rewards.earned_today", 9.5) })
	fx("rel-requests-total-goes-back|2.1|NA-SANE-012|requests_total is lower in every fourth reading", "metrics", func(m M, c *C) {
		if c.n%4 == 0 {
			set(m, "inference.requests_total", num(get(m, "inference.requests_total"))-9)
		}
	})
	fx("rel-verified-counts-all-proofs|2.1|NA-SANE-018|total_verified counts proofs that are not verified", "proofs", func(m M, c *C) { set(m, "stats.total_verified", len(proofs)) })
	fx("rel-total-reward-above-the-sum|2.1|NA-SANE-024|total_reward is a tenth above the sum of the rewards", "proofs", func(m M, c *C) { set(m, "stats.total_reward", num(get(m, "stats.total_reward"))*1.1) })
	fx("rel-rewards-name-no-proof|2.1|NA-SANE-029|the rewards of the history name proofs under other ids", "transactions", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if t["type"] == "reward" {
				set(t, "details.proof_id", "proof/"+fmt.Sprint(get(t, "details.proof_id")))
			}
		}
	})
	fx("rel-min-loss-above-average|2.1|TR-RULE-005|global_min_loss is above global_avg_loss", "tr-global", func(m M, c *C) { m["global_min_loss"] = 2.5 })
	fx("rel-sync-rate-is-the-failures|2.1|TR-RULE-004|sync_success_rate is the share of failed exchanges", "tr-global", func(m M, c *C) { m["sync_success_rate"] = 0.04 })
	fx("rel-inner-steps-keep-the-old-total|2.1|TR-RULE-013 (inner_step_count is not above inner_steps_total)|after a change of diloco_steps to less, inner_step_count stays 120", "tr-global", func(m M, c *C) { set(m, "diloco.inner_step_count", 120) })
	fx("rel-progress-of-outer-steps|2.1|TR-RULE-016|diloco.progress is a percentage of the outer steps", "tr-global", func(m M, c *C) { set(m, "diloco.progress", 0.153) })
	fx("rel-diverged-models-converge|2.1|TR-RULE-017, TR-RULE-014|hash_agreement_rate is 0.75 and is_converging true", "tr-global", func(m M, c *C) { m["hash_agreement_rate"] = 0.75 })
	fx("rel-local-node-id-is-short|2.1|TR-RULE-015|local.node_id is cut to eight characters", "tr-global", func(m M, c *C) { set(m, "local.node_id", nodeID[:8]) })
	fx("rel-verify-has-another-trend|4.1|TR-RULE-014|loss_trend of the quick verification is stagnant", "tr-verify", func(m M, c *C) { set(m, "metrics.loss_trend", "stagnant") })
	fx("rel-verify-has-another-agreement|4.1|TR-RULE-014|hash_agreement of the quick verification is 97%", "tr-verify", func(m M, c *C) { set(m, "metrics.hash_agreement", "97%") })
	fx("rel-verify-without-metrics-while-working|4.1|TR-VERIFY-005 (metrics where is_working is true)|the quick verification has an action and no metrics", "tr-verify", func(m M, c *C) { del(m, "metrics"); m["action"] = "none" })
	sx("rel-stream-index-starts-at-one|6|NA-SSE-002|the index of the first event is 1", func(ev []M, c *C) []M {
		for i, e := range ev[:len(ev)-1] {
			e["index"] = i + 1
		}
		return ev
	})
	sx("rel-stream-index-repeats-after-sixteen|6|NA-SSE-003|the index starts anew after 16 events", func(ev []M, c *C) []M {
		for i, e := range ev[:len(ev)-1] {
			e["index"] = i % 16
		}
		return ev
	})
	sx("rel-stream-done-in-small-letters|6|NA-SSE-006|the token of the final event is [done]", func(ev []M, c *C) []M { ev[len(ev)-1]["token"] = "[done]"; return ev })
	sx("rel-stream-without-final-event-at-the-limit|6|NA-SSE-005|a stream that max_tokens ended has no final event", func(ev []M, c *C) []M {
		if ev[len(ev)-1]["finish_reason"] == "length" {
			return ev[:len(ev)-1]
		}
		return ev
	})
	sx("rel-stream-loses-the-last-token|6|NA-SSE-018 (the tokens of a stream are the whole text)|the last token event of a stream is missing", func(ev []M, c *C) []M {
		if len(ev) > 2 {
			return append(ev[:len(ev)-2], ev[len(ev)-1])
		}
		return ev
	})
	sx("rel-stream-without-blanks|6|NA-SSE-018|the tokens of a stream have lost their leading blanks", func(ev []M, c *C) []M {
		for _, e := range ev[:len(ev)-1] {
			e["token"] = trim(e["token"].(string))
		}
		return ev
	})
	sx("rel-stream-tokens-are-the-text-so-far|6|NA-SSE-018 (token events carry the generated text, in order)|each token event repeats the text before it", func(ev []M, c *C) []M {
		s := ""
		for _, e := range ev[:len(ev)-1] {
			s += e["token"].(string)
			e["token"] = s
		}
		return ev
	})
	sx("rel-stream-total-tokens-is-max-tokens|6|NA-SSE-010|total_tokens of a final event is one too low", func(ev []M, c *C) []M {
		f := ev[len(ev)-1]
		set(f, "usage.total_tokens", num(get(f, "usage.total_tokens"))-1)
		return ev
	})
	sx("rel-stream-usage-counts-the-done|6|NA-SSE-009 (at most max_tokens completion tokens)|the final event counts as a completion token", func(ev []M, c *C) []M {
		f := ev[len(ev)-1]
		set(f, "usage.completion_tokens", num(get(f, "usage.completion_tokens"))+1)
		set(f, "usage.total_tokens", num(get(f, "usage.total_tokens"))+1)
		return ev
	})
	nativeRelations()
}
