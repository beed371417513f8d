"""The ledger's state machine (interface 2.2, 3 and 4.2): pure, integer, deterministic.

Read in this order: ``canonical`` (values as bytes), ``envelope`` (signatures and identifiers),
``profile`` and ``genesis`` (the values of one network), ``records`` and ``view`` (the tables), the
kinds of transactions (``transfers``, ``bonds``, ``jobs``, ``tasks``, ``stakes``), ``blocks`` (their
order), ``application`` (what an engine calls). The package ``comet`` has CometBFT's block formats,
with which others verify this chain.
"""
