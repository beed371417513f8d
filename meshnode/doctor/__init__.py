"""Examines a node's surroundings and explains what is wrong: ``meshnode doctor`` (interface 1).

Terms: a *check* is one module with a function ``check``, listed in :mod:`meshnode.doctor.checks`;
a *finding* is one row of its report, with a level: ``ok``, ``warning`` or ``fault``. A fault keeps
the node from starting, or from doing its work; a warning is something to know.

Invariants: a check changes nothing, in the data folder or elsewhere; no finding contains a seed, a
token or a passphrase; every wait on the network has a deadline.
"""
