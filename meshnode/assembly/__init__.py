"""The branches of the nursery tree, which the composition root starts (``meshnode/node.py``).

``network`` starts the services between nodes, ``chain`` the ledger and the services that depend on
it, and ``edges`` makes the parts that serve clients. Like the composition root they may import
everything; only it imports them.
"""
