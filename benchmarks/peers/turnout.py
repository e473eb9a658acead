"""turnout, driven as the peers are: in a process of its own."""

from benchmarks.peers.laps import Laps
from benchmarks.turnout_rounds import TurnoutWorkload


def main() -> None:
    laps = Laps(__doc__)
    before = TurnoutWorkload(laps.workload)
    before.settle()
    contender = TurnoutWorkload(laps.workload, before.engine)  # from the start, in the way that was found
    for _ in range(laps.rounds):
        laps.start()
        contender.round()
        laps.stop()
    laps.finish(contender.loss())
    contender.close()
    before.close()


if __name__ == "__main__":
    main()
