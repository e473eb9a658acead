"""How far clients got with their work, and how long it took them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.ids import are_equal, is_among


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far clients got and how long it took them, whatever the server made of it: late and rejected ones too."""

    clients: Ids  # ascending
    steps: Ids  # local steps done; 0 where nothing came
    seconds: Floats  # from being handed the work to that point, transfers included; NaN where not known
    cut_off: Any  # bool per client: the server's deadline stopped it, it would have gone on

    def of(self, clients: Ids) -> "Progress":
        """Return the progress of these clients, ascending; nothing is known of those that are not here."""
        if are_equal(self.clients, clients):
            return self
        steps, seconds = np.zeros(len(clients), dtype=np.int64), np.full(len(clients), np.nan)
        cut_off = np.zeros(len(clients), dtype=bool)
        here = is_among(self.clients, clients)
        place = np.searchsorted(clients, self.clients[here])
        steps[place], seconds[place], cut_off[place] = self.steps[here], self.seconds[here], self.cut_off[here]
        return Progress(clients=clients, steps=steps, seconds=seconds, cut_off=cut_off)
