package main

import "strings"

// also adds a change of an HTTP answer to a fault that is declared elsewhere.
func also(id, route string, fn func(m M, c *C)) {
	hmuts = append(hmuts, hmut{id, route, fn})
}

func isList(v interface{}) bool { _, is := v.(L); return is }

func fieldFaults2() {
	D("fld-patch-updated-null-when-nothing-changes|4.1|NA-PATCH-004 (updated is an array of string)|updated is null if every key had the value that was sent",
		"fld-openai-chunk-finish-reason-left-out|10|OA-CHUNK-015 (string or null)|finish_reason is left out of a chunk as long as it is null")
	fx("fld-metrics-pending-left-out-at-zero|2.1|NA-METRICS-041|rewards.pending is left out as long as nothing is pending", "metrics", func(m M, c *C) { del(m, "rewards.pending") })
	fx("fld-peers-unmeasured-latency-null|2.1|NA-PEERS-014 (number)|latency_ms of the first peer is null", "peers", func(m M, c *C) {
		if r := rows(m, "peers"); len(r) > 0 {
			r[0]["latency_ms"] = nil
		}
	})
	fx("fld-unstake-cooldown-has-a-fraction|2.1|NA-UNSTAKE-008 (int)|cooldown_days counts parts of a day, too", "unstake", func(m M, c *C) {
		set(m, "unstake.cooldown_days", num(get(m, "unstake.cooldown_days"))-0.25)
	})
	fx("fld-first-stake-without-new-staked|2.1|NA-STAKE-019|new_balance.staked is missing if nothing was staked before", "stake", func(m M, c *C) {
		if text(get(m, "stake.amount")) == text(get(m, "new_balance.staked")) {
			del(m, "new_balance.staked")
		}
	})
	fx("fld-history-limit-null-by-default|4.1|NA-HISTORY-006 (int)|limit of the history is null if the request names none", "transactions", func(m M, c *C) {
		if c.r.URL.Query().Get("limit") == "" {
			m["limit"] = nil
		}
	})
	fx("fld-history-role-null-of-backward-rewards|2.1|NA-HISTORY-022 (string)|details.role is null in a reward for a proof that is not a forward one", "transactions", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			for _, p := range proofs {
				if p["type"] != "forward" && p["id"] == get(t, "details.proof_id") {
					set(t, "details.role", nil)
				}
			}
		}
	})
	fx("fld-patch-updated-has-bare-keys|4.1|NA-PATCH-101 (dotted paths like training.batch_size)|updated names the keys without their section", "patch", func(m M, c *C) {
		l := m["updated"].(L)
		for i, x := range l {
			s := x.(string)
			l[i] = s[strings.Index(s, ".")+1:]
		}
	})
	fx("fld-shards-null-while-training-is-off|2.1|TR-GLOBAL-020 (array of int)|data_shards_covered is null as long as training is disabled", "tr-global", func(m M, c *C) {
		if training()["enabled"] == false {
			m["data_shards_covered"] = nil
		}
	})
	sx("fld-stream-index-left-out-at-zero|6|NA-SSE-TOKEN-003 (index: 0 for the first event)|index is left out where it is 0", func(ev []M, c *C) []M {
		if len(ev) > 1 {
			delete(ev[0], "index")
		}
		return ev
	})
	sx("fld-stream-usage-missing-when-stopped|6|NA-SSE-FINAL-005|the final event has no usage if finish_reason is stop", func(ev []M, c *C) []M {
		if f := ev[len(ev)-1]; f["finish_reason"] == "stop" {
			delete(f, "usage")
		}
		return ev
	})
	fx("fld-openai-key-error-without-param|10|OA-ERROR-007|error.param is missing where a key is refused", "!", func(m M, c *C) {
		if c.status == 401 && strings.HasPrefix(c.r.URL.Path, "/v1/") {
			del(m, "error.param")
		}
	})
	fx("fld-openai-choices-without-logprobs|10|OA-CHAT-015 (object or null)|the choices of a chat completion have no logprobs", "oa-chat", func(m M, c *C) {
		for _, x := range rows(m, "choices") {
			delete(x, "logprobs")
		}
	})
	fx("fld-openai-text-null-when-empty|10|OA-TEXT-018 (string)|the text of a completion is null if a stop sequence left nothing of it", "oa-text", func(m M, c *C) {
		for _, x := range rows(m, "choices") {
			if x["text"] == "" {
				x["text"] = nil
			}
		}
	})
}
