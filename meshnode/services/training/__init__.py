"""Distributed training as a service: DiLoCo between nodes (interface 1, 2.1, 2.3, 4.3).

``trainer`` is the handle. ``rounds`` does what ``domain.training.replica`` decides, with
``learner`` (computes), ``contributions`` (messages of the round), ``record`` and ``disk`` (saved
state) and ``gossip`` (peers). ``part`` is training in a pipeline; ``overview`` combines the figures
of all.
"""
