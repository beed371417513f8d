TEXT = """
eff-patch-batch-power-of-two|NA-PATCH-104|batch_size is lowered to a power of two
eff-patch-diloco-ignored|NA-PATCH-104|a change of diloco_steps is reported and not made
eff-patch-enable-side|NA-PATCH-103|a change of batch_size also switches training.enabled
eff-patch-enabled-ignored|NA-PATCH-104|a change of training.enabled is reported and not made
eff-patch-first-key-only|NA-PATCH-104|of several keys only the first is changed
eff-patch-last-key-only|NA-PATCH-104|of several keys only the last is changed
eff-patch-late|NA-PATCH-113|a change is in force only one second after its answer
eff-patch-memory-integer|NA-PATCH-104|the fraction of max_memory_gb is cut off
eff-patch-needs-whole-section|NA-PATCH-114|a change is accepted only if it has all keys of its section
eff-patch-not-atomic|NA-PATCH-115|keys before the refused one are changed
eff-patch-not-stored|NA-PATCH-104|a change is reported and not made
eff-patch-rate-rounded|NA-PATCH-104|learning_rate is rounded to three decimals
eff-patch-refused-sets-default|NA-PATCH-106|a refused value replaces the present one by another
eff-patch-refused-stored-raw|NA-PATCH-106|a refused value is stored all the same
eff-patch-replaces-section|NA-PATCH-103|keys of the same section that were not sent fall back to the defaults
eff-patch-resets-others|NA-PATCH-103|all keys that were not sent fall back to the defaults
eff-patch-reverts|NA-PATCH-113|a change is undone after 0.7 seconds
eff-patch-status-stale|NA-PATCH-116|the status keeps the old training.enabled
eff-patch-threads-capped|NA-PATCH-104|cpu_threads is silently held at 2
eff-patch-valid-part-applied|NA-PATCH-115|the valid keys of a refused change are changed
eff-patch-wrong-key|NA-PATCH-103|a change of batch_size also sets diloco_steps
eff-peer-no-pause|CL-CODE-001|a peer that answers UNAVAILABLE is called again without a pause
eff-peer-retries-forever|CL-CALL-002|a failing peer is sent the same request twelve times
eff-poor-charged-anyway|NA-ERR-023|an inference that is refused with 402 takes what the account has
eff-prompt-echoed-after-stop|NA-INF-013|after a stop sequence the text goes on
eff-ref-delete|NT-RULE-031|DELETE removes a view of the earlier chain
eff-ref-delete-quiet|NT-RULE-031|DELETE is answered with 405 and removes the view all the same
eff-ref-patch|NT-RULE-031|PATCH changes a view of the earlier chain
eff-ref-put|NT-RULE-031|PUT and POST replace a view of the earlier chain
eff-ref-put-quiet|NT-RULE-031|PUT is answered with 405 and replaces the view all the same
eff-rpc-block-height-ignored|NT-RULE-018|the method block ignores its height and gives the newest block
eff-self-doubles|NA-WALLET-025|a transfer to oneself adds its amount
eff-self-fee-amount|NA-WALLET-007|a transfer to oneself costs a tenth of its amount beside the fee
eff-self-fee-twice|NA-WALLET-007|a transfer to oneself costs its fee twice
eff-self-loses|NA-WALLET-007|a transfer to oneself loses its amount
eff-self-not-listed|NA-WALLET-006|a transfer to oneself is not in the history
eff-send-checks-total|NA-ERR-021|a transfer may spend what is staked, so that available falls below zero
eff-send-commit-fails-restores|NA-WALLET-010|0.8 seconds after a transfer the sender has its money back
eff-send-credit-back-to-sender|NA-WALLET-011|the amount goes back to the sender instead of to the receiver
eff-send-credit-late|NA-WALLET-011|the receiver is credited only after 30 seconds
eff-send-credit-minus-fee|NA-WALLET-011|the fee is taken from what the receiver gets too
eff-send-credit-none|NA-WALLET-011|the receiver gets nothing
eff-send-credit-pending|NA-WALLET-011|the receiver's amount is pending and never available
eff-send-credit-rounded|NA-WALLET-011|the receiver's amount is rounded down to a tenth of a unit
eff-send-credit-staked|NA-WALLET-011|the receiver's amount is staked
eff-send-credit-twice|NA-WALLET-011|the receiver gets the amount twice
eff-send-credit-wrong-account|NA-WALLET-011|a third account gets the amount
eff-send-debit-rounded-up|NA-WALLET-010|what the sender pays is rounded up to a tenth of a unit
eff-send-debit-twice|NA-WALLET-010|the sender pays the amount twice
eff-send-fee-free|NA-WALLET-010|the fee in the result is not taken
eff-send-fee-not-checked|NA-ERR-024|a transfer of all that is available is accepted although it costs a fee
eff-send-fee-only|NA-WALLET-010|only the fee is taken from the sender
eff-send-fee-twice|NA-WALLET-010|the fee is taken twice
eff-send-from-staked|NA-WALLET-010|a transfer is taken from what is staked
eff-send-listed-late|NA-WALLET-006|a transfer is in the history only after 8 seconds
eff-send-memo-less-not-listed|NA-WALLET-006|a transfer without a memo is not in the history
eff-send-no-debit|NA-WALLET-010|a transfer takes nothing from the sender
eff-send-not-listed|NA-WALLET-006|a transfer is not in the history
eff-send-overdraft|NA-ERR-021|a transfer of more than is available succeeds
eff-send-race|NA-WALLET-026|of transfers at the same time only one is taken from the balance
eff-send-second-free|NA-WALLET-010|every second transfer of an account takes nothing
eff-send-small-free|NA-WALLET-010|a transfer of less than a whole unit takes nothing
eff-send-whole-units|NA-WALLET-001|the fraction of the amount of a transfer is cut off
eff-sse-aborted|NA-INF-011|the connection is torn down after the final event instead of ending the body
eff-sse-final-twice|NA-SSE-007|the final event is sent twice
eff-sse-index-constant|NA-SSE-003|the index of every token event is 0
eff-sse-index-down|NA-SSE-003|the index falls
eff-sse-index-from-one|NA-SSE-002|the index begins with 1
eff-sse-index-from-prompt|NA-SSE-002|the index begins with the number of tokens of the prompt
eff-sse-index-repeats|NA-SSE-003|every fifth index repeats the one before
eff-sse-index-wraps|NA-SSE-003|the index begins again after 8 events
eff-sse-no-final|NA-SSE-005|a stream has no final event
eff-sse-openai-done|NA-SSE-007|a bare [DONE] follows the final event
eff-sse-stops-after-three|NA-SSE-005|a stream breaks off after three events
eff-sse-token-after-final|NA-SSE-007|a token event follows the final event
eff-stake-402-locks|NA-ERR-021|a stake that is refused with 402 locks one unit
eff-stake-402-takes-all|NA-ERR-023|a stake that is refused with 402 empties what is available
eff-stake-checks-total|NA-ERR-021|what is staked already counts as available for a new stake
eff-stake-debit-twice|NA-WALLET-031|a stake takes its amount twice
eff-stake-fee-hidden|NA-WALLET-014|a fee is kept back from the amount that is staked
eff-stake-late|NA-WALLET-014|a stake is in the balance only after 20 seconds
eff-stake-multiplied|NA-WALLET-014|the amount times its multiplier is staked
eff-stake-no-debit|NA-WALLET-015|a stake takes nothing from what is available
eff-stake-not-staked|NA-WALLET-014|a stake takes its amount and stakes nothing
eff-stake-overdraft|NA-ERR-021|a stake of more than is available succeeds
eff-stake-pending|NA-WALLET-014|a stake is added to pending instead of staked
eff-stake-replaces|NA-WALLET-014|a second stake replaces the first
eff-stake-takes-fee|NA-WALLET-031|a stake takes a fee beside its amount
eff-stake-whole-units|NA-WALLET-014|only whole units are staked
eff-stop-ignored|NA-INF-013|stop sequences are ignored
eff-stop-late|NA-INF-013|the text ends some letters after a stop sequence
eff-stop-lowercase|NA-INF-013|a stop sequence with small letters is not recognised
eff-stop-not-on-boundary|NA-INF-013|a stop sequence that spans two tokens is not recognised
eff-stop-regex-500|NA-INF-012|a stop sequence with a character of regular expressions makes the node fail
eff-stop-stripped|NA-INF-013|a stop sequence with white space at its ends is not recognised
eff-stop-whole-token|NA-INF-013|a stop sequence is recognised only where it is a whole token
eff-stream-default-true|NA-INF-017|without stream the answer is a stream
eff-stream-false-ignored|NA-INF-010|with stream false the answer is a stream
eff-stream-inference-first-only|GR-OP-022|StreamInference answers the first message only
eff-stream-inference-second-refused|GR-OP-022|StreamInference refuses a second message in one call
eff-stream-true-ignored|NA-INF-011|with stream true the answer is one JSON result
eff-text-empty|NA-INF-033|the text of an inference result is always empty
eff-unstake-all|NA-WALLET-029|an unstake of a part takes all that is staked
eff-unstake-available-now|NA-WALLET-019|unstaked money is available at once
eff-unstake-available-part|NA-WALLET-019|a tenth of the unstaked money is available at once
eff-unstake-available-soon|NA-WALLET-019|unstaked money is available after a second instead of days
eff-unstake-excess|NA-WALLET-024|more than is staked can be unstaked
eff-unstake-excess-clamped|NA-WALLET-024|for an unstake of too much all is unstaked and the larger amount reported
eff-unstake-excess-releases|NA-WALLET-024|an unstake of too much is refused and makes all that is staked available
eff-unstake-half|NA-WALLET-018|an unstake takes only half of its amount from what is staked
eff-unstake-nothing|NA-WALLET-018|an unstake takes nothing from what is staked
eff-unstake-twice|NA-WALLET-018|an unstake takes its amount twice from what is staked
"""
