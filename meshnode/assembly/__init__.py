"""Parts of the nursery tree, each put together where its services begin (``meshnode/node.py``).

``network`` are the services between nodes, ``chain`` the ledger and what lives on it, ``edges``
what faces clients. Like the composition root they may import everything; only it imports them.
"""
