"""When a run is saved."""

from dataclasses import dataclass

from turnout.errors import ConfigError

DEFAULT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Every so many rounds, or every so many seconds; and whenever a run ends or is stopped."""

    rounds: int | None = None
    seconds: float | None = None  # 30, if neither is given

    def __post_init__(self) -> None:
        if self.rounds is None and self.seconds is None:
            object.__setattr__(self, "seconds", DEFAULT_SECONDS)
        if self.rounds is not None and self.rounds < 1:
            raise ConfigError(f"checkpoint needs rounds >= 1; got {self.rounds}. Change checkpoint.rounds.")
        if self.seconds is not None and not self.seconds >= 0:
            raise ConfigError(f"checkpoint needs seconds >= 0; got {self.seconds}. Change checkpoint.seconds.")

    def is_due(self, round: int, seconds: float) -> bool:
        """Whether to save after this round, so many seconds after the last time."""
        by_rounds = self.rounds is not None and round > 0 and round % self.rounds == 0
        return by_rounds or (self.seconds is not None and seconds >= self.seconds)
