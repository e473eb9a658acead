"""What a round costs: bytes, gradients and simulated seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a round cost."""

    bytes_down: int = 0
    bytes_up: int = 0
    gradient_evaluations: int = 0  # per-sample gradients; one of a narrower model counts as its share of the work
    probe_evaluations: int = 0  # per-sample losses or gradients a rule asked for besides training
    sim_seconds: float = 0.0

    def __add__(self, other: "Costs") -> "Costs":
        if other is NO_COSTS:
            return self
        return Costs(
            bytes_down=self.bytes_down + other.bytes_down,
            bytes_up=self.bytes_up + other.bytes_up,
            gradient_evaluations=self.gradient_evaluations + other.gradient_evaluations,
            probe_evaluations=self.probe_evaluations + other.probe_evaluations,
            sim_seconds=self.sim_seconds + other.sim_seconds,
        )


NO_COSTS = Costs()  # of the many rounds in which nothing was asked for besides training
