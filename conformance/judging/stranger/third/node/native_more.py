"""Faults that are seen in one answer of the native API: what a resource is for is not in it."""

import core

# id: answer, dotted path of what is missing
GONE = {
    "fld2-network-ready-gone": ("network", "ready"),
    "fld2-network-genesis-gone": ("network", "genesis_id"),
    "fld2-model-profile-gone": ("model", "execution_profile"),
    "fld2-model-frozen-gone": ("model", "frozen_parameters"),
    "fld2-checkpoint-adapter-gone": ("checkpoint", "adapter"),
    "fld2-updates-index-gone": ("training", "index"),
    "fld2-account-nonce-gone": ("account", "next_nonce"),
    "fld2-account-locked-gone": ("account", "locked"),
    "fld2-inference-heartbeat-gone": ("inference", "default_provider.heartbeat"),
    "fld2-inference-fee-gone": ("inference", "fee"),
    "fld2-work-attempts-gone": ("work", "attempts_remaining"),
    "fld2-work-stages-gone": ("work", "stages"),
}


def bent(kind, body):
    """The body as this run answers it."""
    fault = core.FLAGS["fault"]
    if fault in GONE and GONE[fault][0] == kind:
        node, parts = body, GONE[fault][1].split(".")
        for part in parts[:-1]:
            node = node[part]
        del node[parts[-1]]
    if fault == "fld2-blocks-results-gone" and kind == "blocks":
        body["blocks"] = [{key: val for key, val in row.items() if key != "results"} for row in body["blocks"]]
    if fault == "fld2-validators-owner-null" and kind == "validators":
        body["validators"] = [dict(row, owner=None) for row in body["validators"]]
    if fault == "rel2-network-version-old" and kind == "network":
        body["version"] = "0.3.0"
    return body
