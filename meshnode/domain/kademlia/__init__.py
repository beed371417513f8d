"""The distributed hash table's pure core: Kademlia (interface 2.3 and 4.3; limits, interface 8).

Read it in this order: ``node_id`` (ids and distance), ``address``, ``contact``, ``policy`` and
``verification`` (who can be called at all), ``bucket`` and ``routing_table`` (whom to know),
``query``, ``candidates`` and ``lookup`` (how to find), ``value``, ``records`` and ``publications``
(what is held and what is published), ``local_node`` (all of it as one node), ``refusals`` (one
exception for each rule).

Nothing here waits, sends or reads a clock: ``now`` and random bits are arguments, and messages to
send are return values. ``bench/dht.py`` runs this code in a simulated network of 10,000 nodes.
"""
