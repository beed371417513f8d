"""The DHT as a service: the pure core of ``domain.kademlia`` over gRPC (document, 2.3 and 4.3).

``service`` starts it and is its picture; ``handle`` is what others use; ``messages`` sends the
four operations; ``joining`` finds the way into a network, ``memory`` keeps it for the next
start, ``upkeep`` does what is due.
"""
