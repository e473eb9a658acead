"""By trace: the number of local steps of each client and round comes from a table.

Intuition: replay the recorded work of devices instead of drawing it from a distribution.

    τ_i(t) = trace_j[(t − 1) mod L_j]              j = i mod J, of J traces; trace j has L_j rounds

Set one trace per client, or a few traces that clients share in turn.

Reduces to: a fixed number of steps when every trace is that number.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954, for work by recorded trace.
"""

from typing import Literal

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.settings import StepCount, rule


@rule("local.effort")
class ByTrace:
    """Recorded work, repeated at the end of a trace."""

    traces: tuple[tuple[StepCount, ...], ...]  # list of traces; each lists the steps or epochs of rounds 1, 2, …
    unit: Literal["steps", "epochs"] = "steps"  # unit of the numbers in a trace: local steps or local epochs

    def __post_init__(self) -> None:
        if not self.traces:
            raise ConfigError(
                "ByTrace needs one trace or more; got none. Change local.effort.traces.", setting="local.effort.traces"
            )
        for number, trace in enumerate(self.traces):
            if not trace:
                raise ConfigError(
                    f"ByTrace needs one round or more in a trace; got none in trace {number}. "
                    "Change local.effort.traces.",
                    setting="local.effort.traces",
                )

    def steps(self, clients: Ids, view: View, per_epoch: Ids) -> Ids:
        """Return τ_i of each client."""
        own = [self.traces[client % len(self.traces)] for client in clients]
        amount = np.array([trace[(view.round - 1) % len(trace)] for trace in own], dtype=np.int64)
        return amount if self.unit == "steps" else amount * per_epoch
