"""The process of an attacker: ``python -m tools.siege.attacker NAME TARGET SOURCE...``.

TARGET is a JSON object with the fields of :class:`tools.siege.attack.Target`. It attacks until it
is killed, and prints its last exception if the attack ends by itself.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence

import trio

from tools.siege.attack import Target, announce, load_attack
from tools.siege.place import last_in_line


def main(name: str, target: str, *sources: str) -> None:
    """Run the attack until this process is killed or the attack ends."""
    # A shell without job control lets what it starts in the background ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not load_attack(name).announces:
        # An attacker that runs nodes is not last: a node without processors harms nobody.
        last_in_line()
    trio.run(_attack, name, Target(**json.loads(target)), sources)


async def _attack(name: str, target: Target, sources: Sequence[str]) -> None:
    attack = load_attack(name)
    if not attack.announces:
        announce()
    await attack.run(target, sources)
    sys.exit("the attack ended by itself")


if __name__ == "__main__":
    main(*sys.argv[1:])
