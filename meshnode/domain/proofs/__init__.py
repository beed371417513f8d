"""Proofs of work for others, without clocks, tensors or network (decisions/0098, 0099).

``statements`` is what is signed, ``judging`` what can be told of it without computing, ``drawing``
whose turn it is to check.
"""
