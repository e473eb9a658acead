"""Robust aggregation and low-loss selection against nine attacks, by the accuracy of clients that do not attack."""

from collections.abc import Mapping

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, number, our_own
from turnout.reproduce.reading import final
from turnout.reproduce.shipped import About

POINTS = 100.0
HONEST = "nobody"
ATTACKS = {
    "free-rider": "",
    "NaN": "",
    "label flip": "",
    "scaled update": ", scale = 10.0",
    "Gaussian": ", std = 1.0",
    "sign flip": ", scale = 5.0",
    "model replacement": "",
    "inner product": ", scale = 5.0",
    "little is enough": ", shift = 1.0",
}
FORCE = ("Gaussian", "sign flip", "inner product")  # what Krum's and the median's papers are about
ROBUST = ("median", "trimmed mean", "Krum", "multi-Krum")
LARGE_LOSS, SMALL_LOSS = 20.0, 10.0  # points

ABOUT = About(
    paper="Blanchard et al. 2017, Yin et al. 2018, Xie et al. 2019, Baruch et al. 2019, Sun et al. 2019, Cao et al.",
    what="Six of thirty clients attack; a mean is lost, and robust rules keep most of the others' accuracy.",
    primary=(("FedAvg sign flip", "Krum sign flip", "median sign flip", "clipped", "trusted", "little trimmed mean"),),
    most=54,
    first_seed=300,
    found="One sign flip in five ruins a mean (77 points) and costs Krum nothing and the median 12; a "
    "small shift does not get past a trimmed mean here, which loses 17 points less than under sign flips.",
    small="2 min",
    scales={
        "smoke": ("rounds=2", "seeds=2"),
        "small": (),
        "paper": (),
    },
    cells={
        HONEST: ('attack={ use = "free-rider", fraction = 0.0 }',),
        **{
            name: (f'attack={{ use = "{name.lower().replace(" ", "-")}", fraction = 0.2{more} }}',)
            for name, more in ATTACKS.items()
        },
    },
    notes=(
        "The papers' claims are put to one small task: digits, a small MLP, Dirichlet(1) over thirty clients. Six are "
        "what papers claim: a mean is lost to one attacker's sign flip (Blanchard et al.), Krum (Blanchard et al.) and "
        "the median (Yin et al.) stand it, clipping helps against model replacement (Sun et al.), FLTrust beats the "
        "mean (Cao et al.), and a small shift gets past a trimmed mean (Baruch et al.). That a rule keeps within ten "
        "points, or loses more than twenty, is our reading of “stands” and “is lost”.",
        "Accuracy is the mean over clients that do not attack, each on its own hold-out.",
        "Attackers report honest losses on the labels they train on, so low-loss selection can only see wrong labels.",
        "The papers prove what they claim for clients whose data is alike; here it is not, and that is why the median "
        "and the trimmed mean lose more than ten points. Measured on seeds 1000 to 1004 with data dealt evenly, points "
        "lost under sign flip / inner product: median 8.9 ± 4.5 / 10.8 ± 4.7, trimmed mean 9.8 ± 4.7 / 12.3 ± 6.7, "
        "Krum 4.0 ± 2.2 / 4.0 ± 2.2, multi-Krum 0.4 ± 0.9 / 0.6 ± 1.0, FedAvg 78 ± 3 / 80 ± 2.",
        "A small shift does not get past a trimmed mean here. Measured on seeds 1000 to 1003: on unlike data the "
        "trimmed mean, at 81 % without attackers, gains 4.2 ± 2.2 points from them, or 4.3 ± 2.2 with a shift of three "
        "deviations; under sign flips it loses 11.4 ± 3.4. It is the same if a fifth is trimmed, or if all thirty take "
        "part. With data dealt evenly the shift costs 0.1 ± 1.1 points after 40 rounds and 0.9 ± 0.6 after 160. The "
        "gain comes from what is sent beside the shift, not from the shift: on seeds 1000 to 1009 attackers who send "
        "the honest mean, with a shift of 0, raise the trimmed mean by 3.8 ± 3.0 points and the median by 4.9 ± 3.5, "
        "and with the attack's own shift by 4.0 ± 3.3 and 4.4 ± 3.5. Up to six equal updates at the mean pull both "
        "towards the mean, from which unlike data keep them: FedAvg, which is that mean, is at 87 % where they are at "
        "79 %.",
        "A cohort of fifteen drawn from thirty with six attackers has up to six of them: near the most that a trimmed "
        "mean or a median stands.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold each rule under attack against itself without, and against FedAvg."""
    found = [
        below(
            _says(f"FedAvg {attack}", f"FedAvg under {attack}, beside nobody", "lost"),
            _lost(loaded, attack, "FedAvg"),
            -LARGE_LOSS,
        )
        for attack in FORCE
    ]
    found += [
        above(
            _says(f"{rule} {attack}", f"{rule} under {attack}, beside nobody", "kept"),
            _lost(loaded, attack, rule),
            -SMALL_LOSS,
        )
        for attack in FORCE
        for rule in ROBUST
    ]
    found += [
        our_own(
            above(
                _says("no numbers", "FedAvg under NaN, beside nobody", "rejected"),
                _lost(loaded, "NaN", "FedAvg"),
                -SMALL_LOSS,
            )
        ),
        above(
            _says("clipped", "model replacement: norm clipping − FedAvg", "better"),
            _beside(loaded, "model replacement", "norm clipping", "FedAvg"),
        ),
        above(
            _says("trusted", "sign flip: FLTrust − FedAvg", "better"), _beside(loaded, "sign flip", "FLTrust", "FedAvg")
        ),
        our_own(
            above(
                _says("passed over", "label flip: low loss − FedAvg", "better"),
                _beside(loaded, "label flip", "low loss", "FedAvg"),
            )
        ),
    ]
    found += [
        below(
            _says(f"little {rule}", f"{rule}: little is enough − sign flip", "worse"),
            _accuracy(loaded, "little is enough", rule) - _accuracy(loaded, "sign flip", rule),
        )
        for rule in ("trimmed mean", "Krum")
    ]
    return found + _numbers(loaded)


def _numbers(loaded: Mapping[str, Loaded]) -> list[Claim]:
    return [
        number(Statement(id=f"{attack}: {rule}", text=f"{attack}: {rule}", unit="%"), _accuracy(loaded, attack, rule))
        for attack, study in loaded.items()
        for rule in study.arms
    ]


def _says(id: str, text: str, paper: str) -> Statement:
    return Statement(id=id, text=text, paper=paper, unit="points")


def _accuracy(loaded: Mapping[str, Loaded], attack: str, rule: str) -> Floats:
    """Return the final accuracy of the benign, in per cent, one per seed."""
    return POINTS * final(loaded[attack], rule, "benign_accuracy")


def _lost(loaded: Mapping[str, Loaded], attack: str, rule: str) -> Floats:
    """Return what an attack does to a rule, in points; negative is a loss."""
    return _accuracy(loaded, attack, rule) - _accuracy(loaded, HONEST, rule)


def _beside(loaded: Mapping[str, Loaded], attack: str, rule: str, other: str) -> Floats:
    """Return how much better a rule does than another under an attack, in points."""
    return _accuracy(loaded, attack, rule) - _accuracy(loaded, attack, other)
