"""Proofs of work for others: orders, proofs, their validation, and the votes (interface 4.3).

``orders`` signs the work that this node asks of others, ``prover`` claims the work that it did for
others, ``gossip`` accepts and passes on proofs and votes, ``validator`` recomputes work and votes.
``chain`` is what all of them ask of the ledger, and ``service`` runs them.
"""
