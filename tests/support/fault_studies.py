"""Small studies that between them carry every kind of state from one round to the next."""

from pathlib import Path
from textwrap import dedent

from torch import Tensor, nn

SHARED = """\
name       = "{name}"
rounds     = 24
seeds      = 2
data       = {{ use = "digits", clients = 12, holdout = 0.2, server_samples = 40 }}
model      = {{ use = "mlp", hidden = [8] }}
selection  = {{ cohort_size = 4 }}
local      = {{ lr = 0.2, batch_size = 8, steps = 3 }}
evaluate   = {{ every = 3 }}
checkpoint = {{ rounds = {every} }}
"""
BERNOULLI = 'fleet = { availability = { use = "bernoulli", prob = 0.8 } }\n'

# Memories of rows: one of them is thrown away half-way, and one arm ends before the others.
MEMORIES = (
    BERNOULLI
    + """
    [[arm]]
    name = "FedVARP"
    recipe = "fedvarp"
    [[arm]]
    name = "ClusterFedVARP"
    aggregation = { use = "cluster-fedvarp", num_clusters = 3, clusters = "updates", warm_up = 10 }
    [[arm]]
    name = "MIFA"
    recipe = "mifa"
    rounds = 11
    [[arm]]
    name = "SCAFFOLD"
    recipe = "scaffold"
    """
)

# Rules that remember whom they asked, what they heard, and whom they let through.
CHOICES = (
    BERNOULLI
    + """
    [[arm]]
    name = "rpow-d"
    selection = { use = "power-of-choice", cohort_size = 4, pool_size = 6, estimate = "last" }
    [[arm]]
    name = "DivFL"
    selection = { use = "divfl", cohort_size = 4, refresh = "no-overhead" }
    [[arm]]
    name = "Oort"
    selection = { use = "oort", cohort_size = 4 }
    [[arm]]
    name = "FilFL"
    filtering = { use = "greedy", every = 5 }
    """
)

# Servers and schedules with a memory, and a learning rate that starts again when somebody comes.
SERVERS = """
    [[arm]]
    name = "FedAdam"
    recipe = "fedadam"
    [[arm]]
    name = "slow momentum"
    recipe = "fednova-hybrid"
    [[arm]]
    name = "FedExP"
    recipe = "fedexp"
    [[arm]]
    name = "AdaComm"
    recipe = "adacomm"
    local = { effort = { use = "adacomm", start = 6, every = 4 } }
    [[arm]]
    name = "restarts"
    fleet = { membership = { use = "random", present = 0.5, arrival_prob = 0.1, departure_prob = 0.05 } }
    local = { schedule = { use = "exponential", decay = 0.9 } }
    """

# Simulated time: a deadline, and a server that does not wait.
CLOCKS = """
    [[arm]]
    name = "deadline"
    fleet.clock = { use = "deadline", seconds_per_step = { median = 1.0, sigma = 1.0 }, deadline_seconds = 4.0 }
    [[arm]]
    name = "FedBuff"
    fleet.clock = { use = "deadline", seconds_per_step = { median = 1.0, sigma = 1.0 } }
    selection = { use = "uniform", cohort_size = "none" }
    asynchrony = { use = "fedbuff", buffer_size = 3, concurrency = 6 }
    """

# Buffers that are averaged with the model.
BUFFERS = """
    [[arm]]
    name = "BatchNorm"
    model = { use = "tests.support.fault_studies:Normed" }
    """

STUDIES = {"memories": MEMORIES, "choices": CHOICES, "servers": SERVERS, "clocks": CLOCKS, "buffers": BUFFERS}


class Normed(nn.Module):
    """A small network with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of each class."""
        scores: Tensor = self.layers(x.flatten(1))
        return scores


def write_study(folder: Path, name: str, every: int = 4) -> Path:
    """Write one of the studies to a file and return it."""
    file = folder / f"{name}.toml"
    file.write_text(SHARED.format(name=name, every=every) + dedent(STUDIES[name]), encoding="utf-8")
    return file
