"""A batch that is driven as the executor drives it, and who asks for its places."""

from __future__ import annotations

from meshnode.domain.batching import EngineLimits, Scheduler, State
from meshnode.domain.shares import (
    Requester,
    Standing,
)

PAYING, PEER, FREE = Standing.PAYING, Standing.PEER, Standing.FREE
ALICE, BOB = Requester(PAYING, "alice"), Requester(PAYING, "bob")
NEAR, FAR = Requester(PEER, "10.0.0.1"), Requester(PEER, "10.0.0.2")
ANY = Requester(FREE, "10.0.0.3")
LIMITS = EngineLimits(max_batch=16, max_queue=16, kv_bytes=1600, prefill_chunk=4)


class Batch:
    """A scheduler that is driven as the executor drives it."""

    def __init__(self, limits: EngineLimits = LIMITS) -> None:
        self.scheduler: Scheduler[str] = Scheduler(limits)
        self.now = 0.0
        self.requesters: dict[str, Requester] = {}
        self.lost: list[str] = []
        """Sessions that gave up their place."""

    def submit(self, requester: Requester, count: int = 1, kv_bytes: int = 10) -> list[str]:
        """Let a requester submit sessions; returns those that the queue took."""
        taken = []
        for _ in range(count):
            name = f"{requester.name}-{len(self.requesters)}"
            refused = self.scheduler.refused_for(requester)
            if refused is not None:
                self.scheduler.leave(refused)
                self.requesters[refused] = Requester(FREE, "refused")
            if requester.standing is PEER:
                done = self.scheduler.submit_resting(name, kv_bytes, requester, self.now)
            else:
                done = self.scheduler.submit(name, 4, kv_bytes, requester, self.now)
            if done:
                self.requesters[name] = requester
                taken.append(name)
        return taken

    def admit(self) -> list[str]:
        """Give places as a step does."""
        admitted: list[str] = []
        while True:
            victim = self.scheduler.victim(self.now)
            if victim is not None:
                self.lost.append(victim)
                if self.requesters[victim].standing is PEER:
                    self.scheduler.leave(victim)
                else:
                    self.scheduler.suspend(victim, 5, 4, self.now)
            elif more := self.scheduler.admit(self.now):
                admitted += more
            else:
                return admitted

    def step(self) -> None:
        """Compute all chunks of prompts."""
        while (chunk := self.scheduler.next_chunk()) is not None:
            self.scheduler.prefilled(chunk, self.now)

    def end(self, name: str) -> None:
        """Take a turn, at the end of which a session leaves."""
        self.step()
        self.scheduler.turn(self.now)
        self.scheduler.leave(name)

    def places(self, requester: Requester) -> int:
        waiting = set(self.scheduler._in[waiting_state()])
        keys = self.scheduler.sessions()
        return sum(self.requesters[key] == requester for key in keys if key not in waiting)


def waiting_state() -> State:
    return State.WAITING
