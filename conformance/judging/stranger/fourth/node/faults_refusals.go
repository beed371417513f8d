package main

func refusalFaults() {
	D("ref-trailing-bytes-after-json-accepted|4.1|NA-INF-021 (a body that is not JSON is refused)|bytes after a JSON object are ignored",
		"ref-no-json-is-the-prompt|4.1|NA-INF-021|a body that is no JSON is taken as the prompt",
		"ref-no-json-is-a-server-error|4.1|NA-INF-020|a body that is no JSON gets 500",
		"ref-missing-prompt-is-empty-prompt|4.1|NA-INF-002|a body without a prompt is served",
		"ref-number-as-prompt-accepted|4.1|NA-INF-019, NA-INF-031|a prompt that is no string is accepted",
		"ref-prompt-with-quotes-500|4.1|NA-INF-038|a prompt with a quote or a line break gets 500",
		"ref-prompt-outside-bmp-refused|4.1|NA-INF-030|a prompt with an emoji is refused",
		"ref-max-tokens-array-accepted|4.1|NA-INF-031|max_tokens may be an array",
		"ref-max-tokens-fraction-accepted|4.1|NA-INF-019|max_tokens may have a fraction",
		"ref-max-tokens-one-refused|4.1|NA-INF-005|max_tokens 1 is refused",
		"ref-max-tokens-text-accepted|4.1|NA-INF-019|max_tokens may be a string of digits",
		"ref-temperature-bool-accepted|4.1|NA-INF-019|temperature may be a bool",
		"ref-temperature-text-accepted|4.1|NA-INF-019|temperature may be a string",
		"ref-top-k-text-accepted|4.1|NA-INF-019, NA-INF-031|top_k may be anything that is no number",
		"ref-top-p-object-accepted|4.1|NA-INF-031|top_p may be anything that is no number",
		"ref-stream-object-is-true|4.1|NA-INF-039|stream may be an object or an array",
		"ref-stream-text-accepted|4.1|NA-INF-019|stream may be a string",
		"ref-stop-text-accepted|4.1|NA-INF-019 (stop is an array)|stop may be a string",
		"ref-stop-with-numbers-accepted|4.1|NA-INF-019 (texts that end the generation)|numbers in stop are passed over",
		"ref-empty-stop-refused|4.1|NA-INF-012|an empty array of stop sequences is refused",
		"ref-unpaid-generation-served|7.1|NA-ERR-025|a generation that costs more than is available is served",
		"ref-unpaid-generation-403|7.1|NA-ERR-025|a generation that costs more than is available gets 403",
		"ref-unpaid-stream-in-events|7.1|NA-ERR-027|a stream that costs too much gets 200 and an error in an event",
		"ref-config-section-null-accepted|4.1|NA-PATCH-109|null is accepted for training or resources",
		"ref-dotted-config-key-accepted|4.1|NA-PATCH-119|a change with the dotted key training.batch_size is made",
		"ref-mixed-change-accepts-the-good-keys|4.1|NA-PATCH-115|of a change with a bad value the good keys are changed, with success",
		"ref-single-key-change-refused|4.1|NA-PATCH-114|a change of batch_size alone is refused",
		"ref-enabled-as-text-accepted|4.1|NA-PATCH-105|enabled may be a string",
		"ref-batch-size-with-fraction-accepted|4.1|NA-PATCH-105|batch_size may have a fraction",
		"ref-batch-size-object-accepted|4.1|NA-PATCH-109|batch_size may be an object or an array",
		"ref-learning-rate-text-accepted|4.1|NA-PATCH-105|learning_rate may be a string",
		"ref-send-number-as-receiver|4.1|NA-WALLET-041|to may be of any type",
		"ref-send-without-to-goes-to-nobody|4.1|NA-WALLET-040, body: to string|to may be null",
		"ref-memo-object-accepted|4.1|NA-WALLET-040|memo may be an object or a number",
		"ref-amount-as-text-accepted|4.1|NA-WALLET-041|the amount of a transfer may be a string",
		"ref-amount-true-is-one|4.1|NA-WALLET-041|the amount of a transfer may be true",
		"ref-amount-in-array-accepted|4.1|NA-WALLET-040|the amount of a transfer may be in an array",
		"ref-negative-transfer-accepted|2.1|NA-WALLET-001 (a transfer result repeats the amount of the request)|a transfer of a negative amount is made with the positive one",
		"ref-amount-with-point-zero-refused|4.1|NA-WALLET-038|a transfer of 1.0 is refused, one of 1 is not",
		"ref-amount-one-as-int-refused|4.1|NA-WALLET-038|a transfer of 1 is refused, one of 1.0 is not",
		"ref-send-without-amount-500|4.1|NA-WALLET-042|an amount that is null gets 500",
		"ref-overdraft-by-fee-accepted|7.1|NA-ERR-024|a transfer of all that is available is made in spite of the fee",
		"ref-second-account-may-overdraw|7.1|NA-ERR-021|the second account may transfer more than it has",
		"ref-self-transfer-of-too-much-accepted|7.1|NA-ERR-021|a transfer to oneself may be of more than is available",
		"ref-poor-transfer-409|7.1|NA-ERR-008|a transfer of too much gets 409",
		"ref-poor-transfer-success-status-failed|7.1|NA-ERR-021|a transfer of too much gets 200 with the status failed",
		"ref-stake-amount-text-accepted|4.1|NA-WALLET-041|the amount of a stake may be a string",
		"ref-negative-stake-accepted|4.1|NA-WALLET-041 (a stake of less than nothing is refused)|a negative stake is accepted",
		"ref-duration-text-accepted|4.1|NA-WALLET-041|duration_days may be a string",
		"ref-duration-object-accepted|4.1|NA-WALLET-040|duration_days may be an object",
		"ref-poor-stake-400|7.1|NA-ERR-022|a stake of too much gets 400",
		"ref-poor-stake-success-false|7.1|NA-ERR-022|a stake of too much gets 200 with success false",
		"ref-unstake-without-amount-unstakes-all|3|an unstake needs an amount: on condition that an amount is given; NA-WALLET-041|an unstake whose amount is missing or null takes all",
		"ref-unstake-true-is-one|4.1|NA-WALLET-041|the amount of an unstake may be true",
		"ref-unstake-too-much-accepted|3|NA-WALLET-024|an unstake of more than is staked is made",
		"ref-unstake-too-much-gives-all|2.1|NA-WALLET-004 (an unstake result repeats the amount of the request)|an unstake of more than is staked takes what is staked",
		"ref-block-of-the-future-is-the-head|4.2|NT-RULE-025 (the block at a height has this height)|a height that is not reached gives the newest block",
		"ref-first-block-not-found|4.2|NT-RULE-036|the first block is not found",
		"ref-latest-block-not-found|4.2|NT-RULE-036|the newest block is listed but not found",
		"ref-expired-requests-not-found|4.2|LIM-008, NT-ROUTE-011|an expired request is not found",
		"ref-unsigned-work-accepted|4.2|NT-RULE-039|POST /work/result takes an unsigned message with success",
		"ref-unsigned-poll-gets-work|4.2|NT-RULE-039|POST /work/poll answers an unsigned message with success",
		"ref-rpc-height-refused|4.2|NT-RULE-018|block and validators take no height",
		"ref-rpc-validators-need-height|4.2|NT-RULE-018|validators without a height is refused",
		"ref-earlier-chain-takes-posts|4.2|NT-RULE-020 (read-only)|a POST to a view of the earlier chain succeeds")
	D("ref-malformed-grpc-message-is-internal|7.3|GR-CODE-002|a message that cannot be read gets INTERNAL",
		"ref-malformed-grpc-message-is-unknown-error|7.3|GR-CODE-002|a message that cannot be read gets UNKNOWN",
		"ref-malformed-grpc-message-is-served|7.3|GR-CODE-002|GetCheckpointInfo answers a message that cannot be read",
		"ref-unlisted-operation-succeeds|4.3|GR-NAME-002|an operation that is not listed gets OK",
		"ref-checkpoint-of-unknown-hash-is-given|4.3|GR-CKPT-002|any model_hash gets the checkpoint",
		"ref-checkpoint-older-than-minimum-is-given|4.3|GR-CKPT-001|any min_version gets the checkpoint",
		"ref-checkpoint-too-new-is-internal|7.3|GR-CODE-015|a min_version that is too high gets INTERNAL",
		"ref-checkpoint-of-own-version-refused|4.3|GR-CKPT-012|the checkpoint is not given for its own version",
		"ref-checkpoint-of-own-hash-refused|4.3|GR-CKPT-012|the checkpoint is not given for its own hash",
		"ref-checkpoint-failure-without-reason|7.3|GR-CKPT-003|a checkpoint answer with success false has no error_message",
		"ref-checkpoint-failure-with-data|7.3|GR-CKPT-013|a checkpoint answer with success false has the data",
		"ref-forward-failure-without-reason|4.3|PL-FWD-001|a forward pass that is wrong gets success false without a reason",
		"ref-bad-tensor-is-internal|7.3|GR-CODE-015|a tensor of a wrong size gets INTERNAL",
		"ref-empty-forward-succeeds|7.3|GR-CODE-002, PL-FWD-004|a forward pass without hidden states succeeds without a result",
		"ref-absent-layer-is-unavailable|7.3|GR-CODE-013|a pass to an absent layer gets UNAVAILABLE",
		"ref-absent-layer-is-computed|7.3|GR-CODE-004|a pass to an absent layer is computed",
		"ref-absent-layer-is-invalid|7.3|GR-CODE-004|a pass to an absent layer gets INVALID_ARGUMENT",
		"ref-absent-layer-is-exhausted|7.3|GR-CODE-013|a pass to an absent layer gets RESOURCE_EXHAUSTED",
		"ref-last-own-layer-not-found|7.3|GR-CODE-014|a pass to the last layer gets NOT_FOUND",
		"ref-backward-to-absent-layer-succeeds|7.3|GR-CODE-012|gradients for an absent layer are accepted",
		"ref-backward-to-absent-layer-is-unavailable|7.3|GR-CODE-013|gradients for an absent layer get UNAVAILABLE",
		"ref-backward-failure-without-reason|7.3|PL-BWD-001|a backward answer with success false has no error_message",
		"ref-backward-of-unknown-pass-internal|7.3|GR-CODE-015|gradients for an unknown pass get INTERNAL",
		"ref-backward-of-known-pass-refused|4.3|PL-BWD-003|gradients for a pass that was kept are refused",
		"ref-range-that-is-none-is-internal|7.3|GR-CODE-015|a shard_range that is none gets INTERNAL",
		"ref-weights-of-absent-layer-empty|7.3|GR-WEIGHT-001, GR-WEIGHT-002|the weights of an absent layer are empty, with OK",
		"ref-weights-of-absent-layer-are-own|7.3|GR-WEIGHT-002|the weights of an absent layer are those of another",
		"ref-weights-of-absent-layer-invalid|7.3|GR-WEIGHT-002|the weights of an absent layer get INVALID_ARGUMENT",
		"ref-gradient-of-another-model-accepted|2.3|GR-GOSSIP-006|a gradient of another model is accepted",
		"ref-refused-gradient-without-reason|7.3|GR-GOSSIP-001|a refusal of a gradient has no reason",
		"ref-useless-gradient-accepted|2.3|GR-GOSSIP-006 (a gradient whose model_hash is that of another model is not accepted)|every gradient is accepted, whatever it is",
		"ref-short-id-is-a-panic|7.3|GR-CODE-011|an ID or key of another length gets UNKNOWN",
		"ref-short-id-is-out-of-range|7.3|GR-CODE-011|an ID or key of another length gets OUT_OF_RANGE",
		"ref-openai-chat-with-any-model|10|OA-REFUSE-006|a chat with an unknown model is served",
		"ref-openai-chat-without-model|10|OA-REFUSE-002|a chat without model is served",
		"ref-openai-empty-messages-accepted|10|OA-REFUSE-001|a chat with an empty list of messages is served",
		"ref-openai-temperature-out-of-range-accepted|10|OA-REFUSE-003|a temperature above 2 is accepted",
		"ref-openai-unknown-model-is-shown|10|OA-MODEL-104|GET /v1/models/x answers with the only model")
	e := func(m M) M { x, _ := m["error"].(M); return x }
	fx("ref-401-with-details|7.1|NA-ERR-005 (a 401 has no details)|a 401 has details with the route", "!", func(m M, c *C) {
		if c.status == 401 {
			e(m)["details"] = M{"path": c.r.URL.Path}
		}
	})
	fx("ref-401-without-message|7.1|NA-ERR-003|error.message is missing in a 401", "!", func(m M, c *C) {
		if c.status == 401 {
			delete(e(m), "message")
		}
	})
	fx("ref-401-of-expired-tokens-has-another-code|7.1|NA-AUTH-003|the code for an expired token is TOKEN_EXPIRED", "!", func(m M, c *C) {
		if c.status == 401 && c.r.Header.Get("Authorization") == "Bearer tok-x" {
			e(m)["code"] = "TOKEN_EXPIRED"
		}
	})
	fx("ref-expired-is-403|5|NA-AUTH-002|an expired token gets 403", "!", func(m M, c *C) {
		if c.status == 401 && c.r.Header.Get("Authorization") == "Bearer tok-x" {
			c.status = 403
		}
	})
	fx("ref-missing-header-is-400|5|NA-AUTH-004|a request without a bearer header gets 400", "!", func(m M, c *C) {
		if c.status == 401 && c.r.Header.Get("Authorization") == "" {
			c.status = 400
		}
	})
	fx("ref-bad-token-on-changes-is-403|5|NA-AUTH-007, NA-AUTH-008|an unknown token gets 403 on routes that change something", "!", func(m M, c *C) {
		if c.status == 401 && c.r.Method != "GET" {
			c.status = 403
		}
	})
	fx("ref-errors-are-flat|7.1|NA-ERR-001 (an object named error)|code and message stand beside each other without error", "!", func(m M, c *C) {
		if x := e(m); x != nil && !c.native {
			for k, v := range x {
				m[k] = v
			}
			delete(m, "error")
		}
	})
	fx("ref-402-details-as-text|7.1|NA-ERR-010|details.required of a 402 is a string", "!", func(m M, c *C) {
		if c.status == 402 {
			set(m, "error.details.required", text(get(m, "error.details.required")))
		}
	})
	fx("ref-402-without-available|7.1|NA-ERR-011|details.available is missing in a 402", "!", func(m M, c *C) {
		if c.status == 402 {
			del(m, "error.details.available")
		}
	})
	fx("ref-402-of-stakes-has-another-code|7.1|NA-ERR-009|the code of a 402 of a stake is NOT_ENOUGH_FUNDS", "!stake", func(m M, c *C) {
		if c.status == 402 {
			set(m, "error.code", "NOT_ENOUGH_FUNDS")
		}
	})
	fx("ref-402-details-in-atoms|7.1|NA-ERR-020 (available is that of the balance)|the details of a 402 are in atoms", "!", func(m M, c *C) {
		if c.status == 402 {
			for _, k := range []string{"error.details.required", "error.details.available"} {
				set(m, k, num(get(m, k))*unit)
			}
		}
	})
	fx("ref-402-required-is-the-missing-part|7.1|NA-ERR-019 (less is available than is required)|required of a 402 is what is missing", "!", func(m M, c *C) {
		if c.status == 402 {
			set(m, "error.details.required", num(get(m, "error.details.required"))-num(get(m, "error.details.available")))
		}
	})
	fx("ref-402-required-without-the-decimals|7.1|NA-ERR-020 (required covers the amount)|required of a 402 is cut to hundreds of units", "!", func(m M, c *C) {
		if c.status == 402 {
			set(m, "error.details.required", float64(int(num(get(m, "error.details.required")))/100*100))
		}
	})
	fx("ref-bad-temperature-is-422-without-code|7.1|NA-ERR-018 (gives error.code and error.message)|a refused parameter of an inference has a body with detail only", "!inference", func(m M, c *C) {
		if c.status == 400 {
			delete(m, "error")
			m["detail"] = L{M{"loc": "body", "msg": "value"}}
		}
	})
	fx("ref-bad-bodies-show-a-traceback|7.1|NA-ERR-014|the message of a refused body shows a traceback", "!", func(m M, c *C) {
		if c.code == "INVALID_JSON" {
			e(m)["message"] = "Traceback (most recent call last):\n  File \"/srv/node/app.py\", line 88, in read\n    json.loads(body)\njson.decoder.JSONDecodeError: Expecting value"
		}
	})
	fx("ref-bad-change-says-success-true|4.1|NA-PATCH-106, NA-PATCH-109 (a change that no reader can take is refused)|a refused change gets 200 with success true and an empty updated", "!patch", func(m M, c *C) {
		if c.status == 400 {
			c.status = 200
			delete(m, "error")
			m["success"], m["updated"], m["restart_required"] = true, L{}, false
		}
	})
	fx("ref-rate-limited-with-400|7.1|NA-ERR-028 (RATE_LIMITED has the status 429)|every refused parameter has the code RATE_LIMITED", "!", func(m M, c *C) {
		if c.code == "INVALID_REQUEST" {
			e(m)["code"] = "RATE_LIMITED"
		}
	})
}
