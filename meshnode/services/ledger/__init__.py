"""The node's ledger: one chain, kept by this process (interface 2.2, 4.2 and 4.3).

Read in this order: ``records`` and ``database`` (what is on the disk), ``soundness`` (how it is
checked at the start), ``keeper`` (the state machine, the mempool and the disk together),
``thread``, ``handle`` (the interface for other services) and ``asking`` (the part of it that they
declare as protocols), the engines ``solo`` and ``follower``, ``signed`` (which keeps ``solo`` from
signing twice), and ``service``, which puts them together. ``genesis`` and ``validator_key`` are
used at the start; ``source`` and ``fetch`` read from another node.
"""

from meshnode.domain.chain.genesis import GenesisFacts
from meshnode.services.ledger.follower import BlockSource
from meshnode.services.ledger.genesis import (
    load_or_create_genesis,
    load_or_fetch_genesis,
    require_facts,
)
from meshnode.services.ledger.handle import Ledger, Readiness
from meshnode.services.ledger.records import StoredBlock
from meshnode.services.ledger.service import serve_ledger
from meshnode.services.ledger.validator_key import ValidatorKey, load_or_create_validator_key

__all__ = [
    "BlockSource",
    "GenesisFacts",
    "Ledger",
    "Readiness",
    "StoredBlock",
    "ValidatorKey",
    "load_or_create_genesis",
    "load_or_create_validator_key",
    "load_or_fetch_genesis",
    "require_facts",
    "serve_ledger",
]
