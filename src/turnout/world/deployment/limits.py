"""How long a deployment waits: the settings of `deployment.toml` that the world needs."""

from turnout.settings import CountOrZero, Positive, rule


@rule("limits")
class Limits:
    """How long the server waits for devices."""

    deadline_seconds: Positive = 60.0  # time that a device has for a round's local work, on its own clock
    grace_seconds: Positive = 30.0  # time that messages may take beside it: 3 to 5 s at the least
    late_seconds: Positive = 300.0  # time after which a device that owes an answer is asked again
    start_with: CountOrZero = 0  # number of devices that must be connected before the first round; 0: all of them
    wait_seconds: Positive = 600.0  # time that the server waits for them, and later for a device to be connected
    gone_after_seconds: Positive = 3600.0  # time without a connection after which a device has left the federation

    @property
    def round_seconds(self) -> float:
        """How long the server waits for answers."""
        return self.deadline_seconds + self.grace_seconds

    @property
    def message_seconds(self) -> float:
        """How long a message is good for: longer than the round, so that a late answer is still heard of."""
        return self.round_seconds + self.late_seconds
