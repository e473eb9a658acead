"""SAFARI: in each round, a random draw decides whether the clients train or the server trains on its own samples.

Intuition: a few samples at the server represent the clients that are never available.

    client round, with probability q   x ← (1/|S|) Σ_{i∈S} x_i       after K local steps with η_c
    server round, with probability 1−q x ← x − η_s g_T(x)            on a mini-batch of the server's samples T

The draw has its own random stream, so that q = 1 equals the algorithm without assistance, bit for bit.

Reduces to: the algorithm without assistance when q = 1; centralised mini-batch SGD on T when q = 0.
Differs from the paper: a server round may have more than one step (`steps`); `x_t` and `x_{r,K+1}` in the paper are
read as x_r and x_{r,K}. The theory sets η_c = 2η_s/K and q = 1 − 1/(m·K); client_prob = "theory" uses this q.
Reference: Zhang, Yang, Liu. Federated learning with server assistance (SA-FL), SAFARI.
"""

from typing import Annotated, Literal

from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.settings import Clients, Count, Positive, Share, StepCount, When, rule


@rule("assist")
class Safari:
    """Server steps between client rounds."""

    lr: Positive  # learning rate η_s of the server's own SGD, greater than 0; about the clients' learning rate is usual
    # probability q of a client round, 0 to 1; 1 is without assistance, 0 trains at the server alone; "theory" is
    # 1 − 1/(m·K)
    client_prob: Share | Literal["theory"] = 0.5
    steps: StepCount = 1  # number of SGD steps in a server round, 1 or more; 1 as in the paper
    batch_size: Count | None = None  # mini-batch size of a server step, 1 or more; none is all the server's samples
    # cohort size m of the formula for q, 1 or more; required with client_prob = "theory"
    participants: Annotated[Clients | None, When(client_prob="theory")] = None
    # number of local steps K of the formula for q, 1 or more; required with client_prob = "theory"
    local_steps: Annotated[StepCount | None, When(client_prob="theory")] = None

    def __post_init__(self) -> None:
        if self.client_prob == "theory" and (self.participants is None or self.local_steps is None):
            raise ConfigError(
                'Safari with client_prob = "theory" needs participants and local_steps, for q = 1 − 1/(m·K). '
                "Set assist.participants and assist.local_steps, or give assist.client_prob a number.",
                setting="assist.participants",
            )

    @property
    def q(self) -> float:
        """The probability of a client round."""
        if self.client_prob == "theory":
            return 1.0 - 1.0 / ((self.participants or 1) * (self.local_steps or 1))
        return float(self.client_prob)

    def takes(self, view: View) -> bool:
        """Whether this is a server round."""
        coin: float = view.streams.generator("assist", view.round).random()
        return coin >= self.q
