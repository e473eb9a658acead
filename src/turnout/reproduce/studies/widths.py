"""Models of different widths on recorded phones: hours, bytes and accuracy if slow phones train narrow models."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, exactly, number, our_own
from turnout.reproduce.reading import final
from turnout.reproduce.shipped import About

WHOLE, SAME = "FedAvg", "nested, all whole"
NESTED, CHANCE = "HeteroFL by speed", "HeteroFL by chance"
ROLLING, RANDOM, ORDERED = "FedRolex by speed", "Federated Dropout by speed", "FjORD by speed"
NARROW, NARROW_ROLLING = "HeteroFL, nobody whole", "FedRolex, nobody whole"
NARROWEST = "accuracy_at_width_0.125"  # of the smallest part of the model that is used by itself
ROUNDING = 1e-4  # of a loss: sums over rows of a block are taken in another order
HOURS, BYTES = "cumulative_sim_seconds", "cumulative_bytes"

ABOUT = About(
    paper="Diao et al. 2021 (HeteroFL), Alam et al. 2022 (FedRolex), Horváth et al. 2021 (FjORD), on FLASH's phones",
    what="Whether narrow models for slow phones save time, and whether a moving window pays.",
    primary=(("hours", "speed", "accuracy", "rolling", "narrow", "ordered"),),
    most=20,
    caveat="Much smaller than the papers': one hidden layer of 64 units in place of a ResNet-18.",
    found="With narrow models by speed a run takes a seventh of the hours and loses 1.4 points of accuracy. FedRolex "
    "is worse than HeteroFL in these 60 rounds, in which its window does not go around once; the first eighth of the "
    "units is 2.4 points better by itself with FjORD.",
    small="11 min",
    needs=("fashion-mnist", "device-capability"),
    scales={
        "smoke": ("rounds=3", "seeds=2", "data.samples=1500", "data.clients=30"),
        "small": (),
        "paper": ("rounds=200", "seeds=10", "data.samples=60000", 'model={use="cnn"}'),
    },
    notes=(
        "The claims on hours and on assignment by speed are predictions of ours: no paper assigns widths by recorded "
        "speeds. So is that on FjORD, whose paper compares with Federated Dropout. That narrow clients do not cost "
        "much accuracy is HeteroFL's claim, and that a moving window is better than a fixed corner where nobody trains "
        "the whole model is FedRolex's. All were written before the first run of the reported seeds.",
        "A client's seconds are those of its phone times its model's share of the multiplications, and bytes are those "
        "of its slice. Clients count alike, as in the papers. HeteroFL is without its scaler and its label mask, and "
        "FjORD without self-distillation.",
        "Why FedRolex's claims are contradicted here: its window moves by one unit a round, and 60 rounds are fewer "
        "than 64 units. On seeds 1000 to 1007, where nobody trains the whole model, FedRolex was behind HeteroFL by "
        "4.4 ± 2.3 points after 60 rounds, by 2.5 ± 1.6 after 120 and by 0.6 ± 1.4 after 240, and 1.0 ± 1.7 ahead "
        "after 480, which eight seeds do not settle. That the window must go around is the reason for most of it: on "
        "the same seeds, after 60 rounds, a window that moves by 4, 8 or 16 units a round was behind by 2.1 ± 2.0, 1.6 "
        "± 2.3 and 1.2 ± 2.0 points.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold narrow models against the whole one, and a moving window against a fixed corner."""
    study = loaded["study"]
    accuracy = {arm: 100.0 * final(study, arm) for arm in study.arms}
    found = [
        our_own(
            exactly(
                _says("same", "every rate 1 is FedAvg: difference of the final loss", "0"),
                final(study, SAME, "loss") - final(study, WHOLE, "loss"),
                ROUNDING,
            )
        ),
        our_own(
            below(
                _says("hours", "hours of the run, HeteroFL by speed ÷ FedAvg", "< 1", "×"),
                totals(study, NESTED, HOURS) / totals(study, WHOLE, HOURS),
                1,
            )
        ),
        our_own(
            below(
                _says("speed", "hours of the run, HeteroFL by speed ÷ by chance", "< 1", "×"),
                totals(study, NESTED, HOURS) / totals(study, CHANCE, HOURS),
                1,
            )
        ),
        above(
            _says("accuracy", "final accuracy, HeteroFL by speed − FedAvg: above −3", "≈ 0", "points"),
            accuracy[NESTED] - accuracy[WHOLE],
            -3,
        ),
        above(
            _says("rolling", "final accuracy, FedRolex − HeteroFL, by speed", "> 0", "points"),
            accuracy[ROLLING] - accuracy[NESTED],
        ),
        above(
            _says("narrow", "final accuracy where nobody trains the whole model, FedRolex − HeteroFL", "> 0", "points"),
            accuracy[NARROW_ROLLING] - accuracy[NARROW],
        ),
        our_own(
            above(
                _says("ordered", "final accuracy of the first eighth of the units, FjORD − HeteroFL", "> 0", "points"),
                100.0 * (final(study, ORDERED, NARROWEST) - final(study, NESTED, NARROWEST)),
            )
        ),
    ]
    for arm in (WHOLE, NESTED, CHANCE, ROLLING, RANDOM, ORDERED, NARROW, NARROW_ROLLING):
        found += [
            number(_says(f"accuracy {arm}", f"{arm}: final accuracy", "–", "%"), accuracy[arm]),
            number(_says(f"hours {arm}", f"{arm}: hours", "–", "h"), totals(study, arm, HOURS) / 3600.0),
            number(_says(f"bytes {arm}", f"{arm}: megabytes", "–", "MB"), totals(study, arm, BYTES) / 1e6),
        ]
    for arm in (NESTED, ORDERED):
        eighth = 100.0 * final(study, arm, NARROWEST)
        found.append(number(_says(f"eighth {arm}", f"{arm}: accuracy of the first eighth", "–", "%"), eighth))
    return found


def _says(id: str, text: str, predicted: str, unit: str = "") -> Statement:
    return Statement(id=id, text=text, paper=predicted, unit=unit)


def totals(study: Loaded, arm: str, cost: str) -> Floats:
    """Return what each seed of an arm spent in all."""
    frame = study.rounds[study.rounds["arm"] == arm]
    return np.asarray(frame.groupby("seed")[cost].max().to_numpy(), dtype=np.float64)
