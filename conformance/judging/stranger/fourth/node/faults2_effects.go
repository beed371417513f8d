package main

import (
	"fmt"
	"strings"
	"time"
)

var (
	stopsBefore  []string
	maxBefore    int
	lastAsker    *Account
	seenPrompts  = map[string]bool{}
	staleConfig  M
	sentBefore   = map[string]M{}
	sentTime     = map[string]time.Time{}
	latestSender string
)

func effectDecls2() {
	D("eff-stream-misses-stops-across-tokens|4.1|NA-SSE-016 (a stream ends at a stop sequence)|a stream ends at a stop sequence only if a single token contains it",
		"eff-listed-order-decides-among-stops|4.1|NA-INF-036, NA-INF-013|of several stop sequences the first of the list that occurs ends the text, though another stands before it",
		"eff-stop-kept-for-the-next-generation|4.1|NA-INF-041, 4.1 (stop: default empty)|a generation without stop has the stop sequences of the one before",
		"eff-max-tokens-kept-as-default|4.1|NA-INF-035 (default 100)|a generation without max_tokens has the max_tokens of the one before",
		"eff-generations-at-once-charged-to-the-last|2.1|NA-WALLET-033 (charged to the account whose token has asked for it)|of generations of two accounts at the same time both are charged to the one that has asked last",
		"eff-charge-rounded-up-to-cents|2.1|NA-WALLET-023 (does not take more than the cost in its result)|what a generation takes is rounded up to hundredths of a unit",
		"eff-repeated-prompt-not-counted|2.1|NA-COUNT-001, NA-COUNT-002|a generation with a prompt that was there before is not counted",
		"eff-generations-at-once-counted-once|2.1|NA-COUNT-001|of generations at the same time only one is counted in requests_total",
		"eff-learning-rate-in-single-precision|4.1|NA-PATCH-104 (GET /config shows the new values)|learning_rate is kept in single precision",
		"eff-first-reading-after-a-change-is-stale|4.1|NA-PATCH-113 (in every reading that follows)|the first reading of the configuration after a change shows it as it was before",
		"eff-tiny-transfers-do-not-arrive|2.1|NA-WALLET-011 (adds its amount to what the receiver has available)|a transfer of less than 0.001 is taken but not given to the receiver",
		"eff-equal-transfers-made-once|2.1|NA-WALLET-048, NA-WALLET-026|a transfer that equals one of the last ten seconds is answered with its result and not made",
		"eff-transfer-draws-on-the-stake|7.1|NA-ERR-021 (a transfer of more than is available ends with 402)|a transfer of more than is available takes the rest from what is staked",
		"eff-refused-stake-becomes-pending|7.1|NA-ERR-023 (takes nothing from what is available)|a stake that gets 402 moves five units from available to pending",
		"eff-refused-transfer-still-arrives|7.1|NA-ERR-021 (changes no balance)|a transfer that gets 402 is given to the receiver all the same",
		"eff-stake-of-the-second-account-goes-to-the-first|2.1|NA-WALLET-014 (adds its amount to what is staked)|what the second account stakes is staked for the first",
		"eff-self-transfer-costs-two-fees|2.1|NA-WALLET-007 (costs at most its fee)|a transfer to oneself takes its fee twice",
		"eff-unstake-shortens-the-lock-of-the-rest|2.1|NA-WALLET-028 (before the latest stake is unlocked)|after an unstake of a part the rest is unlocked in seven days",
		"eff-stake-costs-a-fee-too|2.1|NA-WALLET-008 (its balance is what they leave), NA-WALLET-016|a stake takes the fee of a transfer besides its amount, which new_balance does not say",
		"eff-empty-value-is-not-found|4.3|DH-009, DH-021 (whatever its length)|a value of no characters is stored with success and not found",
		"eff-refused-value-clears-the-old-one|4.3|DH-015, DH-019 (a refused store stores nothing)|a store that is refused for its length removes the value that was there",
		"eff-value-under-the-id-of-a-node-not-found|4.3|DH-009|a value is not found under a key that is the ID of a known node",
		"eff-refused-backward-drops-the-pass|4.3|PL-BWD-003|a backward pass that is refused makes the node forget the pass it belongs to",
		"eff-gradients-go-to-the-latest-sender|4.3|PL-BWD-002 (on to the previous node)|gradients go back to the sender of the latest pass, whichever they belong to",
		"eff-openai-stop-ends-the-first-choice-only|10|OA-CHAT-110|stop sequences end the first of several choices only")
}

// insideTokens keeps the stop sequences that a single token contains.
func insideTokens(prompt string, max int, stops []string) []string {
	var k []string
	toks, _, _ := generate(prompt, max, nil)
	for _, s := range stops {
		for _, t := range toks {
			if strings.Contains(t, s) {
				k = append(k, s)
				break
			}
		}
	}
	return k
}

// rememberParams carries parameters from one generation to the next.
func rememberParams(c *C, g *genReq) {
	if F("eff-stop-kept-for-the-next-generation") {
		if len(g.stops) > 0 {
			stopsBefore = g.stops
		} else {
			g.stops, stopsBefore = stopsBefore, nil
		}
	}
	if F("eff-max-tokens-kept-as-default") {
		if c.in["max_tokens"] != nil {
			maxBefore = g.max
		} else if maxBefore > 0 {
			g.max = maxBefore
		}
	}
}

// pause lets other calls in.
func pause() {
	mu.Unlock()
	time.Sleep(40 * time.Millisecond)
	mu.Lock()
}

// sameTransfer answers a transfer that was made just before.
func sameTransfer(c *C, to string, amount int64, memo string) bool {
	if !F("eff-equal-transfers-made-once") {
		return false
	}
	k := fmt.Sprint(c.acct.addr, "|", to, "|", amount, "|", memo)
	if m := sentBefore[k]; m != nil && time.Since(sentTime[k]) < 10*time.Second {
		c.ok(m)
		return true
	}
	return false
}

func rememberTransfer(c *C, m M) {
	if !F("eff-equal-transfers-made-once") {
		return
	}
	a, _, _ := money(m["amount"])
	k := fmt.Sprint(c.acct.addr, "|", m["to"], "|", a, "|", m["memo"])
	sentBefore[k], sentTime[k] = clone(m).(M), time.Now()
}
