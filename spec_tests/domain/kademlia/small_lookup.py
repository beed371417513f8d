"""A lookup among few nodes at chosen distances, for tests that drive it step by step."""

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.query import LookupLimits
from spec_tests.domain.kademlia.network import contact_of, id_of

OWN = id_of(0)
TARGET = id_of(1 << 100)
SMALL = LookupLimits(k=4, alpha=3, called=12, value_answers=2)


def lookup_of(*seeds: Contact, for_value: bool = False, limits: LookupLimits = SMALL) -> Lookup:
    """A lookup that starts from ``seeds``, which are the only verified contacts."""
    return Lookup(TARGET, OWN, seeds, set(seeds).__contains__, for_value=for_value, limits=limits)


def near(number: int, ip: str = "127.0.0.1", port: int = 8000) -> Contact:
    """The contact at distance ``number`` from the target."""
    return contact_of((1 << 100) ^ number, ip, port)
