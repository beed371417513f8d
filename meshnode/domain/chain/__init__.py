"""The ledger's state machine (document, sections 2.2, 3 and 4.2): pure, integer, deterministic.

Read in this order: ``canonical`` (bytes of a value), ``envelope`` (who signed what), ``profile``
and ``genesis`` (the values of one network), ``records`` and ``view`` (the tables), the kinds of
transactions (``transfers``, ``bonds``, ``jobs``, ``tasks``, ``stakes``), ``blocks`` (their order),
``application`` (what an engine calls). ``comet`` holds the block formats that others verify.
"""
