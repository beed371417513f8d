package main

import (
	"strings"
)

var (
	hashBefore, ridBefore string
	accountBefore         M
)

func relationFaults3() {
	D("rel-search-lists-those-near-the-node|4.3|DH-020, DH-016 (the closest nodes)|an unsuccessful DHTFindValue lists the nodes closest to the node itself",
		"rel-closest-by-signed-bytes|4.3|DH-016, DH-030|the bytes of a distance are compared as signed numbers",
		"rel-openai-created-counts-up|10|OA-STREAM-006|created grows by one with every eighth chunk",
		"rel-openai-usage-counts-the-role|10|OA-STREAM-014 (within max_tokens)|the usage of a stream counts the chunk with the role as a token",
		"rel-openai-stream-of-the-first-choice|10|OA-STREAM-010 (each of the n choices is in the stream)|a stream has the first choice only")
	fx("rel-network-hash-lags-one-reading|2.2|NT-RULE-037 (height and hash go together also later)|the first reading of the network identity after a new block has the hash of the old one", "n-network", func(m M, c *C) {
		h := m["hash"].(string)
		if hashBefore != "" {
			m["hash"] = hashBefore
			set(m, "block.hash", hashBefore)
		}
		hashBefore = h
	})
	fx("rel-first-hash-of-a-page-is-its-parent|4.2|NT-RULE-035 (the same hash in the list and by itself)|the first block of a page with before has the hash of its parent", "n-blocks", func(m M, c *C) {
		if r := rows(m, "blocks"); len(r) > 0 && c.r.URL.Query().Get("before") != "" {
			r[0]["hash"] = r[0]["parent_hash"]
		}
	})
	fx("rel-late-requests-show-the-one-before|4.2|NT-RULE-030, NT-RULE-054|under the id of the latest requests stands the record of the one before", "n-request", func(m M, c *C) {
		for i, id := range reqOrder {
			if id == m["request_id"] && i > 6 {
				replace(m, clone(requests[reqOrder[i-1]]).(M))
				return
			}
		}
	})
	fx("rel-expired-request-without-refund|3|ST-004, 2.2 (the record of its expiry and refund)|an expired request has no record of a refund", "n-request", func(m M, c *C) { delete(m, "refund") })
	fx("rel-unused-key-shows-the-account-before|4.2|NT-RULE-027 (the account of another key is another account)|an unused key has the figures of the account that was read before", "n-account", func(m M, c *C) {
		if m["address"] != "" {
			accountBefore = clone(m).(M)
		} else if accountBefore != nil {
			pk := m["public_key"]
			replace(m, accountBefore)
			m["public_key"] = pk
		}
	})
	fx("rel-large-artifacts-are-compressed|4.2|NT-RULE-019 (the content has the digest in its address)|artifacts of more than 4096 bytes are LZ4 frames", "n-artifact", func(m M, c *C) {
		if len(c.raw) > 4096 {
			c.raw = lz4frame(c.raw)
		}
	})
	gx("rel-checkpoint-for-a-version-has-another-hash|4.3|GR-CKPT-004|model_hash of a checkpoint that is asked for by min_version is another than otherwise", "GetCheckpoint", func(m *Msg, g *G) {
		if g.req.getInt32(2) > 0 && !g.fail {
			m.drop(4)
			m.str(4, hx(modelH))
		}
	})
	gx("rel-forward-names-the-pass-before|2.3|PL-FWD-003 (the request_id is that of the request)|the answer to a pass has the request_id of the pass before", "PipelineForward", func(m *Msg, g *G) {
		if g.err != nil {
			return
		}
		if ridBefore != "" {
			m.drop(1)
			m.str(1, ridBefore)
		}
		ridBefore = g.key
	})
	gx("rel-logits-in-half-precision|2.3|PL-FWD-007 (as many bytes as the shape and the format give)|logits have two bytes for each value", "PipelineForward", func(m *Msg, g *G) {
		if f := m.last(8, 2); f != nil {
			var b []byte
			for i := 2; i < len(f.b); i += 4 {
				b = append(b, f.b[i], f.b[i+1])
			}
			f.b = b
		}
	})
	fx("rel-openai-index-always-zero|10|OA-CHAT-106 (its place in the list)|index of every choice of a chat completion is 0", "oa-chat", func(m M, c *C) {
		for _, x := range rows(m, "choices") {
			x["index"] = 0
		}
	})
	fx("rel-openai-created-is-that-of-the-model|10|OA-CHAT-103 (the Unix time of its creation)|created of a chat completion is that of the model", "oa-chat", func(m M, c *C) { m["created"] = 1777881600 })
	fx("rel-openai-length-although-stopped|10|OA-CHAT-109, OA-CHAT-111|finish_reason of a chat completion that a stop sequence has ended is length", "oa-chat", func(m M, c *C) {
		if strings.Contains(string(c.body), `"stop"`) {
			for _, x := range rows(m, "choices") {
				x["finish_reason"] = "length"
			}
		}
	})
	fx("rel-openai-id-follows-from-the-body|10|OA-CHAT-102 (two chat completions have two ids)|the same body gets the same id again", "oa-chat", func(m M, c *C) { m["id"] = "cmpl_" + hash(c.body)[:20] })
	fx("fld-openai-text-finish-reason-of-its-own|10|OA-TEXT-109, OA-TEXT-107 (one of the published values)|finish_reason of a completion that reaches max_tokens is max_tokens", "oa-text", func(m M, c *C) {
		for _, x := range rows(m, "choices") {
			if x["finish_reason"] == "length" {
				x["finish_reason"] = "max_tokens"
			}
		}
	})
}

// signed turns a distance so that its bytes are ordered as signed numbers are.
func signed(d []byte) []byte {
	for i := range d {
		d[i] ^= 0x80
	}
	return d
}
