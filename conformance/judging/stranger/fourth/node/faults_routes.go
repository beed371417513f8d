package main

import "strings"

type rfault struct {
	id string
	fn func(c *C, p string) string
}

var rfaults []rfault

// rt declares a fault that sends a call to another path; "" is nowhere.
func rt(line string, fn func(c *C, p string) string) {
	D(line)
	rfaults = append(rfaults, rfault{strings.SplitN(line, "|", 2)[0], fn})
}
func routeFaults(c *C, p string) string {
	for _, f := range rfaults {
		if on(f.id) {
			return f.fn(c, p)
		}
	}
	return p
}
func swap(from, to string) func(c *C, p string) string {
	return func(c *C, p string) string {
		if p == from {
			return "/api/v1/nowhere"
		}
		if p == to {
			return from
		}
		return p
	}
}

func routeDecls() {
	rt("rou-metrics-under-stats|4.1|NA-ROUTE-002|GET /metrics is at /stats", swap("/api/v1/metrics", "/api/v1/stats"))
	rt("rou-transactions-under-history|4.1|NA-ROUTE-007|the transaction list is at /wallet/history", swap("/api/v1/wallet/transactions", "/api/v1/wallet/history"))
	rt("rou-training-verify-has-a-version|9|GEN-015|the quick verification is at /api/v1/training/verify", swap("/api/training/verify", "/api/v1/training/verify"))
	rt("rou-training-global-has-a-version|9|GEN-015|the global verification is at /api/v1/training/global", swap("/api/training/global", "/api/v1/training/global"))
	rt("rou-node-api-v2|9|GEN-013 (served under /api/v1)|the node API is served under /api/v2", func(c *C, p string) string {
		if strings.HasPrefix(p, "/api/v2/") {
			return "/api/v1/" + p[8:]
		}
		if strings.HasPrefix(p, "/api/v1/") {
			return "/api/v9"
		}
		return p
	})
	rt("rou-config-by-put|4.1|NA-ROUTE-014 (PATCH /config)|the configuration is changed by PUT, PATCH gets 405", func(c *C, p string) string {
		if p == "/api/v1/config" {
			if c.r.Method == "PATCH" {
				c.r.Method = "POST"
			} else if c.r.Method == "PUT" {
				c.r.Method = "PATCH"
			}
		}
		return p
	})
	rt("rou-unstake-by-delete|4.1|NA-ROUTE-009 (POST /wallet/unstake)|POST /wallet/unstake gets 405; it is DELETE", func(c *C, p string) string {
		if p == "/api/v1/wallet/unstake" {
			if c.r.Method == "POST" {
				c.r.Method = "PUT"
			} else if c.r.Method == "DELETE" {
				c.r.Method = "POST"
			}
		}
		return p
	})
	rt("rou-query-is-part-of-the-path|4.1|NA-ROUTE-015, NA-QUERY-004|GET /proofs with a query is not found", func(c *C, p string) string {
		if p == "/api/v1/proofs" && c.r.URL.RawQuery != "" {
			return "/api/v1/nowhere"
		}
		return p
	})
	rt("rou-unknown-paths-get-the-status|7.1|NA-ERR-017 (a path that does not exist is not answered with success)|an unknown path of the node API is answered with the status", func(c *C, p string) string {
		if strings.HasPrefix(p, "/api/v1/") && nodeRoutes[p] == nil {
			c.r.Method = "GET"
			return "/api/v1/status"
		}
		return p
	})
	rt("rou-checkpoint-without-suffix|4.2|NT-ROUTE-004|the checkpoint is at /api/model/checkpoint", swap("/api/model/checkpoint.json", "/api/model/checkpoint"))
	rt("rou-validators-in-the-singular|4.2|NT-ROUTE-009|the validators are at /api/validator", swap("/api/validators", "/api/validator"))
	rt("rou-block-by-query|4.2|NT-ROUTE-007|a block is at /api/block?height=", func(c *C, p string) string {
		if strings.HasPrefix(p, "/api/block/") {
			return "/nowhere"
		}
		if p == "/api/block" {
			return "/api/block/" + c.r.URL.Query().Get("height")
		}
		return p
	})
	rt("rou-no-work-result|4.2|NT-RULE-033 (both routes of the worker protocol exist where one does)|POST /work/result does not exist", swap("/work/result", "/work/results"))
	rt("rou-no-dataset|4.2|NT-ROUTE-013|GET /network/dataset.json does not exist", swap("/network/dataset.json", "/network/dataset"))
	rt("rou-earlier-chain-without-blocks|4.2|NT-ROUTE-019|the views of the earlier chain are at /reference/v3/api", func(c *C, p string) string {
		if strings.HasPrefix(p, "/reference/v03/") {
			return "/nowhere"
		}
		return p
	})
	rt("rou-healthz-under-health|4.2|NT-ROUTE-001, NT-RULE-001|readiness is at /health", swap("/healthz", "/health"))
	rt("rou-artifacts-in-capitals-only|4.2|NT-ROUTE-014|an artifact is found only if its digest is written in capitals", func(c *C, p string) string {
		if strings.HasPrefix(p, "/artifacts/sha256/") && p[18:] != strings.ToUpper(p[18:]) {
			return "/nowhere"
		}
		return p
	})
	rt("rou-request-by-path|4.2|NT-ROUTE-011|a request is read at /api/inference/request/<id> only", func(c *C, p string) string {
		if p == "/api/inference/request" {
			return "/nowhere"
		}
		return p
	})
	rt("rou-registration-is-404|7.2|NT-RULE-009 (410)|the old registration endpoints are gone without a trace", func(c *C, p string) string {
		if gone[p] {
			return "/nowhere"
		}
		return p
	})
	fx("rou-registration-by-get-is-a-page|7.2|NT-RULE-009|an old registration endpoint answers 200 to GET", "!n-register", func(m M, c *C) {
		if c.r.Method == "GET" {
			c.status = 200
		}
	})
	fx("rou-registration-succeeds|7.2|NT-RULE-038, NT-RULE-042|POST to an old registration endpoint answers 201 with an account", "!n-register", func(m M, c *C) {
		if c.r.Method == "POST" {
			c.status = 201
			m["account"], m["api_key"] = "acc-1", "key-1"
		}
	})
	fx("rou-status-as-html|4|GEN-012 (Content-Type application/json)|GET /status has the type text/html", "status", func(m M, c *C) { c.ctype = "text/html; charset=utf-8" })
	fx("rou-errors-as-plain-text|4|GEN-012|the bodies of errors have the type text/plain", "!", func(m M, c *C) { c.ctype = "text/plain; charset=utf-8" })
	fx("rou-metrics-with-infinity|4|GEN-010 (Infinity does not exist)|loss-like figures are Infinity in the metrics as long as no generation was made", "metrics", func(m M, c *C) {
		if len(met.lat) == 0 {
			c.raw = []byte(`{"timestamp":"` + ts(now()) + `","inference":{"requests_total":1042,"requests_per_minute":0,"avg_latency_ms":NaN,"p99_latency_ms":Infinity,"tokens_generated":88211},"training":{"steps_total":1,"steps_per_hour":1,"gradients_submitted":1,"gradients_accepted":1},"network":{"bytes_sent":1,"bytes_received":1,"active_connections":1,"rpc_calls":1},"rewards":{"earned_today":0,"earned_total":0}}`)
		}
	})
	fx("rou-balance-with-two-totals|4|GEN-011 (no duplicate key)|the balance has the key address twice", "balance", func(m M, c *C) {
		c.raw = dup(m, `"address":"`+c.acct.addr+`"`)
	})
	fx("rou-unauthorized-as-html|4|GEN-010 (bodies are JSON), NA-ERR-001|a 401 has a page of HTML as its body", "!", func(m M, c *C) {
		if c.status == 401 {
			c.raw, c.ctype = []byte("<h1>401 Unauthorized</h1>"), "text/html"
		}
	})
	fx("rou-peers-is-a-bare-list|4.1|NA-PEERS-001|GET /peers answers with the list itself", "peers", func(m M, c *C) { c.raw = enc(m["peers"]) })
	fx("rou-native-model-is-a-page|2.2|NT-RULE-024 (neither empty nor a page of HTML)|GET /api/model answers with a page of HTML", "n-model", func(m M, c *C) {
		c.raw, c.ctype = []byte("<!doctype html><title>Explorer</title>"), "text/html"
	})
	fx("rou-native-network-is-empty|4.2|NT-RULE-024|GET /api/network answers with an empty object", "n-network", func(m M, c *C) {
		for k := range m {
			delete(m, k)
		}
	})
	fx("rou-native-account-with-nan|4.2|NT-RULE-017 (strict JSON)|the nonce of an unused account is NaN", "n-account", func(m M, c *C) {
		if m["next_nonce"] == 0 {
			c.raw = []byte(strings.Replace(string(enc(m)), `"next_nonce":0`, `"next_nonce":NaN`, 1))
		}
	})
	D("rou-stream-as-json|6|NA-SSE-008|a stream has the type application/json",
		"rou-stream-as-octet-stream|6|NA-SSE-008|a stream has the type application/octet-stream",
		"rou-stream-as-plain-text|6|NA-SSE-008|a stream has the type text/plain",
		"rou-events-without-blank-line|6|NA-SSE-001|no blank line follows the events",
		"rou-last-event-without-blank-line|6|NA-SSE-015|no blank line follows the last event",
		"rou-last-event-cut|6|NA-SSE-001|the last two characters of the final event are missing",
		"rou-events-without-data-prefix|6|NA-SSE-001|the events are bare JSON lines",
		"rou-final-event-is-a-bare-word|6|NA-SSE-006, NA-SSE-001|the last event is data: [DONE], without JSON",
		"rou-events-as-python-text|6|NA-SSE-001|the events have single quotes",
		"rou-event-with-duplicate-key|6|NA-SSE-014|token is in every event twice",
		"rou-line-after-the-final-event|6|NA-SSE-007|an event follows the final one",
		"rou-openai-stream-as-ndjson|10|OA-STREAM-001|a stream has the type application/x-ndjson",
		"rou-openai-stream-without-done|10|OA-STREAM-003|no [DONE] ends a stream",
		"rou-login-redirects-to-home|7.2|NT-RULE-010|login and signup redirect to /",
		"rou-signup-is-404|7.2|NT-RULE-010|old paths for signup are not found",
		"rou-login-is-a-page|7.2|NT-RULE-010|old paths for login answer 200",
		"rou-login-redirect-without-location|7.2|NT-RULE-010|the redirect of login has no Location",
		"rou-native-query-job-missing|4.2|NT-RULE-044 (where one of the query paths is served, so is the other)|abci_query knows /jobs but not /job",
		"rou-rpc-has-no-validators|4.2|NT-RULE-018|POST /rpc has no method validators",
		"rou-rpc-has-no-abci_query|4.2|NT-RULE-022|POST /rpc has no method abci_query",
		"rou-rpc-has-no-broadcast_tx_sync|4.2|NT-RULE-023|POST /rpc has no method broadcast_tx_sync",
		"rou-grpc-at-plus-thousand-one|1|GEN-001, GEN-002|gRPC is served at the HTTP port plus 1001",
		"rou-gradients-go-to-the-http-port|1|CL-PORT-001|gradients go back to the HTTP port of an http sender_url",
		"rou-no-GetShardInfo|4.3|GR-OP-014|the operation GetShardInfo is missing",
		"rou-no-GossipStake|4.3|GR-OP-009|the operation GossipStake is missing",
		"rou-no-UpdatePeerCapacity|4.3|GR-OP-021|the operation UpdatePeerCapacity is missing",
		"rou-no-StreamInference|4.3|GR-OP-001|the operation StreamInference is missing",
		"rou-streamed-DHTPing|4.3|GR-OP-023 (a unary operation answers with one message)|DHTPing answers with two messages",
		"rou-streamed-GetWeights|4.3|GR-OP-023|GetWeights answers with two messages")
}
