"""Proofs of work for others, without clocks, tensors or network (decisions 0098, 0099).

``statements`` has the signed statements, ``judging`` decides what it can without recomputing the
work, and ``drawing`` draws the validators that check a proof.
"""
