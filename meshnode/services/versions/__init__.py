"""Which version of the weights this node serves (decision 0225).

``store`` keeps the choice and its weights on the disk; ``service`` switches while the node runs.
"""
