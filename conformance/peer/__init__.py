"""The suite as a node: a peer that the tested node is told about, and that watches what it does.

Interface 4.3, 7.3 and 8 say what a node does as a client of others. Nobody sees that from outside
but those others, so the suite becomes one. `tap` listens and reads the frames of HTTP/2, `post`
answers the calls, `watch` records them, `peer` brings these together, and `requests` judges every
call. What only one conduct of the peer can show is judged in `checks/peer_*.py`.
"""
