package main

import "strings"

// Faults that are in the code but are not offered: too much like another one.
const cut = `
lim-only-the-last-position-is-computed
fld-status-without-peer-count fld-status-cpu-percent-as-text fld-metrics-bytes-as-text fld-health-check-as-bool fld-result-cost-as-text fld-balance-amounts-as-text
fld-stake-duration-as-text fld-unstake-success-as-text fld-network-parameters-as-number fld-config-threads-null fld-patch-restart-required-null fld-training-shards-as-text
fld-verify-agreement-as-number fld-proofs-verified-as-number fld-config-without-tracker fld-health-without-peers-check fld-native-fee-is-a-number fld-send-timestamp-as-unix-time
fld-training-agreement-in-percent fld-metrics-timestamp-with-blank fld-stream-index-as-text fld-openai-refusal-missing fld-status-uptime-is-a-fraction fld-patch-updated-is-one-text
fld-unstake-date-is-a-timestamp fld-network-used-memory-in-mb fld-balance-staked-negative
gua-layers-need-no-header gua-unstake-takes-an-expired-token gua-patch-with-an-expired-token gua-second-account-cannot-read-the-configuration gua-rpc-relays-net-info
gua-network-asks-for-a-token gua-openai-models-without-key gua-beginning-of-a-token-suffices gua-config-needs-no-header
rou-stream-as-json rou-stream-as-octet-stream rou-events-without-data-prefix rou-events-as-python-text rou-transactions-under-history rou-training-global-has-a-version
rou-validators-in-the-singular rou-rpc-has-no-abci_query rou-no-GossipStake rou-native-model-is-a-page rou-no-dataset rou-peers-is-a-bare-list rou-login-redirects-to-home
rou-checkpoint-without-suffix rou-unstake-by-delete rou-healthz-under-health rou-streamed-GetWeights rou-status-as-html rou-metrics-under-stats rou-registration-is-404
num-listed-node-ids-cut num-responder-id-as-hex num-node-port-at-four num-service-of-another-name num-forward-loss-at-eleven num-gossip-round-as-text num-checkpoint-version-as-text
num-checkpoint-data-at-eight num-value-at-five num-store-success-at-three num-info-params-zero num-target-id-read-at-three num-info-params-as-double num-weights-at-two num-find-nodes-at-three
ref-no-json-is-a-server-error ref-max-tokens-text-accepted ref-temperature-text-accepted ref-top-p-object-accepted ref-stream-text-accepted ref-stop-text-accepted ref-number-as-prompt-accepted
ref-unpaid-generation-403 ref-enabled-as-text-accepted ref-batch-size-object-accepted ref-learning-rate-text-accepted ref-send-number-as-receiver ref-send-without-to-goes-to-nobody
ref-amount-true-is-one ref-amount-one-as-int-refused ref-poor-transfer-409 ref-stake-amount-text-accepted ref-duration-object-accepted ref-poor-stake-400 ref-unstake-true-is-one
ref-max-tokens-array-accepted ref-first-block-not-found ref-unsigned-poll-gets-work ref-rpc-height-refused ref-malformed-grpc-message-is-unknown-error ref-checkpoint-older-than-minimum-is-given
ref-checkpoint-of-own-version-refused ref-bad-tensor-is-internal ref-absent-layer-is-invalid ref-absent-layer-is-exhausted ref-backward-to-absent-layer-is-unavailable
ref-backward-of-known-pass-refused ref-weights-of-absent-layer-invalid ref-useless-gradient-accepted ref-short-id-is-out-of-range ref-openai-chat-without-model
ref-openai-unknown-model-is-shown ref-openai-temperature-out-of-range-accepted ref-401-without-message ref-402-without-available ref-402-details-as-text ref-bad-change-says-success-true
ref-missing-header-is-400 ref-openai-empty-messages-accepted ref-range-that-is-none-is-internal ref-top-k-text-accepted ref-weights-of-absent-layer-are-own ref-empty-forward-succeeds
ref-amount-in-array-accepted ref-temperature-bool-accepted ref-checkpoint-failure-without-reason ref-backward-failure-without-reason ref-self-transfer-of-too-much-accepted
rel-total-tokens-without-prompt rel-queue-ms-negative rel-prompt-tokens-constant rel-cost-of-currency-empty rel-send-from-is-the-node rel-send-amount-includes-the-fee
rel-unlock-date-counts-months-of-30-days-x rel-history-total-is-that-of-the-page rel-layer-count-is-total rel-config-grpc-port-is-port-plus-one rel-memory-used-above-total
rel-metrics-earned-today-above-total rel-verify-has-another-trend rel-min-loss-above-average rel-sync-rate-is-the-failures rel-stream-done-in-small-letters rel-local-node-id-is-short
rel-progress-of-outer-steps rel-uptime-twice-as-fast rel-total-layers-not-those-of-the-network rel-config-has-another-node-id rel-unstake-repeats-what-remains rel-stream-without-blanks
rel-model-of-another-chain rel-artifacts-cut-at-4096 rel-unknown-request-is-pending rel-blocks-have-another-hash-in-the-list rel-account-total-without-locked rel-every-key-has-the-first-account
rel-farthest-nodes-are-listed rel-unfound-value-is-found rel-refusal-repeats-the-round-of-the-sender rel-accepted-gradient-names-no-round rel-logits-without-shape rel-info-has-another-hash
rel-checkpoint-without-data rel-store-names-no-responder rel-responder-without-address rel-openai-indices-from-one rel-openai-created-in-milliseconds rel-verify-without-metrics-while-working
rel-history-order-turns rel-peer-total-counts-the-node rel-stake-new-balance-is-the-old-one rel-heights-in-the-list-start-at-zero rel-request-answers-under-another-id rel-closest-by-first-byte-only
rel-checkpoint-size-zero rel-forward-echoes-the-session rel-found-value-with-found-false rel-total-reward-above-the-sum rel-unknown-artifact-is-empty rel-account-shows-another-key
eff-generation-charged-twice eff-fee-taken-twice eff-fee-not-taken eff-stream-not-counted eff-request-counted-twice eff-stream-tokens-not-counted eff-second-stake-keeps-old-lock
eff-unstake-leaves-the-stake eff-unstaked-half-available eff-stake-locks-a-day-less eff-self-transfer-takes-the-amount eff-receiver-gets-pending eff-stored-values-trimmed
eff-last-byte-of-keys-ignored eff-value-found-late eff-stop-needs-whole-token eff-stream-counted-twice eff-resources-change-not-set eff-send-recorded-twice eff-stake-not-taken-from-available
eff-poor-stake-stakes-what-there-is eff-fee-is-charged-to-receiver-too eff-openai-choice-ends-twice eff-gradients-go-back-twice-x eff-long-prompts-ignore-stop-x eff-refused-stake-is-staked
eff-generation-not-charged eff-transfer-takes-whole-units-only eff-stake-in-whole-months eff-self-transfer-not-recorded
lim-offset-ignored lim-second-page-starts-one-late lim-one-more-than-limit lim-default-max-tokens-200 lim-temperature-up-to-five lim-top-p-one-refused lim-top-k-above-hundred-refused
lim-blocks-before-ignored lim-proofs-one-more lim-training-limit-ignored lim-grpc-messages-to-four-mib lim-stream-inference-takes-one-message lim-openai-n-ignored lim-blocks-before-means-after
lim-temperature-zero-refused lim-stream-inference-answers-only-the-first lim-openai-completion-default-is-100 lim-dht-lists-eight-of-the-oldest
`

func applyCut() {
	no := map[string]bool{}
	for _, id := range strings.Fields(cut) {
		no[id] = true
	}
	var k []decl
	for _, d := range faults {
		if !no[d.id] {
			k = append(k, d)
		}
	}
	faults = k
}
