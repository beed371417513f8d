"""The node's ledger: one chain, kept by this process (document, sections 2.2, 4.2 and 4.3).

Read in this order: ``records`` and ``database`` (what is on the disk), ``soundness`` (why it is
believed), ``keeper`` (the state machine, the mempool and the disk together), ``worker`` (its
thread), ``handle`` (what others see), the engines ``solo`` and ``follower``, ``signed`` (which
keeps the first from signing twice), and ``service``, which puts them together. ``genesis`` and
``validator_key`` are for the start; ``source`` and ``fetch`` ask another node.
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
