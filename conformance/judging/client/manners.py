"""How the toy client behaves: every sentence for clients is one of these, with the sound value."""

from collections.abc import Callable
from dataclasses import dataclass

MIB = 1024 * 1024


def same_bytes(operation: str, body: bytes) -> bytes:
    """Send what was to be sent."""
    return body


@dataclass(frozen=True)
class Manners:
    """Times in seconds, sizes in bytes."""

    # Where it calls, and who it says it is.
    port_offset: int = 1000
    id_bytes: int = 20
    same_id: bool = True
    target_bytes: int = 20
    reachable: bool = True
    names_port: bool = True
    asks_who_is_named: bool = False
    rewrite: Callable[[str, bytes], bytes] = same_bytes
    # Its calls.
    deadline_s: float | None = 5.0
    attempts: int = 3
    pause_s: float = 0.1
    shape: tuple[int, ...] = (1, 2, 8)
    # What it does about statuses.
    pauses_for: tuple[str, ...] = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL")
    repeats: tuple[str, ...] = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL")
    new_request_id: bool = False
    raises_deadline: bool = True
    # What it believes.
    checks_shapes: bool = True
    checks_numbers: bool = True
    # Its connection.
    ping_every_s: float | None = 30.0
    ping_timeout_s: float | None = 10.0
    max_receive: int = 100 * MIB
    # What it passes on.
    ttl_step: int = 1
    ttl_least: int = -10
    """No ttl is lowered below this one."""
    passes_from_ttl: int = 1
    passes_refused: bool = False
    passes_again: bool = False
    passes_to_http: bool = False
    """Whether a gradient that comes a second time goes on again."""
    gossip_attempts: int = 1
    passes_back: bool = False
    changes_gossip: bool = False
    sender_url: str = "own"
    passes_gradients: bool = True
    passes_twice: bool = False
    passes_to_latest: bool = False
    forgets_sessions: bool = False
    """Whether it knows a pass by its request_id alone."""
    back_shape: tuple[int, ...] = ()
    back_unchanged: bool = False
    back_to_http: bool = False
    # A tenth of what is seen: the toy waits ten times as long.
    back_deadline_s: float = 1.0
    longest_pause_s: float = 2.0
