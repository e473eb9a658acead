"""One claim for every personal rule: the reported loss is F_i at the personal optimum, known in closed form."""

from collections.abc import Callable

import pytest

from tests.support import personal_checks as checks
from turnout.personal import Ditto, Layers

RULES: dict[str, Callable[[], None]] = {
    "Ditto": checks.check_ditto,
    "Ditto, after the shared steps": lambda: checks.check_ditto(
        Ditto(strength=checks.STRENGTH, order="after", steps=5, lr=0.2)
    ),
    "APFL": checks.check_apfl,
    "pFedMe": checks.check_pfedme,
    "FedPer": checks.check_layers,
    "FedRep": lambda: checks.check_layers(Layers(keep=("own",), order="kept-first", kept_steps=2)),
    "fine-tuning": checks.check_fine_tuning,
    "Per-FedAvg": checks.check_per_fedavg,
}


@pytest.mark.parametrize("name", RULES)
def test_convergence_the_reported_loss_is_that_of_the_personal_optimum(name: str) -> None:
    RULES[name]()


def test_golden_fedrep_trains_the_head_before_the_representation() -> None:
    checks.check_fedrep_phases(Layers(keep=("2",), order="kept-first", kept_steps=3))


def test_golden_fine_tuning_does_not_look_at_what_it_is_measured_on() -> None:
    checks.check_fine_tuning_uses_training_samples()
