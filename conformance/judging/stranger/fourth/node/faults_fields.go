package main

import (
	"encoding/json"
	"strconv"
	"strings"
)

// helpers for answers
func at(m M, path string) (M, string) {
	p := strings.Split(path, ".")
	for _, k := range p[:len(p)-1] {
		n, ok := m[k].(M)
		if !ok {
			return M{}, p[len(p)-1]
		}
		m = n
	}
	return m, p[len(p)-1]
}
func get(m M, path string) interface{}    { o, k := at(m, path); return o[k] }
func set(m M, path string, v interface{}) { o, k := at(m, path); o[k] = v }
func del(m M, path string)                { o, k := at(m, path); delete(o, k) }
func rows(m M, key string) []M {
	r := []M{}
	l, _ := m[key].(L)
	for _, x := range l {
		if e, ok := x.(M); ok {
			r = append(r, e)
		}
	}
	return r
}
func num(v interface{}) float64 {
	switch x := v.(type) {
	case json.Number:
		f, _ := x.Float64()
		return f
	case int:
		return float64(x)
	case int64:
		return float64(x)
	case float64:
		return x
	}
	return 0
}
func text(v interface{}) string { return strconv.FormatFloat(num(v), 'f', -1, 64) }

func fieldFaults() {
	fx("fld-status-uptime-is-a-fraction|2.1|NA-STATUS-006|uptime_seconds is written with a fraction", "status", func(m M, c *C) { m["uptime_seconds"] = num(m["uptime_seconds"]) + 0.37 })
	fx("fld-status-without-peer-count|2.1|NA-STATUS-013|peer_count is called peers", "status", func(m M, c *C) { m["peers"] = m["peer_count"]; del(m, "peer_count") })
	fx("fld-status-layers-as-text|2.1|NA-STATUS-012|the indices of the layers are strings", "status", func(m M, c *C) {
		l := L{}
		for _, x := range m["layers"].(L) {
			l = append(l, text(x))
		}
		m["layers"] = l
	})
	fx("fld-status-loss-null-when-training-is-off|2.1|NA-STATUS-024|training.loss is null as long as training is disabled", "status", func(m M, c *C) {
		if get(m, "training.enabled") == false {
			set(m, "training.loss", nil)
		}
	})
	fx("fld-status-layer-twice|1|GEN-007 (no index occurs twice)|the last layer is in the list of layers twice", "status", func(m M, c *C) { m["layers"] = append(m["layers"].(L), 11) })
	fx("fld-status-cpu-percent-as-text|2.1|NA-STATUS-032|cpu_percent is a string with a percent sign", "status", func(m M, c *C) { set(m, "resources.cpu_percent", "12.5%") })
	fx("fld-status-version-empty-on-later-calls|9|GEN-014|from the third call on the version is empty", "status", func(m M, c *C) {
		if c.n > 2 {
			m["version"] = ""
		}
	})
	fx("fld-metrics-timestamp-without-zone|2|GEN-008 (ISO 8601 in UTC)|the timestamp of the metrics has no Z", "metrics", func(m M, c *C) { m["timestamp"] = strings.TrimSuffix(m["timestamp"].(string), "Z") })
	fx("fld-metrics-timestamp-with-blank|2|GEN-020|a blank stands in the timestamp instead of the T", "metrics", func(m M, c *C) { m["timestamp"] = strings.Replace(m["timestamp"].(string), "T", " ", 1) })
	fx("fld-metrics-timestamp-in-local-time|2|GEN-008|the timestamp is two hours ahead and has the offset of UTC", "metrics", func(m M, c *C) {
		m["timestamp"] = ts(now().Add(2 * 3600 * 1e9))
	})
	fx("fld-metrics-p99-missing-after-generations|2.1|NA-METRICS-011|p99_latency_ms is missing once a generation was made", "metrics", func(m M, c *C) {
		if len(met.lat) > 0 {
			del(m, "inference.p99_latency_ms")
		}
	})
	fx("fld-metrics-bytes-as-text|2.1|NA-METRICS-028|network.bytes_sent is a string", "metrics", func(m M, c *C) { set(m, "network.bytes_sent", text(get(m, "network.bytes_sent"))) })
	fx("fld-health-check-as-bool|2.1|NA-HEALTH-010|checks.storage is true instead of a word", "health", func(m M, c *C) { set(m, "checks.storage", true) })
	fx("fld-health-without-peers-check|2.1|NA-HEALTH-011|the check of the peers is missing", "health", func(m M, c *C) { del(m, "checks.peers") })
	fx("fld-result-cost-as-text|2.1|NA-INF-RESULT-020|cost.amount is a string", "inference", func(m M, c *C) { set(m, "cost.amount", text(get(m, "cost.amount"))) })
	fx("fld-result-cost-in-atoms|2.1|All amounts of the node API are whole units with decimals (NA-WALLET-023)|cost.amount is in atoms, though the charge is not", "inference", func(m M, c *C) { set(m, "cost.amount", int64(num(get(m, "cost.amount"))*unit+0.5)) })
	fx("fld-result-timing-missing-for-long-prompts|2.1|NA-INF-RESULT-023|timing is left out if the prompt has more than 200 characters", "inference", func(m M, c *C) {
		if len(c.prompt) > 200 {
			del(m, "timing")
		}
	})
	fx("fld-result-finish-reason-null-at-the-limit|2.1|NA-INF-RESULT-008|finish_reason is null when max_tokens ended the text", "inference", func(m M, c *C) {
		if m["finish_reason"] == "length" {
			m["finish_reason"] = nil
		}
	})
	fx("fld-result-text-null-when-empty|2.1|NA-INF-RESULT-004|an empty text is null", "inference", func(m M, c *C) {
		if m["text"] == "" {
			m["text"] = nil
		}
	})
	fx("fld-balance-amounts-as-text|2.1|NA-BALANCE-006|balances.available is a string", "balance", func(m M, c *C) { set(m, "balances.available", text(get(m, "balances.available"))) })
	fx("fld-balance-of-the-second-account-without-pending|2.1|NA-BALANCE-009|pending is missing in the balance of every account but the first", "balance", func(m M, c *C) {
		if c.acct.token != "tok-a" {
			del(m, "balances.pending")
		}
	})
	fx("fld-balance-staking-null-without-stake|2.1|NA-BALANCE-014|staking is null as long as nothing is staked", "balance", func(m M, c *C) {
		if c.acct.staked == 0 {
			m["staking"] = nil
		}
	})
	fx("fld-balance-unlock-date-with-time|2|GEN-009 (YYYY-MM-DD)|unlock_date in the balance is a timestamp", "balance", func(m M, c *C) {
		if s, is := get(m, "staking.unlock_date").(string); is {
			set(m, "staking.unlock_date", s+"T00:00:00Z")
		}
	})
	fx("fld-balance-staked-negative|2.1|NA-BALANCE-007; Counts, sizes and durations are not negative; NA-WALLET-014|staked is below zero once something is staked", "balance", func(m M, c *C) {
		set(m, "balances.staked", -num(get(m, "balances.staked")))
	})
	fx("fld-send-fee-in-atoms|2.1|NA-WALLET-036 (fee is in the unit of the balance)|the fee of a transfer result is in atoms", "send", func(m M, c *C) { m["fee"] = int64(num(m["fee"])*unit + 0.5) })
	fx("fld-send-memo-null-without-memo|2.1|NA-SEND-012|memo is null if the request has none", "send", func(m M, c *C) {
		if m["memo"] == "" {
			m["memo"] = nil
		}
	})
	fx("fld-send-timestamp-as-unix-time|2.1|NA-SEND-016|the timestamp of a transfer result is a number", "send", func(m M, c *C) { m["timestamp"] = now().Unix() })
	fx("fld-send-without-status|2.1|NA-SEND-013|status is missing in the result of a transfer to oneself", "send", func(m M, c *C) {
		if m["to"] == m["from"] {
			del(m, "status")
		}
	})
	fx("fld-history-sends-positive|2.1|NA-QUERY-007 (an outgoing send has a negative amount)|the amounts of sends are above zero", "transactions", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if t["type"] == "send" {
				t["amount"] = -num(t["amount"])
			}
		}
	})
	fx("fld-history-sends-to-oneself-positive|2.1|NA-HISTORY-013 (below zero for a send from this account)|the amount of a send to oneself is above zero", "transactions", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if t["type"] == "send" && t["to"] == c.acct.addr {
				t["amount"] = -num(t["amount"])
			}
		}
	})
	fx("fld-history-reward-without-proof-id-on-later-pages|2.1|NA-HISTORY-019|rewards beyond the first page have no proof_id", "transactions", func(m M, c *C) {
		if c.q["offset"] > 0 {
			for _, t := range rows(m, "transactions") {
				del(t, "details.proof_id")
			}
		}
	})
	fx("fld-history-new-sends-without-receiver|2.1|NA-HISTORY-023|to is missing in sends that have no memo", "transactions", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if t["type"] == "send" && t["memo"] == nil {
				delete(t, "to")
			}
		}
	})
	fx("fld-history-amounts-in-atoms-for-stakes|2.1|All amounts of the node API are whole units with decimals|the entry of the latest stake or generation has a string as its amount (NA-HISTORY-014)", "transactions", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if t["type"] == "stake" || t["type"] == "inference" {
				t["amount"] = text(t["amount"])
			}
		}
	})
	fx("fld-history-last-entry-id-is-a-number|2.1|NA-HISTORY-010|the id of the oldest entry of a page is a number", "transactions", func(m M, c *C) {
		if r := rows(m, "transactions"); len(r) > 1 {
			r[len(r)-1]["id"] = 50
		}
	})
	fx("fld-stake-duration-as-text|2.1|NA-STAKE-008|duration_days of a stake result is a string", "stake", func(m M, c *C) { set(m, "stake.duration_days", text(get(m, "stake.duration_days"))) })
	fx("fld-stake-multiplier-missing-for-short-stakes|2.1|NA-STAKE-013|multiplier is left out for stakes of less than 30 days", "stake", func(m M, c *C) {
		if num(get(m, "stake.duration_days")) < 30 {
			del(m, "stake.multiplier")
		}
	})
	fx("fld-stake-dates-american|2|GEN-009 (YYYY-MM-DD)|the dates of a stake result are written MM/DD/YYYY", "stake", func(m M, c *C) {
		for _, k := range []string{"stake.start_date", "stake.unlock_date"} {
			s := get(m, k).(string)
			set(m, k, s[5:7]+"/"+s[8:]+"/"+s[:4])
		}
	})
	fx("fld-unstake-success-as-text|2.1|NA-UNSTAKE-002|success of an unstake result is a string", "unstake", func(m M, c *C) { m["success"] = "true" })
	fx("fld-unstake-date-is-a-timestamp|2|GEN-009|available_date is a timestamp", "unstake", func(m M, c *C) {
		set(m, "unstake.available_date", get(m, "unstake.available_date").(string)+"T00:00:00Z")
	})
	fx("fld-peer-address-without-port|2.1|NA-SANE-008 (host:port)|the address of the last peer has no port", "peers", func(m M, c *C) {
		r := rows(m, "peers")
		if len(r) > 0 {
			r[len(r)-1]["address"] = strings.Split(r[len(r)-1]["address"].(string), ":")[0]
		}
	})
	fx("fld-peer-latency-negative|2.1|NA-SANE-004 (durations are not negative)|latency_ms of the last peer is -1", "peers", func(m M, c *C) {
		r := rows(m, "peers")
		r[len(r)-1]["latency_ms"] = -1
	})
	fx("fld-peer-since-in-the-future|2|GEN-019 (a time of the past is not after the Date header)|connected_since of a peer is tomorrow", "peers", func(m M, c *C) { rows(m, "peers")[0]["connected_since"] = ts(now().Add(days(1))) })
	fx("fld-layer-memory-with-fraction|2.1|NA-LAYERS-012|memory_mb of every second layer has a fraction", "layers", func(m M, c *C) {
		for i, r := range rows(m, "layers") {
			if i%2 == 1 {
				r["memory_mb"] = num(r["memory_mb"]) + 0.5
			}
		}
	})
	fx("fld-network-parameters-as-number|2.1|NA-NETWORK-018|architecture.parameters is a number", "network", func(m M, c *C) { set(m, "architecture.parameters", 1234944) })
	fx("fld-network-used-memory-in-mb|2.1|NA-SANE-015 (a part is not above its whole)|used_memory_gb is in megabytes", "network", func(m M, c *C) { set(m, "capacity.used_memory_gb", 31750.0) })
	fx("fld-config-learning-rate-as-text-after-change|2.1|NA-CONFIG-016|learning_rate is a string once the configuration was changed", "config", func(m M, c *C) {
		if calls["patch"] > 0 {
			set(m, "training.learning_rate", text(get(m, "training.learning_rate")))
		}
	})
	fx("fld-config-threads-null|2.1|NA-CONFIG-024|cpu_threads is null", "config", func(m M, c *C) { set(m, "resources.cpu_threads", nil) })
	fx("fld-config-without-tracker|2.1|NA-CONFIG-007|tracker_url is missing", "config", func(m M, c *C) { del(m, "tracker_url") })
	fx("fld-patch-restart-required-null|4.1|NA-PATCH-006|restart_required is null", "patch", func(m M, c *C) { m["restart_required"] = nil })
	fx("fld-patch-updated-is-one-text|4.1|NA-PATCH-004|updated is one string with commas", "patch", func(m M, c *C) {
		s := []string{}
		for _, x := range m["updated"].(L) {
			s = append(s, x.(string))
		}
		m["updated"] = strings.Join(s, ",")
	})
	fx("fld-training-shards-as-text|2.1|NA/TR-GLOBAL-020|data_shards_covered is a string with a range", "tr-global", func(m M, c *C) { m["data_shards_covered"] = "0-3,5,8" })
	fx("fld-training-agreement-in-percent|2.1|TR-RULE-002 (a fraction from 0 to 1)|hash_agreement_rate is 100", "tr-global", func(m M, c *C) { m["hash_agreement_rate"] = 100.0 })
	fx("fld-verify-agreement-as-number|4.1|TR-VERIFY-010|hash_agreement of the quick verification is the number 1.0", "tr-verify", func(m M, c *C) { set(m, "metrics.hash_agreement", 1.0) })
	fx("fld-verify-agreement-without-percent-sign|4.1|TR-RULE-006 (written as a percentage)|hash_agreement is the text 1.0", "tr-verify", func(m M, c *C) { set(m, "metrics.hash_agreement", "1.0") })
	fx("fld-proofs-verified-as-number|2.1|NA-PROOFS-014|verified is 1 or 0", "proofs", func(m M, c *C) {
		for _, r := range rows(m, "proofs") {
			r["verified"] = map[interface{}]int{true: 1, false: 0}[r["verified"]]
		}
	})
	fx("fld-proofs-unverified-without-reward|2.1|NA-PROOFS-015|proofs that are not verified have no reward", "proofs", func(m M, c *C) {
		for _, r := range rows(m, "proofs") {
			if r["verified"] == false {
				delete(r, "reward")
			}
		}
	})
	fx("fld-native-total-atoms-is-a-number|2.2|NT-RULE-011 (decimal strings that hold integer atoms)|total_atoms of an account is a JSON number", "n-account", func(m M, c *C) { m["total_atoms"], _ = strconv.Atoi(m["total_atoms"].(string)) })
	fx("fld-native-available-has-decimals|2.2|NT-RULE-029 (called atoms: a decimal string of an integer)|available_atoms of an account is in whole units with decimals", "n-account", func(m M, c *C) {
		v, _ := strconv.ParseInt(m["available_atoms"].(string), 10, 64)
		m["available_atoms"] = strconv.FormatFloat(float64(v)/unit, 'f', 6, 64)
	})
	fx("fld-native-bond-null-of-the-last-validator|2.2|NT-RULE-055|the bond of the last validator is null", "n-validators", func(m M, c *C) {
		r := rows(m, "validators")
		if len(r) > 0 {
			r[len(r)-1]["bond_atoms"] = nil
		}
	})
	fx("fld-native-fee-is-a-number|2.2|NT-RULE-011|fee_atoms of the inference information is a JSON number", "n-inference", func(m M, c *C) { m["fee_atoms"] = 1000 })
	fx("fld-native-refund-amount-in-units|2.2|NT-RULE-029|amount_atoms of a refund has decimals", "n-request", func(m M, c *C) {
		if m["refund"] != nil {
			set(m, "refund.amount_atoms", "0.000250")
		}
	})
	D("fld-openai-chunk-object-is-that-of-a-whole-answer|10|OA-STREAM-004|object in a chunk is chat.completion",
		"fld-openai-first-chunk-without-role|10|OA-STREAM-015|the first chunk of a choice has no role",
		"fld-openai-usage-null-missing|10|OA-STREAM-013|with include_usage the other chunks have no usage at all")
	fx("fld-openai-refusal-missing|10|OA-CHAT-023|the message of a chat completion has no refusal", "oa-chat", func(m M, c *C) {
		for _, r := range rows(m, "choices") {
			del(r, "message.refusal")
		}
	})
	sx("fld-stream-index-as-text|6|NA-SSE-TOKEN-004|the index of token events is a string", func(ev []M, c *C) []M {
		for _, e := range ev[:len(ev)-1] {
			e["index"] = text(e["index"])
		}
		return ev
	})
	sx("fld-stream-usage-without-total|6|NA-SSE-FINAL-011|usage of the final event has no total_tokens", func(ev []M, c *C) []M { del(ev[len(ev)-1], "usage.total_tokens"); return ev })
	sx("fld-stream-finish-reason-missing-when-stopped|6|NA-SSE-FINAL-003|finish_reason is missing in the final event if a stop sequence was given", func(ev []M, c *C) []M {
		if c.in["stop"] != nil {
			delete(ev[len(ev)-1], "finish_reason")
		}
		return ev
	})
	sx("fld-stream-empty-token-null|6|NA-SSE-TOKEN-002|tokens that end a sentence are null", func(ev []M, c *C) []M {
		for _, e := range ev[:len(ev)-1] {
			if strings.HasSuffix(e["token"].(string), ".") {
				e["token"] = nil
			}
		}
		return ev
	})
}
