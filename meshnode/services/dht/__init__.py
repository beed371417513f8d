"""The DHT as a service: the pure core of ``domain.kademlia`` over gRPC (interface 2.3 and 4.3).

``service`` starts its tasks; ``handle`` is what other services use; ``messages`` sends the four
operations; ``joining`` joins a network, ``memory`` remembers peers for the next start, ``upkeep``
does the periodic work.
"""
