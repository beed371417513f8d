"""Proofs of work for others: orders, proofs, their validation, and the votes (document, 4.3).

``orders`` signs what this node asks of others, ``prover`` claims what this node did for others,
``gossip`` takes and passes on, ``validator`` computes again and votes; ``chain`` is what all of
them ask of the ledger, and ``service`` runs them.
"""
