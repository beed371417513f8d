package main

import (
	"strconv"
	"strings"
)

func nativeRelations() {
	D("rel-transaction-id-repeats|2.1|NA-WALLET-048|every second transfer has the transaction_id of the one before",
		"rel-proofs-change-order|4.1|NA-QUERY-015|every second reading of the proofs begins at the other end",
		"rel-block-route-off-by-one-from-100|4.2|NT-RULE-025|from height 100 on a block by itself is the one before",
		"rel-unknown-request-is-pending|2.2|NT-RULE-041|a request that nobody has made is pending",
		"rel-unknown-request-is-the-latest|4.2|NT-RULE-028 (the request of another id is another request)|an unknown id gets the latest request",
		"rel-dataset-is-not-that-of-the-genesis|4.2|NT-RULE-056|the dataset has another digest than the genesis says",
		"rel-unknown-artifact-is-empty|4.2|NT-RULE-019 (the content has the digest in its address)|an unknown digest gets an empty file",
		"rel-artifacts-end-with-a-line-break|4.2|NT-RULE-019|a line break is added to artifacts",
		"rel-artifacts-cut-at-4096|4.2|NT-RULE-019|artifacts are cut after 4096 bytes",
		"rel-every-key-has-the-first-account|4.2|NT-RULE-027|every public key gets the account of the first",
		"rel-earlier-chain-shows-present-blocks|4.2|NT-RULE-045|the earlier chain lists the blocks of the present one",
		"rel-rpc-block-ignores-height|4.2|NT-RULE-057|the method block gives the newest block for every height",
		"rel-openai-chunks-have-an-id-each|10|OA-STREAM-005|each chunk of a stream has its own id")
	fx("rel-network-hash-is-the-parent|2.2|NT-RULE-021|the hash of the network identity is that of the block before", "n-network", func(m M, c *C) {
		h := blocks[len(blocks)-1].parent
		m["hash"] = h
		set(m, "block.hash", h)
	})
	fx("rel-network-height-lags-after-transfers|2.2|NT-RULE-037 (height and hash go together also later)|the height of the network identity is that of the start, the hash is not", "n-network", func(m M, c *C) {
		m["height"] = 140
		set(m, "block.height", 140)
	})
	fx("rel-blocks-have-another-hash-in-the-list|4.2|NT-RULE-035|the hashes of the list of blocks are written in capitals with 0X", "n-blocks", func(m M, c *C) {
		for _, b := range rows(m, "blocks") {
			b["hash"] = "0X" + strings.ToUpper(b["hash"].(string))
		}
	})
	fx("rel-old-blocks-have-another-hash|4.2|NT-RULE-035|blocks before height 50 have another hash by themselves", "n-block", func(m M, c *C) {
		if m["height"].(int) < 50 {
			m["hash"] = hx(m["hash"].(string))
		}
	})
	fx("rel-heights-in-the-list-start-at-zero|4.2|NT-RULE-034|heights in the list of blocks are one too low", "n-blocks", func(m M, c *C) {
		for _, b := range rows(m, "blocks") {
			b["height"] = b["height"].(int) - 1
		}
	})
	fx("rel-model-of-another-chain|2.2|NT-RULE-043 (one chain and one genesis)|chain_id of the model is orrery-2", "n-model", func(m M, c *C) { m["chain_id"] = "orrery-2" })
	fx("rel-inference-of-another-genesis|2.2|NT-RULE-043|genesis_hash of the inference information is written backwards", "n-inference", func(m M, c *C) { m["genesis_hash"] = hx(genesisHash) })
	fx("rel-request-id-is-the-transaction-hash|2.2|NT-RULE-040|transaction_hash of a request is its id", "n-request", func(m M, c *C) { m["transaction_hash"] = m["request_id"] })
	fx("rel-block-names-the-transaction-hash-as-request|2.2|NT-RULE-040|request_id in a block is the hash of the transaction", "n-block", func(m M, c *C) {
		for _, t := range rows(m, "transactions") {
			if t["request_id"] != nil {
				t["request_id"] = t["hash"]
			}
		}
	})
	fx("rel-request-has-another-prompt|4.2|NT-RULE-054|the prompt of a completed request is cut to 20 characters", "n-request", func(m M, c *C) {
		if r := []rune(m["prompt"].(string)); len(r) > 20 {
			m["prompt"] = string(r[:20])
		}
	})
	fx("rel-request-answers-under-another-id|4.2|NT-RULE-030|a request that is read has another request_id", "n-request", func(m M, c *C) { m["request_id"] = "req-" + hx(m["request_id"].(string))[:24] })
	fx("rel-account-shows-another-key|4.2|NT-RULE-027, NT-ROUTE-008|public_key of an unused account is that of the node", "n-account", func(m M, c *C) {
		if m["next_nonce"] == 0 {
			m["public_key"] = pubKey
		}
	})
	fx("rel-checkpoint-of-an-earlier-round|4.2|NT-ROUTE-004 (the newest adapter from training and its root)|the checkpoint has the round and root before the newest", "n-checkpoint", func(m M, c *C) {
		u := updates[len(updates)-2]
		m["round"], m["root"] = u["round"], u["root"]
	})
	fx("rel-account-total-without-locked|2.2|account: the balance that can be spent, the locked budget, the liquid total of both|total_atoms is available_atoms", "n-account", func(m M, c *C) { m["total_atoms"] = m["available_atoms"] })
	// gRPC
	D("rel-a-node-is-listed-twice|4.3|DH-005|the first node is listed twice",
		"rel-closest-by-difference-not-xor|4.3|DH-016, DH-012|the eight nodes with the lowest IDs are listed, whatever the target",
		"rel-closest-by-first-byte-only|4.3|DH-030, DH-016|only the first byte of the distance counts",
		"rel-farthest-nodes-are-listed|4.3|DH-016|the five farthest nodes are listed",
		"rel-the-closest-node-is-left-out|4.3|DH-006, DH-016|the closest node is left out",
		"rel-target-itself-is-left-out|4.3|DH-006|a node whose ID is the target is left out",
		"rel-sender-without-address-is-listed|2.3|DH-027, DH-018|a sender without an address is listed without one",
		"rel-unfound-value-has-an-empty-looking-value|2.3|DH-008|an answer with found false has the value null",
		"rel-unfound-value-is-found|4.3|DH-007|found is true for a key under which nothing was stored",
		"rel-unsuccessful-search-lists-nobody|4.3|DH-020|an unsuccessful DHTFindValue lists no nodes",
		"rel-refusals-count-the-round-up|2.3|GR-GOSSIP-004|each refusal of a gradient names a higher round",
		"rel-refusal-repeats-the-round-of-the-sender|2.3|GR-GOSSIP-003 (current_round is the receiver's), GR-GOSSIP-004|current_round of a refusal is round_id of the request",
		"rel-accepted-gradient-names-the-next-round|4.3|GR-GOSSIP-005|current_round of an accepted gradient is one higher than that of a refusal",
		"rel-accepted-gradient-names-no-round|4.3|GR-GOSSIP-005|current_round of an accepted gradient is 0",
		"rel-weights-of-every-layer-are-those-of-the-first|2.3|GR-WEIGHT-003|every range gets the weights of the first layer",
		"rel-returned-gradient-shorter-than-its-shape|2.3|PL-BWD-005|the last value of a gradient that goes back is missing")
	gx("rel-forward-echoes-the-session|2.3|PL-FWD-003|request_id of the answer is the session_id", "PipelineForward", func(m *Msg, g *G) {
		if m.has(1) {
			m.drop(1)
			m.str(1, g.req.getStr(1))
		}
	})
	gx("rel-forward-not-final|2.3|PL-FWD-005, PL-FWD-002|is_final is false although there are logits", "PipelineForward", func(m *Msg, g *G) { m.drop(7) })
	gx("rel-logits-shape-of-the-hidden-states|2.3|PL-FWD-007|logits_shape is the shape of the request", "PipelineForward", func(m *Msg, g *G) {
		if m.has(9) {
			m.drop(9)
			s, _ := g.req.getInts(4)
			m.packed(9, s)
		}
	})
	gx("rel-logits-without-shape|2.3|PL-FWD-007 (a tensor in an answer has a shape)|logits_shape is missing", "PipelineForward", func(m *Msg, g *G) { m.drop(9) })
	gx("rel-training-pass-without-loss|2.3|PL-FWD-008|a forward pass with labels returns no loss", "PipelineForward", func(m *Msg, g *G) { m.drop(10) })
	gx("rel-forward-returns-nothing-in-training|4.3|PL-FWD-004|a forward pass with labels returns no logits", "PipelineForward", func(m *Msg, g *G) {
		if len(g.req.getBytes(11)) > 0 {
			m.drop(8)
			m.drop(9)
		}
	})
	gx("rel-info-has-another-hash|4.3|GR-CKPT-004|model_hash of the info is shortened", "GetCheckpointInfo", func(m *Msg, g *G) {
		if f := m.last(2, 2); f != nil {
			f.b = f.b[:16]
		}
	})
	gx("rel-info-is-a-version-ahead|4.3|GR-CKPT-004|version of the info is one higher than that of the checkpoint", "GetCheckpointInfo", func(m *Msg, g *G) {
		if f := m.last(1, 0); f != nil {
			f.u++
		}
	})
	gx("rel-checkpoint-without-data|4.3|GR-CKPT-005|a checkpoint that is given has no data", "GetCheckpoint", func(m *Msg, g *G) { m.drop(6) })
	gx("rel-checkpoint-size-zero|2.3|GR-CKPT-010|total_size is 0", "GetCheckpoint", func(m *Msg, g *G) { m.drop(7) })
	gx("rel-checkpoint-is-not-compressed|2.3|GR-CKPT-014|checkpoint_data is no LZ4 frame", "GetCheckpoint", func(m *Msg, g *G) {
		if f := m.last(6, 2); f != nil {
			f.b = ckptPlain
		}
	})
	gx("rel-checkpoint-by-hash-has-another-version|2.3|GR-CKPT-015|a checkpoint that is asked for by its hash has version 1", "GetCheckpoint", func(m *Msg, g *G) {
		if f := m.last(3, 0); f != nil && g.req.getStr(1) != "" {
			f.u = 1
		}
	})
	gx("rel-weights-empty-for-one-layer|4.3|GR-WEIGHT-001|the weights of a single layer are empty", "GetWeights", func(m *Msg, g *G) {
		if s := g.req.getStr(1); s != "" && !strings.Contains(s, "-") {
			m.drop(1)
		}
	})
	gx("rel-responder-id-differs-between-operations|4.3|DH-002|the responder of DHTFindValue has another ID than that of DHTPing", "DHTFindValue", func(m *Msg, g *G) {
		eachNode(m, 1, func(s *Msg) { s.f[0].b = dist(s.f[0].b, []byte("another-node-id-here")) })
	})
	gx("rel-responder-is-the-sender|4.3|DH-017 (every answer names the node itself)|DHTPing names the sender as the responder", "DHTPing", func(m *Msg, g *G) {
		if b := g.req.getBytes(1); b != nil {
			m.drop(1)
			m.bytes(1, b)
		}
	})
	gx("rel-store-names-no-responder|4.3|DH-017|DHTStore names no responder", "DHTStore", func(m *Msg, g *G) { m.drop(1) })
	gx("rel-responder-port-of-nobody|2.3|DH-029|the port of the responder is 9999", "*", func(m *Msg, g *G) {
		if strings.HasPrefix(g.method, "DHT") {
			eachNode(m, 1, func(s *Msg) {
				if f := s.last(3, 0); f != nil {
					f.u = 9999
				}
			})
		}
	})
	gx("rel-responder-without-address|2.3|DH-028|the responder has no ip", "DHTFindNode", func(m *Msg, g *G) { eachNode(m, 1, func(s *Msg) { s.drop(2) }) })
	gx("rel-found-value-with-found-false|4.3|DH-009|found is false although the value is there", "DHTFindValue", func(m *Msg, g *G) { m.drop(4) })
	// OpenAI
	fx("rel-openai-indices-from-one|10|OA-CHAT-106|index of a choice counts from 1", "oa-chat", func(m M, c *C) {
		for _, r := range rows(m, "choices") {
			r["index"] = r["index"].(int) + 1
		}
	})
	fx("rel-openai-created-in-milliseconds|10|OA-CHAT-103|created is in milliseconds", "oa-chat", func(m M, c *C) { m["created"] = m["created"].(int) * 1000 })
	fx("rel-openai-usage-of-one-choice|10|OA-CHAT-112|total_tokens leaves the prompt out", "oa-chat", func(m M, c *C) { set(m, "usage.total_tokens", get(m, "usage.completion_tokens")) })
	_ = strconv.Itoa
}

func effectDecls() {
	D("eff-only-first-stop-sequence-counts|4.1|NA-INF-036|only the first of several stop sequences ends a text",
		"eff-stop-ignores-letter-case|4.1|NA-INF-041|a stop sequence ends a text in another case, too",
		"eff-stop-only-at-token-start|4.1|NA-INF-041, NA-INF-013|a stop sequence ends a text only at the beginning of a word",
		"eff-stop-with-trailing-blank-trimmed|4.1|NA-INF-041|blanks around a stop sequence are taken off",
		"eff-stop-needs-whole-token|4.1|NA-INF-041|a stop sequence ends a text only if it is a whole word",
		"eff-text-goes-on-to-end-of-token-after-stop|4.1|NA-INF-013|the word that has a stop sequence is finished, or half of the next",
		"eff-streams-ignore-stop|4.1|NA-SSE-016|a stream does not end at a stop sequence",
		"eff-long-prompts-ignore-stop|4.1|NA-INF-013|stop is ignored if the prompt has more than 100 characters",
		"eff-stop-ignored-with-temperature-zero|4.1|NA-INF-013|stop is ignored with temperature 0",
		"eff-generations-at-once-fail|4.1|NA-INF-040|generations at the same time get 500",
		"eff-unpaid-generation-takes-the-rest|7.1|NA-ERR-025|a generation that gets 402 takes all that is available",
		"eff-generation-charged-twice|2.1|NA-WALLET-023|a generation takes twice its cost",
		"eff-long-generation-charged-twice|2.1|NA-WALLET-023|a generation of more than 50 tokens takes twice its cost",
		"eff-stream-charged-for-max-tokens|2.1|NA-WALLET-023, a stream costs its tokens|a stream that ends early is charged for max_tokens",
		"eff-charged-for-max-tokens-when-stopped|2.1|NA-WALLET-023|a generation with stop sequences takes what max_tokens would cost",
		"eff-second-account-generates-on-the-first|2.1|NA-WALLET-033|every generation is charged to the first account",
		"eff-generation-not-charged|2.1|NA-WALLET-046|a generation takes nothing although it has a cost",
		"eff-request-counted-twice|2.1|NA-COUNT-003|a generation is counted twice in requests_total",
		"eff-stream-not-counted|2.1|NA-COUNT-004|a stream is not counted in requests_total",
		"eff-second-account-not-counted|2.1|NA-COUNT-001|a generation of the second account is not counted",
		"eff-stream-counted-twice|2.1|NA-COUNT-006|a stream is counted twice",
		"eff-asked-tokens-counted|2.1|NA-COUNT-007|max_tokens is counted if a stop sequence was given",
		"eff-prompt-tokens-counted-as-generated|2.1|NA-COUNT-002, NA-COUNT-003|the tokens of the prompt are counted as generated",
		"eff-stream-tokens-not-counted|2.1|NA-COUNT-005|the tokens of a stream are not counted",
		"eff-stream-tokens-counted-twice|2.1|NA-COUNT-006|the tokens of a stream are counted twice",
		"eff-long-generation-tokens-not-counted|2.1|NA-COUNT-002|the tokens of a generation of 100 or more are not counted",
		"eff-refused-change-half-done|4.1|NA-PATCH-106, NA-PATCH-115|a refused change sets its good keys",
		"eff-config-race-loses-keys|4.1|NA-PATCH-118|of changes of single keys at the same time one is lost",
		"eff-last-of-many-keys-not-set|4.1|NA-PATCH-104|the last key of a change of several keys is not set",
		"eff-resources-change-not-set|4.1|NA-PATCH-104|a change of resources is answered with success and not made",
		"eff-disabling-training-not-set|4.1|NA-PATCH-104|enabled false is answered with success and not set",
		"eff-patch-resets-section-siblings|4.1|NA-PATCH-103|a change of learning_rate sets batch_size to its default",
		"eff-batch-size-becomes-power-of-two|4.1|NA-PATCH-104|batch_size is rounded up to a power of two",
		"eff-second-change-undoes-first|4.1|NA-PATCH-108, NA-PATCH-103|a later change takes training back to its defaults first",
		"eff-config-change-forgotten-after-two-reads|4.1|NA-PATCH-113, NA-PATCH-117|a change is gone at the third reading after it",
		"eff-concurrent-transfers-share-one-balance|2.1|NA-WALLET-026|of transfers at the same time only one is taken from the balance",
		"eff-refused-transfer-costs-the-fee|7.1|NA-ERR-023|a transfer that gets 402 takes the fee",
		"eff-refused-transfer-in-history|7.1|NA-ERR-026|a transfer that gets 402 is in the history",
		"eff-fee-taken-twice|2.1|NA-WALLET-010|the fee of a transfer is taken twice",
		"eff-fee-not-taken|2.1|NA-WALLET-010|the fee of a transfer is not taken",
		"eff-fee-not-taken-for-whole-units|2.1|NA-WALLET-039|a transfer of whole units takes no fee though it names one",
		"eff-large-transfer-taken-twice|2.1|NA-WALLET-039|a transfer of three units or more is taken twice",
		"eff-transfer-takes-whole-units-only|2.1|NA-WALLET-010|only the whole units of a transfer are taken",
		"eff-self-transfer-takes-the-amount|2.1|NA-WALLET-007|a transfer to oneself takes its amount",
		"eff-self-transfer-adds-the-amount|2.1|NA-WALLET-025|a transfer to oneself adds its amount",
		"eff-receiver-gets-amount-less-fee|2.1|NA-WALLET-011|the receiver gets the amount less the fee",
		"eff-receiver-gets-nothing-without-memo|2.1|NA-WALLET-011|a transfer without a memo does not reach the receiver",
		"eff-receiver-gets-pending|2.1|NA-WALLET-011 (what the receiver has available)|the receiver has the amount as pending",
		"eff-large-transfer-drawn-from-receiver|3|NA-WALLET-037|a transfer of two units or more is taken from the receiver, too",
		"eff-fee-is-charged-to-receiver-too|3|NA-WALLET-037, NA-WALLET-011|the receiver pays a fee, too",
		"eff-send-recorded-for-receiver-only|4.1|NA-WALLET-044|a send is in the history of the receiver only",
		"eff-send-to-stranger-not-recorded|4.1|NA-WALLET-047|a transfer to an unknown address is not in the history",
		"eff-send-without-memo-not-recorded|2.1|NA-WALLET-035|a transfer without a memo is not in the history",
		"eff-self-transfer-not-recorded|2.1|NA-WALLET-006|a transfer to oneself is not in the history",
		"eff-send-recorded-twice|2.1|NA-WALLET-012, NA-WALLET-034|a transfer is in the history twice",
		"eff-every-third-send-not-recorded|2.1|NA-WALLET-006|every third transfer is not in the history",
		"eff-refused-stake-is-staked|7.1|NA-ERR-026|a stake that gets 402 adds to what is staked",
		"eff-poor-stake-stakes-what-there-is|7.1|NA-ERR-021, NA-ERR-022|a stake of too much stakes all that is available",
		"eff-second-stake-keeps-the-shorter-lock|4.1|NA-WALLET-027, NA-WALLET-028|a second stake has the shorter of both durations",
		"eff-second-stake-keeps-old-lock|2.1|NA-WALLET-002, NA-WALLET-028|a second stake is locked as long as the first, even if it asks for longer",
		"eff-stake-locked-at-most-a-year|4.1|NA-WALLET-027|a stake is locked for 365 days at most, though longer ones are accepted",
		"eff-stake-locks-a-day-less|4.1|NA-WALLET-002|a stake is locked for a day less than asked",
		"eff-stake-in-whole-months|4.1|NA-WALLET-027|the duration of a stake is rounded down to 30 days",
		"eff-stake-begins-tomorrow|2.1|NA-WALLET-020|a stake begins on the next day",
		"eff-second-stake-taken-twice|2.1|NA-WALLET-031|from the second stake on the amount is taken twice",
		"eff-stake-not-taken-from-available|2.1|NA-WALLET-015|a stake is not taken from what is available",
		"eff-second-stake-replaces-the-first|2.1|NA-WALLET-014|a second stake replaces what was staked",
		"eff-stake-also-pending|2.1|NA-WALLET-043|what is staked is pending as well",
		"eff-partial-unstake-takes-all|3|NA-WALLET-029|an unstake of a part takes all that is staked",
		"eff-unstake-leaves-the-stake|3|NA-WALLET-018|an unstake takes nothing from what is staked",
		"eff-second-unstake-not-taken|3|NA-WALLET-018|from the second unstake on nothing is taken from what is staked",
		"eff-unstaked-at-once-available|3|NA-WALLET-019|unstaked money is available at once",
		"eff-unstaked-half-available|3|NA-WALLET-019|half of unstaked money is available at once",
		"eff-gradients-go-back-twice|4.3|PL-BWD-004|the gradients of a pass go back twice",
		"eff-gradients-do-not-go-back|4.3|PL-BWD-002|gradients are not passed on to sender_url",
		"eff-gradients-sent-again-after-not-found|7.3|CL-CODE-007|gradients that get NOT_FOUND are sent again",
		"eff-gradients-sent-again-without-pause|7.3|CL-CODE-008|gradients that get UNAVAILABLE are sent again at once",
		"eff-moved-node-is-listed-twice|4.3|DH-024|a node whose address has changed is listed twice",
		"eff-store-reported-refused-but-kept|4.3|DH-019|a store that is reported as refused is kept",
		"eff-stored-values-cut-at-hundred|4.3|DH-021|stored values are cut after 100 bytes",
		"eff-stored-values-trimmed|4.3|DH-021|blanks and line breaks around stored values are taken off",
		"eff-stored-values-lose-foreign-letters|4.3|DH-021|foreign letters in stored values become question marks",
		"eff-keys-told-apart-by-eight-bytes|4.3|DH-022|only the first eight bytes of a key count",
		"eff-keys-read-as-text|4.3|DH-022|keys are told apart as UTF-8 text",
		"eff-last-byte-of-keys-ignored|4.3|DH-022|the last byte of a key does not count",
		"eff-value-found-only-once|4.3|DH-023|a value is found once and then no more",
		"eff-value-found-late|4.3|DH-009, DH-023|a value is found only the second time it is looked for",
		"eff-openai-choice-ends-twice|10|OA-STREAM-009|a choice of a stream ends twice",
		"eff-openai-stop-ignored|10|OA-CHAT-110|stop is ignored in OpenAI's interface",
		"eff-delete-removes-an-earlier-block|9|NT-RULE-031|DELETE on a view of the earlier chain removes its newest block")
}

func limitDecls() {
	D("lim-bad-limit-500|4.1|NA-QUERY-016|a limit that is no number gets 500",
		"lim-second-page-starts-one-late|4.1|NA-QUERY-008|pages with an offset begin one entry late",
		"lim-second-page-repeats-one|4.1|NA-QUERY-008, NA-QUERY-014|pages with an offset begin one entry early",
		"lim-offset-counts-pages|4.1|NA-QUERY-008|offset counts pages, not entries",
		"lim-offset-ignored|4.1|NA-QUERY-008|offset is repeated but has no effect",
		"lim-offset-above-forty-ignored|4.1|NA-QUERY-008, NA-QUERY-014|an offset above 40 has no effect",
		"lim-default-offset-is-one|4.1|NA-QUERY-012|without offset the list begins with its second entry",
		"lim-zero-limit-means-all|4.1|NA-QUERY-002|limit 0 gives up to 100 entries",
		"lim-one-more-than-limit|4.1|NA-QUERY-002|a page has one entry more than a limit above 3",
		"lim-small-limit-raised-to-five|4.1|NA-QUERY-002|a limit below five gives five entries",
		"lim-history-keeps-the-last-fifty|4.1|NA-QUERY-011, NA-QUERY-017|only the last fifty entries can be read, total counts all",
		"lim-proofs-one-more|4.1|NA-QUERY-005|a page of proofs has one more than limit",
		"lim-proofs-limit-ignored-above-twenty|4.1|NA-QUERY-005|a limit above 20 gives all proofs",
		"lim-proofs-of-limit-one-empty|4.1|NA-QUERY-009|limit 1 gives no proof",
		"lim-short-proof-page-has-the-oldest|4.1|NA-QUERY-009|a limit below ten gives proofs from the other end of the list",
		"lim-default-max-tokens-64|4.1|NA-INF-035 (default 100)|without max_tokens 64 tokens are generated",
		"lim-default-max-tokens-200|4.1|NA-INF-004|without max_tokens up to 200 tokens are generated",
		"lim-default-max-tokens-of-streams-16|4.1|NA-INF-035 (default 100)|a stream without max_tokens has 16 tokens",
		"lim-max-tokens-lessened-by-prompt|4.1|NA-INF-042|max_tokens is lessened by a quarter of the tokens of the prompt",
		"lim-one-token-too-many|4.1|NA-INF-003|one token more than max_tokens is generated",
		"lim-max-tokens-above-120-ignored|4.1|NA-INF-003|a max_tokens above 120 has no effect",
		"lim-prompt-tokens-capped-at-64|4.1|NA-INF-032|prompt_tokens is never above 64",
		"lim-temperature-up-to-five|8|NA-INF-007|a temperature up to 5 is accepted",
		"lim-temperature-two-refused|4.1|NA-INF-006|temperature 2 is refused",
		"lim-temperature-zero-refused|4.1|NA-INF-006|temperature 0 is refused",
		"lim-negative-temperature-accepted|8|NA-INF-007|a negative temperature is accepted",
		"lim-stream-temperature-unchecked|8|NA-INF-007|any temperature is accepted for a stream",
		"lim-top-p-one-refused|4.1|NA-INF-008|top_p 1 is refused",
		"lim-small-top-p-refused|4.1|NA-INF-008|top_p of 0.1 or less is refused",
		"lim-top-k-above-hundred-refused|4.1|NA-INF-009|top_k above 100 is refused",
		"lim-top-k-one-refused|4.1|NA-INF-009|top_k 1 is refused",
		"lim-native-page-one-more|4.2|NT-PAGE-001|pages of blocks and updates have one more than limit",
		"lim-training-limit-ignored|4.2|NT-PAGE-001|limit has no effect on the training history",
		"lim-blocks-limit-ignored-with-before|4.2|NT-PAGE-001|limit of blocks has no effect if before is given",
		"lim-blocks-before-ignored|4.2|NT-PAGE-002|before has no effect on the list of blocks",
		"lim-training-before-is-a-height|4.2|NT-PAGE-003|before of the training history is taken as a height",
		"lim-blocks-before-skips-one|4.2|NT-PAGE-006|between two pages of blocks one is left out",
		"lim-blocks-before-means-after|4.2|NT-PAGE-002|before gives later blocks",
		"lim-short-training-page-has-the-oldest|4.2|NT-PAGE-008|a page of less than ten updates has the oldest",
		"lim-blocks-without-before-lack-the-newest|4.2|NT-PAGE-007|without before the five newest blocks are missing",
		"lim-blocks-without-transactions-left-out|4.2|NT-PAGE-006|blocks without transactions are not listed",
		"lim-only-the-last-four-requests-kept|8|LIM-008, ST-003|only the last four requests can be looked up",
		"lim-dht-keeps-the-last-four-values|4.3|DH-015|only the last four stored values are kept",
		"lim-dht-lists-eight-of-the-oldest|4.3|DH-016|DHTFindNode lists the eight nodes that were known first",
		"lim-dht-remembers-one-node-of-a-prefix|4.3|DH-030|of nodes whose IDs begin with the same two bytes only one is kept",
		"lim-grpc-messages-to-four-mib|8|LIM-007|a gRPC message of more than 4 MiB is refused",
		"lim-grpc-messages-to-thirty-two-mib|8|LIM-007|a gRPC message of more than 32 MiB is refused",
		"lim-stream-inference-takes-one-message|4.3|GR-OP-022|StreamInference refuses the second message of a call",
		"lim-stream-inference-answers-only-the-first|4.3|GR-OP-022|StreamInference answers only the first message",
		"lim-stream-inference-closes-after-one|4.3|GR-OP-022|StreamInference ends after one message",
		"lim-only-the-first-sequence-is-computed|2.3|PL-FWD-010|only the first sequence of a pass is computed",
		"lim-only-the-last-position-is-computed|2.3|PL-FWD-004, PL-FWD-007: a forward pass passes hidden states of [batch, seq, hidden] through the layers|logits of one position only",
		"lim-gradients-tried-ten-times|8|CL-CALL-002 (at most 3 times)|gradients are sent up to ten times",
		"lim-openai-completion-default-is-100|10|OA-TEXT-113|a completion without max_tokens has 100 tokens",
		"lim-openai-max-completion-tokens-ignored|10|OA-CHAT-114|max_completion_tokens has no effect",
		"lim-openai-n-ignored|10|OA-CHAT-105|n has no effect",
		"lim-openai-usage-chunk-has-a-choice|10|OA-STREAM-012|the chunk with the usage has a choice",
		"lim-openai-usage-in-every-stream|10|OA-STREAM-011|usage is in a stream for which none is asked")
}

func registerAll() {
	fieldFaults()
	guardFaults()
	routeDecls()
	numberFaults()
	refusalFaults()
	relationFaults()
	effectDecls()
	limitDecls()
	peculiarDecls()
	applyCut()
	secondList()
}
