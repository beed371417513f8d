"""More single faults of fields and of numbers on the wire. Importing this starts nothing."""

# id | section | requirement | what
TEXT = """
fld2-status-version-null|2.1|-|version of the status is null
fld2-status-layers-strings|2.1|-|layer indices of the status are texts
fld2-status-role-array|2.1|-|the role of the status is an array of roles
fld2-status-peers-listed|2.1|-|peer_count is the list of the peers' ids
fld2-status-cpu-text|2.1|-|cpu_percent is a text with a percent sign
fld2-status-gpu-gib|2.1|-|gpu_memory_used is in GiB, with a fraction
fld2-metrics-time-epoch|2|-|the timestamp of the metrics is a number of seconds since 1970
fld2-metrics-steps-hour-fraction|2.1|-|steps_per_hour has a fraction
fld2-metrics-earned-text|2.1|-|rewards.earned_total is a decimal text
fld2-metrics-rpc-camel|2.1|-|network.rpc_calls is called rpcCalls
fld2-metrics-connections-gone|2.1|-|network.active_connections is missing
fld2-metrics-minute-null-idle|2.1|-|requests_per_minute is null when there was no request within the last minute
fld2-metrics-p99-null-few|2.1|-|p99_latency_ms is null while there are fewer than 100 samples
fld2-health-healthy-int|2.1|-|healthy is 1
fld2-health-checks-bool|2.1|-|the health checks are true or false
fld2-health-storage-gone|2.1|-|the health checks have no storage
fld2-result-amount-text|2.1|-|cost.amount is a decimal text
fld2-result-currency-gone|2.1|-|cost has no currency
fld2-result-total-gone|2.1|-|usage has no total_tokens
fld2-result-text-null-empty|2.1|-|text is null where nothing was generated
fld2-result-tokens-null-stop|2.1|-|tokens_generated is null where a stop sequence ended the text
fld2-result-inference-null-again|2.1|-|inference_ms is null when the same prompt comes again
fld2-result-id-int|2.1|-|the id of a result is an integer
fld2-sse-index-text|6|-|the index of a token event is a text
fld2-sse-first-null|6|-|the token of the first event is null
fld2-final-total-gone|6|-|usage of the final event has no total_tokens
fld2-balance-total-text|2.1|-|balances.total is a decimal text
fld2-balance-multiplier-text|2.1|-|staking.multiplier is a text that ends with x
fld2-balance-duration-text|2.1|-|staking.duration_days is a text with the word days
fld2-balance-unlock-no-zeros|2|-|month and day of staking.unlock_date have no leading zeros
fld2-balance-staking-null|2.1|-|staking is null while nothing is staked
fld2-send-amount-text|2.1|-|the amount of a transfer result is a text
fld2-send-id-null-stranger|2.1|-|transaction_id is null where the receiver is not known
fld2-send-to-object|2.1|-|to of a transfer result is an object
fld2-send-time-http|2|-|the timestamp of a transfer is written like an HTTP date
fld2-send-status-enum|2.1|-|the status of a transfer is a number
fld2-history-id-gone-rewards|2.1|-|rewards have no id in the history
fld2-history-details-text|2.1|-|details of a reward are a text that holds JSON
fld2-history-proof-camel|2.1|-|proof_id of a reward is called proofId
fld2-history-to-null-stranger|2.1|-|to of a send to an unknown address is null in the history
fld2-history-stake-as-send|2.1|-|a stake is listed as a send without a to
fld2-history-total-text|4.1|-|total of the history is a text
fld2-history-empty-null|4.1|-|an empty page of the history has null as transactions
fld2-stake-success-int|2.1|-|success of a stake is 1
fld2-stake-start-time|2|-|start_date of a stake result has a time of day
fld2-stake-multiplier-null-short|2.1|-|a stake for less than 30 days has null as multiplier
fld2-stake-available-text|2.1|-|new_balance.available is a decimal text
fld2-unstake-cooldown-fraction|2.1|-|cooldown_days has a fraction
fld2-unstake-date-time|2|-|available_date has a time of day
fld2-peers-address-url|2.1|-|the address of a peer begins with http://
fld2-peers-since-seconds|2.1|-|connected_since is a number of seconds
fld2-peers-layers-text|2.1|-|layers of a peer are a text with commas
fld2-peers-total-gone|4.1|-|the peers have no total
fld2-layers-memory-fraction|2.1|-|memory_mb of a layer has a fraction
fld2-layers-count-array|4.1|-|my_layer_count is the array of indices
fld2-network-drivers-gone|2.1|-|nodes.drivers is missing
fld2-network-memory-text|2.1|-|total_memory_gb is a text with its unit
fld2-network-step-mean|2.1|-|global_step is a mean, with a fraction
fld2-config-tracker-array|2.1|-|tracker_url is an array
fld2-config-port-text|2.1|-|port of the configuration is a text
fld2-config-rate-text|2.1|-|learning_rate is a text with an exponent
fld2-config-enabled-int-after|2.1|-|training.enabled is 0 after it has been set to false
fld2-patch-updated-object|4.1|-|updated is an object of paths and values
fld2-patch-updated-slashes|4.1|-|paths in updated have slashes for dots
fld2-patch-restart-null|4.1|-|restart_required is null
fld2-global-shards-count|2.1|-|data_shards_covered is a count
fld2-global-tokens-text|2.1|-|global_tokens is a text
fld2-global-trend-slope|2.1|-|loss_trend is a number
fld2-global-progress-text|2.1|-|diloco.progress is a text with a percent sign
fld2-global-loss-null-disabled|2.1|-|local.current_loss is null while training is disabled
fld2-verify-reason-null|4.1|-|reason is null while training works
fld2-verify-action-gone|4.1|-|the problem shape of the quick verification has no action
fld2-proofs-layer-text|2.1|-|layer of a proof is a text
fld2-proofs-verified-null|2.1|-|verified of a proof that is not verified is null
fld2-proofs-stats-gone-limit|4.1|-|there are no stats when proofs are asked for with a limit
fld2-401-error-text|7.1|-|error of a 401 is a text
fld2-402-message-gone|7.1|-|a 402 has no message
fld2-402-code-number|7.1|-|the code of a 402 is a number
fld2-400-message-list|7.1|-|the message of a bad request is an array
fld2-429-retry-text|7.1|-|retry_after of a 429 is a text
fld2-429-retry-fraction|7.1|-|retry_after of a 429 has a fraction
fld2-429-details-gone|7.1|-|a 429 has no details
fld2-account-spendable-number|2.2|-|available atoms of an account are a number
fld2-account-grouped|2.2|-|the total atoms of an account have commas
fld2-supply-exponent|2.2|-|the supply is written with an exponent
fld2-validators-bond-units|2.2|-|the bond of a validator is in whole units with decimals
fld2-validators-power-gone|2.2|-|validators have no power
fld2-price-decimal|2.2|-|the price of a request is in whole units with decimals
fld2-refund-number|2.2|-|the atoms of a refund are a number
fld2-request-response-gone|2.2|-|the record of a completed request has no response
fld2-block-transactions-raw|4.2|-|a block shows transactions that are not decoded
fld2-updates-loss-gone|2.2|-|updates have no loss
fld2-forward-request-id-gone|2.3|-|the answer to a pass has no request_id
fld2-forward-success-unset|2.3|-|success of a pass that succeeded is false
fld2-forward-logits-gone-trained|4.3|-|a pass with labels has no logits
fld2-info-hash-gone|2.3|-|GetCheckpointInfo has no model_hash
fld2-info-loss-nan|2.3|-|loss of GetCheckpointInfo is NaN
fld2-checkpoint-hash-gone|2.3|-|a checkpoint has no model_hash
fld2-checkpoint-version-unset-hash|2.3|-|a checkpoint asked for by its hash has version 0
fld2-responder-id-sha256|2.3|-|the ID of the responder has 32 bytes
fld2-responder-id-text|2.3|-|the ID of the responder is the text of the node's id
fld2-responder-no-address|2.3|-|the responder has no address
fld2-nodes-port-unset|2.3|-|listed nodes have the port in ip, and 0 as port
fld2-ping-no-responder|2.3|-|the answer to a ping has no responder
fld2-store-no-responder|2.3|-|the answer to a store has no responder
fld2-value-no-responder|2.3|-|the answer to DHTFindValue has no responder
fld2-value-not-found-no-nodes|4.3|-|DHTFindValue lists no nodes where the value is not found
fld2-network-ready-gone|2.2|-|the network identity has no readiness
fld2-network-genesis-gone|2.2|-|the network identity has no genesis identity
fld2-model-profile-gone|2.2|-|the model has no execution profile
fld2-model-frozen-gone|2.2|-|the model has no count of frozen parameters
fld2-checkpoint-adapter-gone|2.2|-|checkpoint.json has no adapter
fld2-updates-index-gone|2.2|-|the training history has no progress of the index
fld2-account-nonce-gone|2.2|-|an account has no next nonce
fld2-account-locked-gone|2.2|-|an account has no locked budget
fld2-inference-heartbeat-gone|2.2|-|the inference information has no heartbeat
fld2-inference-fee-gone|2.2|-|the inference information has no fee
fld2-work-attempts-gone|2.2|-|the work status has no remaining attempts
fld2-work-stages-gone|2.2|-|the work status has no stages
fld2-blocks-results-gone|2.2|-|blocks of the list have no execution results
fld2-validators-owner-null|2.2|-|the owner of each validator is null
num2-forward-request-ids|2.3|-|session_id and request_id of a pass are read from each other's number
num2-forward-request-shape-five|2.3|-|hidden_shape is read from 5
num2-forward-request-cache-ten|2.3|-|use_cache is read from 7
num2-forward-request-labels-twelve|2.3|-|training_labels are read from 12
num2-forward-request-target-sint|2.3|-|target_shard is read as a sint32
num2-backward-request-ids|2.3|-|session_id and request_id of a backward pass are read from each other's number
num2-backward-request-grad-four|2.3|-|grad_output and grad_shape are read from each other's number
num2-backward-request-target-six|2.3|-|target_shard of a backward pass is read from 6
num2-gossip-request-round-three|2.3|-|round_id and model_hash are read from each other's number
num2-gossip-request-gradients-eight|2.3|-|layer_gradients and signature are read from each other's number
num2-gossip-request-batch-sint|2.3|-|batch_size is read as a sint32
num2-gossip-request-map-swapped|2.3|-|keys and values of layer_gradients have changed their numbers
num2-checkpoint-request-version-three|2.3|-|min_version is read from 3
num2-value-request-key-three|2.3|-|key of DHTFindValue is read from 3
num2-store-request-swapped|2.3|-|key and value of a store are read from each other's number
num2-forward-success-one|2.3|-|request_id and success have changed their numbers
num2-forward-logits-four|2.3|-|logits are at the number of hidden_states
num2-forward-cache-five|2.3|-|past_key_values is field 5
num2-forward-loss-eleven|2.3|-|loss is field 11
num2-forward-shape-fixed|2.3|-|logits_shape has sfixed64
num2-forward-shape-zigzag|2.3|-|logits_shape has sint64
num2-backward-success-two|2.3|-|success and error_message of a backward pass have changed their numbers
num2-gossip-accepted-two|2.3|-|accepted and reason have changed their numbers
num2-gossip-round-four|2.3|-|current_round is field 4
num2-gossip-round-fixed|2.3|-|current_round is a fixed32
num2-weights-data-two|2.3|-|weights_data is field 2
num2-checkpoint-success-two|2.3|-|success and error_message of a checkpoint have changed their numbers
num2-checkpoint-hash-phase|2.3|-|model_hash and phase of a checkpoint have changed their numbers
num2-checkpoint-size-text|2.3|-|total_size is a string
num2-info-hash-three|2.3|-|model_hash and phase of GetCheckpointInfo have changed their numbers
num2-info-version-fixed|2.3|-|version of GetCheckpointInfo is an sfixed64
num2-info-params-double|2.3|-|params is a double
num2-info-version-zigzag|2.3|-|version of GetCheckpointInfo is a sint32
num2-ping-responder-two|2.3|-|responder of a ping is field 2
num2-find-responder-two|2.3|-|responder and nodes of a search have changed their numbers
num2-value-found-text|2.3|-|found is a string
num2-store-success-three|2.3|-|success of a store is field 3
num2-node-info-ip-id|2.3|-|node_id and ip of a node have changed their numbers
num2-node-info-port-text|2.3|-|port of a node is a string
num2-back-grad-five|2.3|-|grad_output of the pass that goes back is field 5 (only a peer sees it)
num2-back-shape-zigzag|2.3|-|grad_shape of the pass that goes back has sint64 (only a peer sees it)
"""
