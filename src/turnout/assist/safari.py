"""SAFARI: a coin each round decides whether the clients work or the server steps on its own samples.

Intuition: a few samples at the server stand in for the clients that never come.

    client round, with probability q   x ← (1/|S|) Σ_{i∈S} x_i       after K local steps with η_c
    server round, with probability 1−q x ← x − η_s g_T(x)            on a mini-batch of the server's samples T

The coin has a stream of its own, so q = 1 is the base algorithm bit for bit.

Reduces to: the base algorithm when q = 1; centralised mini-batch SGD on T when q = 0.
Differs from the paper: `server_steps` may be more than one; the paper's `x_t` and `x_{r,K+1}` are read as x_r and
x_{r,K}. The theory couples η_c = 2η_s/K and q = 1 − 1/(m·K); q is taken from it with client_prob = "theory".
Reference: Zhang, Yang, Liu. Federated learning with server assistance (SA-FL), SAFARI.
"""

from typing import Annotated, Literal

from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.settings import Clients, Count, Positive, Share, StepCount, When, rule


@rule("assist")
class Safari:
    """Server steps between client rounds."""

    lr: Positive  # η_s
    client_prob: Share | Literal["theory"] = 0.5  # q
    steps: StepCount = 1  # server steps in a server round
    batch_size: Count | None = None  # of a server step; left out, all the server's samples
    participants: Annotated[Clients | None, When(client_prob="theory")] = None  # m, for client_prob = "theory"
    local_steps: Annotated[StepCount | None, When(client_prob="theory")] = None  # K, for client_prob = "theory"

    def __post_init__(self) -> None:
        if self.client_prob == "theory" and (self.participants is None or self.local_steps is None):
            raise ConfigError(
                'Safari with client_prob = "theory" needs participants and local_steps, for q = 1 − 1/(m·K). '
                "Set assist.participants and assist.local_steps, or give assist.client_prob a number."
            )

    @property
    def q(self) -> float:
        """The probability of a client round."""
        if self.client_prob == "theory":
            return 1.0 - 1.0 / ((self.participants or 1) * (self.local_steps or 1))
        return float(self.client_prob)

    def takes(self, view: View) -> bool:
        """Whether this round is the server's."""
        coin: float = view.streams.generator("assist", view.round).random()
        return coin >= self.q
