package main

import "strings"

func guardFaults() {
	noHeader := func(c *C, h, tok string) int {
		if h == "" {
			return 1
		}
		return 0
	}
	anyTok := func(c *C, h, tok string) int {
		if tok != "" {
			return 1
		}
		return 0
	}
	expired := func(c *C, h, tok string) int {
		if tok == "tok-x" {
			return 1
		}
		return 0
	}
	gd("gua-peers-need-no-header|5|NA-AUTH-017|GET /peers is served without a bearer header", "peers", noHeader)
	gd("gua-layers-need-no-header|5|NA-AUTH-017|GET /layers is served without a bearer header", "layers", noHeader)
	gd("gua-config-needs-no-header|5|NA-AUTH-017|GET /config is served without a bearer header", "config", noHeader)
	gd("gua-proofs-take-any-token|5|NA-AUTH-001|GET /proofs is served with an unknown token", "proofs", anyTok)
	gd("gua-history-second-page-takes-any-token|5|NA-AUTH-001|an unknown token reads transactions if an offset is given", "transactions", func(c *C, h, tok string) int {
		if c.r.URL.Query().Get("offset") != "" {
			return 1
		}
		return 0
	})
	gd("gua-balance-takes-an-expired-token|5|NA-AUTH-002|GET /wallet/balance is served with an expired token", "balance", expired)
	gd("gua-inference-takes-an-expired-token|5|NA-AUTH-018|POST /inference is served with an expired token", "inference", expired)
	gd("gua-unstake-takes-an-expired-token|5|NA-AUTH-018|POST /wallet/unstake is served with an expired token", "unstake", expired)
	gd("gua-inference-needs-no-header|5|NA-AUTH-019|POST /inference is served without a bearer header", "inference", noHeader)
	gd("gua-stream-needs-no-token|5|NA-AUTH-020|a stream is served without a valid token", "inference", func(c *C, h, tok string) int {
		if strings.Contains(string(c.body), `"stream"`) && strings.Contains(string(c.body), `true`) {
			return 1
		}
		return 0
	})
	gd("gua-send-needs-no-header|5|NA-AUTH-019|POST /wallet/send is served without a bearer header, from the first account", "send", noHeader)
	gd("gua-stake-takes-any-token|5|NA-AUTH-008|POST /wallet/stake is served with an unknown token", "stake", anyTok)
	gd("gua-patch-takes-any-token|5|NA-AUTH-007|PATCH /config is served with an unknown token", "patch", anyTok)
	gd("gua-patch-with-an-expired-token|5|NA-AUTH-018|PATCH /config is served with an expired token", "patch", expired)
	gd("gua-token-prefix-suffices|5|NA-AUTH-021|a token that only begins with a valid one is accepted", "*", func(c *C, h, tok string) int {
		if strings.HasPrefix(tok, "tok-a") {
			return 1
		}
		return 0
	})
	gd("gua-beginning-of-a-token-suffices|5|NA-AUTH-021|the first characters of a valid token are accepted as the token", "*", func(c *C, h, tok string) int {
		if len(tok) >= 3 && strings.HasPrefix("tok-a", tok) {
			return 1
		}
		return 0
	})
	gd("gua-token-in-any-case|5|NA-AUTH-021|the case of the letters of a token is ignored", "*", func(c *C, h, tok string) int {
		if strings.EqualFold(tok, "tok-a") {
			return 1
		}
		return 0
	})
	gd("gua-token-with-blanks|5|NA-AUTH-021|blanks and quotes around a token are taken off", "*", func(c *C, h, tok string) int {
		if strings.Trim(tok, " \"'") == "tok-a" {
			return 1
		}
		return 0
	})
	gd("gua-token-of-other-schemes|5|NA-AUTH-017 (Authorization: Bearer)|a valid token is accepted under the scheme Basic", "*", func(c *C, h, tok string) int {
		if h == "Basic tok-a" {
			return 1
		}
		return 0
	})
	gd("gua-every-seventh-call-is-refused|5|NA-AUTH-022|every seventh reading of the balance with a valid token gets 401", "balance", func(c *C, h, tok string) int {
		if c.n%7 == 0 {
			return 2
		}
		return 0
	})
	gd("gua-second-account-cannot-stake|5|NA-AUTH-005|a stake of the second account gets 401", "stake", func(c *C, h, tok string) int {
		if tok == "tok-b" {
			return 2
		}
		return 0
	})
	gd("gua-valid-token-refused-after-a-refusal|5|NA-AUTH-022|the first call of a route after a 401 there is refused too", "*", func(c *C, h, tok string) int {
		k := "refused" + c.route
		if accounts[tok] == nil {
			calls[k] = 1
		} else if calls[k] == 1 {
			calls[k] = 0
			return 2
		}
		return 0
	})
	gd("gua-second-account-cannot-read-the-configuration|5|NA-AUTH-005|GET /config gets 401 with the token of the second account", "config", func(c *C, h, tok string) int {
		if tok == "tok-b" {
			return 2
		}
		return 0
	})
	gd("gua-status-of-tokens|5|NA-AUTH-001 (status 401)|an unknown token on GET /layers is let in if it has more than 40 characters", "layers", func(c *C, h, tok string) int {
		if len(tok) > 40 {
			return 1
		}
		return 0
	})
	D("gua-second-reader-gets-the-first-account|5|NA-AUTH-026|the second account reads the balance of the first if it asks just after another reader",
		"gua-openai-models-without-key|10|OA-AUTH-001 (a key that is not valid is refused)|GET /v1/models is served with any key",
		"gua-openai-chat-takes-any-key|10|OA-AUTH-001|POST /v1/chat/completions is served with any key",
		"gua-openai-bad-key-is-400|10|OA-AUTH-001|a bad key is refused with 400",
		"gua-rpc-relays-net-info|4.2|NT-RULE-005|POST /rpc serves net_info of the consensus engine",
		"gua-rpc-relays-dump-consensus-state|4.2|NT-RULE-005|POST /rpc serves dump_consensus_state",
		"gua-rpc-relays-unsafe-flush-mempool|4.2|NT-RULE-005|POST /rpc serves unsafe_flush_mempool",
		"gua-rpc-relays-any-method|4.2|NT-RULE-005|POST /rpc answers every method with a result",
		"gua-body-is-read-before-the-token|5|NA-AUTH-025|a body that is no JSON gets 400 before the token is looked at",
		"gua-missing-field-is-seen-before-the-token|5|NA-AUTH-023|POST /wallet/send without amount gets 400, whatever the token",
		"gua-refused-patch-still-changes|5|NA-AUTH-024|a change with an unknown token gets 401 but is made",
		"gua-status-asks-for-a-token|4.1|NA-ROUTE-001|GET /status gets 401 without a token",
		"gua-network-asks-for-a-token|4.1|NA-ROUTE-012|GET /network gets 401 without a token",
		"gua-training-verify-asks-for-a-token|4.1|TR-ROUTE-002|GET /api/training/verify gets 401 without a token",
		"gua-health-refuses-a-bad-token|4.1|GET /health: Auth no (NA-ROUTE-003)|GET /health gets 401 without a valid token from the third call on")
}

// openGuards are the guards on routes that should have none, and those that
// act before the token is looked at. It returns true if it has answered.
func openGuards(c *C, acct *Account) bool {
	switch {
	case F("gua-status-asks-for-a-token") && c.route == "status" && acct == nil,
		F("gua-network-asks-for-a-token") && c.route == "network" && acct == nil,
		F("gua-training-verify-asks-for-a-token") && c.route == "tr-verify" && acct == nil,
		F("gua-health-refuses-a-bad-token") && c.route == "health" && acct == nil && calls["health"] > 2:
		c.fail(401, "UNAUTHORIZED", "token", nil)
		return true
	case F("gua-body-is-read-before-the-token") && c.r.Method == "POST" && acct == nil:
		if !c.object() {
			return true
		}
	case F("gua-missing-field-is-seen-before-the-token") && c.route == "send" && acct == nil:
		if c.object() && c.in["amount"] == nil {
			c.bad("amount is missing")
			return true
		}
	case F("gua-refused-patch-still-changes") && c.route == "patch" && acct == nil:
		w := c.w
		c.w = nullWriter{}
		patchConfig(c)
		c.w, c.ctype, c.failed = w, "", false
	}
	return false
}
