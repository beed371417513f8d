"""Training that agrees: rounds, gossip rules, agreement, trend (interface 1, 2.1, 2.3).

Read it in this order: ``contribution`` (what a node adds to a round), ``agreement`` (which
weights count), ``opinions`` (whose contributions do harm), ``replica`` (one node's way through a
round), ``trend`` (what the losses say).
Nothing here waits, sends, computes with tensors or reads a clock.
"""
