TEXT = """
lim-artifact-64k|NT-RULE-019|an artifact is cut after 64 KiB
lim-block-latest-100|NT-PAGE-006|only the latest ten blocks can be read by their height
lim-ckpt-own-version-refused|GR-CKPT-012|the checkpoint is not returned for its own version
lim-ckpt-version-off-by-one|GR-CKPT-001|a min_version one above the version is answered with the older checkpoint
lim-dht-k-one-for-value|DH-020|an unsuccessful DHTFindValue lists no node because its K is 0
lim-dht-k-zero|DH-012|K is 0, so that no search lists a node
lim-dht-listed-ids-19|DH-003|listed node IDs are cut to 19 bytes
lim-dht-listed-ids-hex|DH-003|listed node IDs are hexadecimal text of 40 bytes
lim-dht-listed-ids-stripped|DH-003|listed node IDs lose bytes at one end
lim-dht-listed-port-plus-60000|DH-013|ports of listed nodes are above 65535
lim-dht-self-id-16|LIM-010|the node ID of the responder is an MD5 digest of 16 bytes
lim-dht-self-id-32|LIM-010|the node ID of the responder is a SHA-256 digest of 32 bytes
lim-dht-self-id-40-hex|LIM-010|the node ID of the responder is hexadecimal text of 40 bytes
lim-dht-self-port-big|DH-013|the port of the responder is above 65535
lim-dht-self-port-negative|DH-013|the port of the responder is -1
lim-dht-sender-any-length|DH-003|senders with an ID of any length are learned and listed
lim-gossip-ttl-below-zero|CL-GOSSIP-001|a gradient with ttl 0 is passed on with -1
lim-gossip-ttl-kept|CL-GOSSIP-001|a gradient is passed on with the ttl it came with
lim-gossip-ttl-raised|CL-GOSSIP-001|a gradient is passed on with a higher ttl
lim-grpc-100mb|LIM-007|the largest gRPC message is 95,000,000 bytes
lim-history-default-offset-one|NA-QUERY-012|without offset the history begins with its second entry
lim-history-end-is-limit|NA-QUERY-008|limit is taken as the end of the page instead of its length
lim-history-last-page-empty|NA-QUERY-014|the last page of transactions is empty
lim-history-limit-ignored|NA-QUERY-002|the limit of the history is ignored
lim-history-limit-min-ten|NA-QUERY-002|the limit of the history is at least 10
lim-history-limit-plus-one|NA-QUERY-002|a page of transactions has one entry more than limit
lim-history-offset-as-page|NA-QUERY-008|offset is taken as a number of pages
lim-history-offset-ignored|NA-QUERY-008|offset is ignored
lim-history-offset-minus-one|NA-QUERY-014|pages of transactions overlap by one entry
lim-history-offset-plus-one|NA-QUERY-014|one entry is lost between pages of transactions
lim-history-repeat-limit-default|NA-QUERY-010|the history always says that limit is 25
lim-history-repeat-limit-max|NA-QUERY-010|the history always says that limit is 200
lim-history-repeat-offset-next|NA-QUERY-003|the history says the offset of the next page
lim-history-repeat-offset-zero|NA-QUERY-003|the history always says that offset is 0
lim-history-short-pages|NA-QUERY-008|a full page of transactions lacks its last entry
lim-max-tokens-64-refused|NA-INF-005|a max_tokens above 64 is refused
lim-max-tokens-floor-16|NA-INF-003|at least 16 tokens are generated, even for a lower max_tokens
lim-max-tokens-ignored|NA-INF-003|max_tokens is ignored
lim-max-tokens-one-refused|NA-INF-005|a max_tokens of 1 is refused
lim-max-tokens-plus-one|NA-INF-003|one token more than max_tokens is generated
lim-max-tokens-prompt|NA-INF-003|the tokens of the prompt are added to max_tokens
lim-peer-ping-id-short|CL-DHT-001|the sender of the node's own pings has an ID of 10 bytes
lim-proofs-limit-ignored|NA-QUERY-005|the limit of the proofs is ignored
lim-proofs-limit-min-ten|NA-QUERY-005|a page of proofs has at least ten entries
lim-proofs-limit-plus-one|NA-QUERY-005|a page of proofs has one entry more than limit
lim-proofs-short-page|NA-QUERY-009|a page of proofs is one entry shorter than limit although there are more
lim-stop-first-only|NA-INF-036|only the first of several stop sequences ends the text
lim-stop-five-refused|NA-INF-012|more than one stop sequence is refused
lim-stop-four|NA-INF-036|the first of several stop sequences is ignored
lim-temperature-above|NA-INF-007|a temperature up to 2.5 is accepted
lim-temperature-any|NA-INF-007|any temperature above 2 is accepted
lim-temperature-clamped|NA-INF-007|a temperature outside the range is moved to its end instead of refused
lim-temperature-negative|NA-INF-007|a temperature down to -1 is accepted
lim-temperature-one|NA-INF-006|a temperature above 1 is refused
lim-temperature-two-refused|NA-INF-006|a temperature of 2 is refused
lim-temperature-zero-refused|NA-INF-006|a temperature of 0 is refused
lim-top-k-50|NA-INF-009|a top_k above 50 is refused
lim-top-k-one-refused|NA-INF-009|a top_k of 1 is refused
lim-top-k-vocabulary|NA-INF-009|a top_k above the size of the vocabulary is refused
lim-top-p-one-refused|NA-INF-008|a top_p of 1 is refused
lim-top-p-small-refused|NA-INF-008|a top_p of 0.1 and below is refused
"""
LINES = [l.split("|") for l in TEXT.strip().splitlines()]
for _n in (16, 128, 99, 256):
    LINES.append(
        [
            "lim-default-max-tokens-%d" % _n,
            "NA-INF-035" if _n < 100 else "NA-INF-004",
            "without max_tokens the highest number of tokens is %d" % _n,
        ]
    )
for _n in (32, 255, 1024, 4096, 65535):
    LINES.append(
        ["lim-dht-value-%d" % _n, "DH-021", "a stored value is cut after %d characters" % _n]
    )
for _n in (1, 4, 16, 64):
    LINES.append(["lim-grpc-%dmib" % _n, "LIM-007", "gRPC messages above %d MiB are refused" % _n])
for _o, _n in (
    ("DHTStore", 4),
    ("PipelineForward", 4),
    ("GossipGradient", 4),
    ("GossipGradient", 50),
    ("PipelineForward", 32),
    ("PipelineBackward", 4),
    ("DHTPing", 4),
    ("DHTFindValue", 4),
    ("GetWeights", 4),
    ("GetCheckpoint", 4),
    ("DHTFindNode", 4),
):
    LINES.append(
        [
            "lim-grpc-%s-%dmib" % (_o.lower(), _n),
            "LIM-007",
            "%s refuses messages above %d MiB" % (_o, _n),
        ]
    )
for _n in (16, 127, 64, 100):
    LINES.append(
        [
            "lim-native-jobs-%d" % _n,
            "LIM-008",
            "only the latest %d finished inference jobs can be looked up" % _n,
        ]
    )
