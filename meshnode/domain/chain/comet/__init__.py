"""Blocks, headers and commits in CometBFT's formats, so that others can verify this chain.

Pure functions over frozen values: hashes and bytes as CometBFT 0.38 makes them (decision 0065).
"""
