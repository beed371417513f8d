"""CometBFT under this node: its files, its process, and what it decides (decision 0177).

Read in this order: ``program`` (the binary), ``home`` (its folder), ``child`` (its process),
``rpc`` and ``events`` (how it is asked), ``following`` (its blocks), ``service`` (all together).
"""
