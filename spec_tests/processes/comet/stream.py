"""A stream of transfers to a cluster, and what its senders were told."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import time
from dataclasses import dataclass, field

from meshnode.domain.chain.canonical import Json, encode
from spec_tests.domain.chain.net import CHAIN_ID, Actor
from spec_tests.processes.comet.background import Background
from spec_tests.processes.comet.cluster import Cluster, Validator
from spec_tests.processes.comet.rpc import Refused, Silent


@dataclass
class Stream(Background):
    """Sends one transfer of each account after another, to any validator that answers."""

    cluster: Cluster
    random: random.Random
    open: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """The nonce and the bytes of each account's transfer that is on its way."""
    confirmed: dict[str, str] = field(default_factory=dict)
    """Names of transfers whose nonce was seen as used, with the validator that said so."""

    def _run(self) -> None:
        while not self._stop.is_set():
            for who in self.cluster.actors:
                running = self.cluster.running
                if running and not self._stop.is_set():
                    self._advance(who, self.random.choice(running))
                time.sleep(0.01)

    def _advance(self, who: Actor, by: Validator) -> None:
        try:
            nonce = nonce_of(by, who)
            waiting = self.open.get(who.key)
            if waiting is not None and nonce > waiting[0]:
                name = hashlib.sha256(waiting[1]).hexdigest().upper()
                self.confirmed[name] = by.name
                waiting = None
            if waiting is None:
                raw = self._transfer(who, nonce)
                self.open[who.key] = waiting = nonce, raw
            # Sent again and again: the same bytes can pay only once.
            by.call("broadcast_tx_sync", tx=base64.b64encode(waiting[1]).decode())
        except (Silent, Refused):
            return

    def _transfer(self, who: Actor, nonce: int) -> bytes:
        to = self.random.choice([one for one in self.cluster.actors if one is not who])
        amount = self.random.randint(1, 1000)
        body: dict[str, Json] = {"kind": "transfer", "chain_id": CHAIN_ID, "nonce": nonce}
        return who.sign({**body, "to": to.key, "amount": amount})


def nonce_of(validator: Validator, who: Actor) -> int:
    """The account's next nonce. Raises Silent or Refused."""
    data = encode({"public_key": who.key}).hex()
    answer = validator.call("abci_query", path="/account", data=data)["response"]
    if answer["code"]:
        raise Refused(answer["log"])
    return int(json.loads(base64.b64decode(answer["value"]))["nonce"])
