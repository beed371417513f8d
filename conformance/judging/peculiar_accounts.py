"""Peculiar accounts: wallets that the document allows, and few have."""

import copy
import json
import threading
from dataclasses import replace

from conformance.judging.hooks import HEALTH
from conformance.judging.toy.answers import Asked, Response, Sent, error

# More than any account of the judge has, and less than what the checks call too much.
SMALL = 100_000
SEND, STAKE = "/api/v1/wallet/send", "/api/v1/wallet/stake"
HISTORY = "/api/v1/wallet/transactions"


def poor_wallet(asked: Asked, response: Response) -> None:
    """Have nothing available, in the balance and in each refusal."""
    if asked.path == "/api/v1/wallet/balance" and response.status == 200:
        response.json["balances"]["available"] = 0
    if response.status == 402:
        response.json["error"]["details"]["available"] = 0


class NoStake:
    """Answer every stake alike, without staking anything."""

    def __init__(self, answer: Response) -> None:
        self.answer = answer

    def rewrite(self, sent: Sent) -> Sent:
        """Ask the node for more than anybody has."""
        if sent.method == "POST" and sent.target == STAKE:
            excessive = {"amount": 10**9, "duration_days": 30}
            return replace(sent, body=json.dumps(excessive).encode())
        return sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Replace the refusal."""
        if (asked.path, response.status) == (STAKE, 402):
            response.__dict__.update(copy.deepcopy(self.answer).__dict__)


class NothingStaked(NoStake):
    """Nothing is staked, and therefore there are no dates."""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show no stake, and refuse to make one."""
        super().__call__(asked, response)
        if asked.path == "/api/v1/wallet/balance" and response.status == 200:
            balances = response.json["balances"]
            balances["total"] -= balances["staked"]
            balances["staked"] = 0
            response.json["staking"] = {"amount": 0, "start_date": None}


class NoneToOneself:
    """Refuse transfers from an account to itself, without carrying them out."""

    def __init__(self) -> None:
        self.own: dict[str | None, str] = {}
        self.here = threading.local()

    def rewrite(self, sent: Sent) -> Sent:
        """Keep a transfer to an account that has read its own address from the node."""
        self.here.token = sent.headers.get("Authorization")
        self.here.kept = False
        if sent.method == "POST" and sent.target == SEND and self.here.token in self.own:
            # An address is long enough to be nothing else.
            self.here.kept = self.own[self.here.token].encode() in sent.body
        return Sent("GET", HEALTH, b"", {}) if self.here.kept else sent

    def __call__(self, asked: Asked, response: Response) -> None:
        """Refuse what was kept."""
        if asked.path == "/api/v1/wallet/balance" and response.status == 200:
            self.own[self.here.token] = response.json["address"]
        if self.here.kept:
            response.__dict__.update(error(400, "SELF", "to yourself").__dict__)


class Unused:
    """An account that has never been used: no transfer is possible, and none is listed."""

    def rewrite(self, sent: Sent) -> Sent:
        """Send no money."""
        try:
            asked = json.loads(sent.body) if (sent.method, sent.target) == ("POST", SEND) else {}
        except ValueError:
            asked = {}
        amount = asked.get("amount") if isinstance(asked, dict) else None
        if not isinstance(amount, int | float) or not 0 < amount < SMALL:
            return sent
        return replace(sent, body=json.dumps({**asked, "amount": 10**9}).encode())

    def __call__(self, asked: Asked, response: Response) -> None:
        """List nothing, and let a transfer wait for its account."""
        if asked.path == HISTORY and response.status == 200:
            response.json.update(transactions=[], total=0)
        if (asked.path, response.status) == (SEND, 402):
            details = response.json["error"]["details"]
            wanted = asked.body.get("amount", 0) if isinstance(asked.body, dict) else 0
            if isinstance(wanted, int | float) and wanted < min(SMALL, details["available"]):
                response.__dict__.update(error(409, "LOCKED", "not yet").__dict__)
