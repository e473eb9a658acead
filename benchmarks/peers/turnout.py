"""turnout, driven as the peers are: in a process of its own."""

from benchmarks.peers.laps import Laps
from benchmarks.turnout_rounds import TurnoutWorkload


def main() -> None:
    laps = Laps(__doc__)
    contender = TurnoutWorkload(laps.workload)
    for _ in range(laps.rounds):
        laps.start()
        contender.round()
        laps.stop()
    laps.finish(contender.loss())
    contender.close()


if __name__ == "__main__":
    main()
