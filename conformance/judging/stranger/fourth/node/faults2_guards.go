package main

import (
	"strings"
	"time"
)

var (
	connOK    = map[string]bool{}
	authBusy  = map[string]bool{}
	pageCache = map[string]M{}
	pageTime  = map[string]time.Time{}
)

func guardFaults2() {
	gd("gua-unstake-needs-no-header|5|NA-AUTH-019|POST /wallet/unstake is served without a bearer header, for the first account", "unstake", func(c *C, h, tok string) int {
		if h == "" {
			return 1
		}
		return 0
	})
	gd("gua-scheme-twice-is-taken|5|NA-AUTH-021 (a token that only resembles a valid one)|a token is accepted with the word Bearer in it once more", "*", func(c *C, h, tok string) int {
		if strings.TrimPrefix(tok, "Bearer ") == "tok-a" {
			return 1
		}
		return 0
	})
	gd("gua-token-in-a-list-is-taken|5|NA-AUTH-021|a text with commas is accepted if one of its parts is a valid token", "*", func(c *C, h, tok string) int {
		for _, t := range strings.Split(tok, ",") {
			if t == "tok-a" {
				return 1
			}
		}
		return 0
	})
	gd("gua-last-letter-of-a-token-ignored|5|NA-AUTH-021|tokens are compared without their last character", "*", func(c *C, h, tok string) int {
		if len(tok) == 5 && tok[:4] == "tok-" && tok != "tok-x" {
			return 1
		}
		return 0
	})
	gd("gua-connection-remembers-its-token|5|NA-AUTH-017|a request without a header is served on a connection that has had a valid token", "*", func(c *C, h, tok string) int {
		if accounts[tok] != nil {
			connOK[c.r.RemoteAddr] = true
		} else if h == "" && connOK[c.r.RemoteAddr] {
			return 1
		}
		return 0
	})
	gd("gua-token-blocked-after-a-402|5|NA-AUTH-022|the first call with a token after a 402 is refused with 401", "*", func(c *C, h, tok string) int {
		if calls["402"+tok] > 0 {
			calls["402"+tok] = 0
			return 2
		}
		return 0
	})
	also("gua-token-blocked-after-a-402", "!", func(m M, c *C) {
		if c.status == 402 {
			calls["402"+c.acct.token] = 1
		}
	})
	gd("gua-simultaneous-calls-of-a-token-refused|5|NA-AUTH-022, NA-AUTH-005|of two calls with the same token at the same time the second gets 401", "*", func(c *C, h, tok string) int {
		if authBusy[tok] {
			return 2
		}
		if accounts[tok] != nil {
			authBusy[tok] = true
			mu.Unlock()
			time.Sleep(25 * time.Millisecond)
			mu.Lock()
			authBusy[tok] = false
		}
		return 0
	})
	fx("gua-history-page-is-kept-for-all|5|NA-AUTH-026 (each token reads its own account)|a page of the history is kept for three seconds by its query and given to every token", "transactions", func(m M, c *C) {
		k := c.r.URL.RawQuery
		old := pageCache[k]
		if old == nil || time.Since(pageTime[k]) > 3*time.Second {
			pageCache[k], pageTime[k] = clone(m).(M), time.Now()
			return
		}
		for f, v := range old {
			m[f] = clone(v)
		}
	})
	D("gua-metrics-ask-for-a-token|4.1|NA-ROUTE-002 (Auth no)|GET /metrics gets 401 without a token",
		"gua-stake-refused-for-its-token-is-made|5|NA-AUTH-019, NA-AUTH-008 (serve no request without a token)|a stake without a valid token gets 401 but is made by the first account",
		"gua-openai-stream-takes-any-key|10|OA-AUTH-002|a stream of POST /v1/chat/completions is served with any key",
		"gua-rpc-batch-is-not-checked|4.2|NT-RULE-005|in an array of calls to POST /rpc every method is answered with a result")
}

// openGuards2 is what these faults do before the token is looked at.
func openGuards2(c *C, acct *Account) bool {
	switch {
	case F("gua-metrics-ask-for-a-token") && c.route == "metrics" && acct == nil:
		c.fail(401, "UNAUTHORIZED", "The access token is missing, unknown or expired.", nil)
		return true
	case F("gua-stake-refused-for-its-token-is-made") && c.route == "stake" && acct == nil:
		w := c.w
		c.w, c.acct = nullWriter{}, accounts["tok-a"]
		postStake(c)
		c.w, c.acct, c.ctype, c.failed, c.raw = w, nil, "", false, nil
	}
	return false
}

// rpcBatch answers an array of calls.
func rpcBatch(c *C, l L) bool {
	if !F("gua-rpc-batch-is-not-checked") {
		return false
	}
	out := L{}
	for _, x := range l {
		m, _ := x.(M)
		out = append(out, M{"jsonrpc": "2.0", "id": m["id"], "result": M{"round_state": M{"height": len(blocks)}, "peers": L{}}})
	}
	c.bytes("application/json", enc(out))
	return true
}
