"""Which version of the weights this node serves (decisions 0225, 0246).

``store`` keeps the choice and its weights on the disk; ``service`` switches while the node runs. On
a node with some of the layers ``layer_store`` and ``holder`` do that, and ``pipeline`` decides for
all holders if this node drives.
"""
