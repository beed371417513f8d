"""Distributed training as a service: DiLoCo between nodes (document, 1, 2.1, 2.3, 4.3).

``trainer`` drives ``domain.training.replica`` and owns the weights; ``gossip`` moves contributions
and reports; ``disk`` keeps what a crash must not lose; ``overview`` says what is measured.
"""
