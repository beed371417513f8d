"""Bodies and parameters of the wallet (interface 2.1 and 4.1). Amounts are whole units."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from meshnode.domain.chain.profile import Staking as StakingTerms
from meshnode.http.fields import Account, Amount, Count, Date, Digest, Payee, Timestamp
from meshnode.http.routes import IntegerParameter
from meshnode.http.schema import Limits, extensible

MAX_MEMO_CHARS = 256
LIMIT = IntegerParameter("limit", default=20, low=1, high=100)
OFFSET = IntegerParameter("offset", default=0, low=0, high=2**31 - 1)
MAX_DAYS = 36_500
"""Longest duration of a stake that is compared with the network's own, lower limit."""

Payment = Annotated[
    float,
    Limits(
        minimum=1e-6,
        maximum=1152921504606.846976,
        description="Whole units, with at most six decimals.",
    ),
]

Duration = Annotated[
    int,
    Limits(
        minimum=1,
        maximum=MAX_DAYS,
        description=(
            f"Whole days. A request may say up to {MAX_DAYS:,}, but the network decides how long "
            f"a stake may last: at most {StakingTerms().longest_days:,} days, unless its genesis "
            "says otherwise. A duration outside the network's limits is answered with 400."
        ),
    ),
]


class Balances(TypedDict):
    """An account's money, by whether it can be spent now."""

    available: Amount
    staked: Amount
    pending: Amount
    total: Amount


class Staking(TypedDict):
    """A stake, and until when it is locked."""

    amount: Amount
    duration_days: Count
    start_date: Date
    unlock_date: Date
    multiplier: Annotated[float, Limits(minimum=1)]


class BalanceAnswer(TypedDict):
    """Balance (interface 2.1)."""

    address: Account
    balances: Balances
    staking: Staking


@extensible
class SendRequest(TypedDict):
    """The body of a payment (interface 4.1)."""

    to: Payee
    amount: Payment
    memo: NotRequired[
        Annotated[
            str,
            Limits(
                max_length=MAX_MEMO_CHARS,
                default="",
                description="Repeated in the answer; not published.",
            ),
        ]
    ]


TransferResult = TypedDict(
    "TransferResult",
    {
        "transaction_id": Digest,
        "from": Account,
        "to": Payee,
        "amount": Amount,
        "fee": Amount,
        "memo": str,
        "status": Annotated[
            Literal["confirmed", "pending"],
            Limits(description="pending: signed, and not in a block yet. Do not send it again."),
        ],
        "timestamp": Timestamp,
    },
)
"""Transfer result (interface 2.1)."""


class RewardDetails(TypedDict):
    """What a reward was paid for."""

    proof_id: str
    role: str


TransactionEntry = TypedDict(
    "TransactionEntry",
    {
        "id": str,
        "type": Annotated[str, Limits(description="send, receive, fee, reward, stake, …")],
        "amount": Annotated[float, Limits(description="Negative when it leaves the account.")],
        "timestamp": Timestamp,
        "to": NotRequired[Account],
        "from": NotRequired[Account],
        "details": NotRequired[RewardDetails],
    },
)
"""Transaction entry (interface 2.1)."""


class Transactions(TypedDict):
    """A page of an account's history."""

    transactions: list[TransactionEntry]
    total: Count
    limit: Annotated[int, Limits(minimum=LIMIT.low, maximum=LIMIT.high)]
    offset: Count


@extensible
class StakeRequest(TypedDict):
    """The body of a stake (interface 4.1)."""

    amount: Payment
    duration_days: Duration


class StakeBalance(TypedDict):
    """The balance after a stake."""

    available: Amount
    staked: Amount


class StakeResult(TypedDict):
    """Stake result (interface 2.1)."""

    success: Literal[True]
    stake: Staking
    new_balance: StakeBalance


@extensible
class UnstakeRequest(TypedDict):
    """The body of an unstake (interface 4.1)."""

    amount: Payment


class Cooldown(TypedDict):
    """Money that was unstaked and will be available at the end of its cooldown."""

    amount: Amount
    cooldown_days: Count
    available_date: Date


class UnstakeResult(TypedDict):
    """Unstake result (interface 2.1)."""

    success: Literal[True]
    unstake: Cooldown
