package main

import (
	"bytes"
	"strings"

	"google.golang.org/grpc/codes"
)

func refusalFaults2() {
	D("ref-prompt-array-joined|4.1|NA-INF-031, NA-INF-002 (prompt is a string)|an array of texts is accepted as the prompt and joined",
		"ref-bad-stream-refused-in-an-event|8|NA-INF-007, NA-ERR-018 (refused with error.code and error.message)|a stream with a bad parameter gets 200 and an event with an error",
		"ref-402-required-leaves-the-fee-out|7.1|NA-ERR-019 (less is available than is required)|required in the 402 of a transfer is the amount without the fee",
		"ref-stake-of-a-little-more-accepted|7.1|NA-ERR-021, NA-ERR-022|a stake of less than one unit more than is available is accepted",
		"ref-stake-of-all-refused|7.1|NA-ERR-019 (a 402 says that less is available than is required)|a stake of exactly what is available gets 402",
		"ref-very-large-transfer-is-invalid|7.1|NA-ERR-021 (a transfer of more than is available ends with 402)|a transfer of more than a million units gets 400",
		"ref-change-in-an-array-accepted|4.1|NA-PATCH-119 (a change is a nested object)|a change that stands in an array is made",
		"ref-to-in-an-array-accepted|4.1|NA-WALLET-040|to may be an array with an address",
		"ref-checkpoint-by-hash-ignores-the-version|4.3|GR-CKPT-001|min_version has no effect if the own model_hash is given, too",
		"ref-weights-partly-held-are-served|7.3|GR-WEIGHT-002 (a layer that is not on the peer)|of a range whose first layers are absent the others are served",
		"ref-weights-of-a-high-layer-out-of-range|7.3|GR-WEIGHT-002, GR-CODE-001|weights of a layer above those of the model get OUT_OF_RANGE",
		"ref-negative-layer-counts-from-the-end|7.3|GR-CODE-004|a pass to layer -1 is computed by the last layer",
		"ref-stale-gradient-is-a-failed-precondition|7.3|GR-CODE-001 (one of the seven documented status codes)|a gradient of another round gets FAILED_PRECONDITION",
		"ref-stream-inference-ends-with-cancelled|7.3|GR-CODE-001|StreamInference ends with CANCELLED after the client's last message",
		"ref-openai-n-of-zero-accepted|10|OA-REFUSE-003 (the published range of n begins with 1)|n may be 0, and there are no choices")
	fx("ref-message-of-bad-changes-is-a-list|7.1|NA-ERR-018 (message is a string)|error.message of a refused change is an array", "!patch", func(m M, c *C) {
		if c.status == 400 {
			set(m, "error.message", L{get(m, "error.message")})
		}
	})
	fx("ref-bad-limit-has-a-bare-error|7.1|NA-ERR-018 (gives error.code and error.message)|error is a text if a query parameter is refused", "!transactions", func(m M, c *C) {
		if c.code == "INVALID_QUERY" {
			m["error"] = get(m, "error.message")
		}
	})
	fx("ref-402-of-generations-without-details|7.1|NA-ERR-010, NA-ERR-011|the 402 of a generation has no details", "!inference", func(m M, c *C) {
		if c.status == 402 {
			del(m, "error.details")
		}
	})
	fx("ref-402-available-counts-the-stake|7.1|NA-ERR-020 (available is that of the balance)|available in a 402 contains what is staked", "!", func(m M, c *C) {
		if c.status == 402 {
			set(m, "error.details.available", amt(c.acct.avail+c.acct.staked))
		}
	})
	gx("ref-unknown-version-is-an-empty-success|4.3|GR-CKPT-005, GR-CKPT-001|a min_version that is too high is answered with success and no data", "GetCheckpoint", func(m *Msg, g *G) {
		if g.fail && g.req.getInt32(2) > round {
			m.f = nil
			m.boolean(1, true)
			m.varint(3, round)
			m.str(4, modelH)
		}
	})
	gx("ref-unfound-value-is-not-found|4.3|DH-007 (answers with found false)|DHTFindValue ends with NOT_FOUND if nothing is stored under the key", "DHTFindValue", func(m *Msg, g *G) {
		if g.err == nil && !m.has(4) {
			g.err = gerr(codes.NotFound, "no such key")
		}
	})
	fx("ref-accounts-of-odd-keys-refused|4.2|NT-ROUTE-008 (a compressed public key)|public keys that begin with 03 are refused", "n-account", func(m M, c *C) {
		if strings.HasPrefix(m["public_key"].(string), "03") {
			c.status = 400
			replace(m, M{"error": "public_key must begin with 02."})
		}
	})
	fx("ref-block-with-a-quoted-prompt-fails|4.2|NT-RULE-036 (a block of the list can be read by its height)|a block with a prompt that has quotes gets 500", "n-block", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if p, _ := t["prompt"].(string); strings.Contains(p, `"`) {
				c.status = 500
				replace(m, M{"error": "cannot decode the transactions"})
				return
			}
		}
	})
	fx("ref-any-signature-on-a-poll-accepted|5|NT-RULE-053 (a message with the signature of other content is refused)|POST /work/poll takes every message with a signature, whatever it is", "!n-poll", func(m M, c *C) {
		if c.status == 403 {
			c.status = 200
			replace(m, M{"work": nil})
		}
	})
	fx("ref-openai-404-has-the-body-of-the-node-api|10|OA-ERROR-005, OA-ERROR-007|the 404 of a model has code and message only", "!", func(m M, c *C) {
		if c.status == 404 && strings.HasPrefix(c.r.URL.Path, "/v1/") {
			replace(m, M{"error": M{"code": "NOT_FOUND", "message": "There is no such model."}})
		}
	})
}

// bare takes the brackets off a change that stands in an array.
func bare(b []byte) []byte {
	b = bytes.TrimSpace(b)
	if len(b) > 2 && b[0] == '[' && b[len(b)-1] == ']' {
		return b[1 : len(b)-1]
	}
	return b
}
