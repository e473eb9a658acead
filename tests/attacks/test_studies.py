"""Attacks in studies: labels, accuracy of the benign, and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from tests.support.runs import models_of
from tests.support.tasks import blob_federation, blob_task
from turnout import Study
from turnout.attacks import LabelFlip, ModelReplacement, ScaledUpdate, SignFlip
from turnout.attacks.attack import drawn_attackers
from turnout.data.relabelled import relabelled
from turnout.errors import ConfigError, DataError
from turnout.study import load_study, resolved_settings

LOCAL = to.local.SGD(lr=0.1, batch_size=10, epochs=1)
DIGITS = to.data.Digits(clients=10, samples=400, holdout=0.3, partition=to.data.partition.Iid())


def study(**more: Any) -> Study:
    chosen = {"data": DIGITS, "model": to.models.Softmax(), "local": LOCAL, "rounds": 2, **more}
    return to.Study(**chosen)


def test_identity_flipped_labels_in_a_study_are_a_federation_with_flipped_labels() -> None:
    before = blob_federation(8)
    flipped = relabelled(before, drawn_attackers(0, 8, 0.5), LabelFlip(fraction=0.5).relabel)
    model = blob_task(8).module
    attacked = study(data=before, model=model, attack=LabelFlip(fraction=0.5)).run()
    by_hand = study(data=flipped, model=model).run()
    honest = study(data=before, model=model).run()
    (one,), (two,), (three,) = (list(models_of(result).values()) for result in (attacked, by_hand, honest))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_engine_runs_that_share_inputs_and_not_labels_are_kept_apart() -> None:
    arms = [to.arm("honest"), to.arm("flip", attack=LabelFlip(fraction=0.5))]
    together = models_of(study(arms=arms).run())
    alone = models_of(study(arms=arms[1:]).run())
    assert torch.allclose(together["flip", 0], alone["flip", 0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together["flip", 0], together["honest", 0], rtol=1e-2, atol=1e-2)


def test_identity_a_boost_of_one_is_label_flip() -> None:
    arms = [
        to.arm("flip", attack=LabelFlip(fraction=0.4)),
        to.arm("replace", attack=ModelReplacement(fraction=0.4, boost=1.0)),
    ]
    models = models_of(study(arms=arms, aggregation=to.aggregation.Median()).run())
    assert torch.equal(models["flip", 0], models["replace", 0])


def test_contract_arms_of_a_seed_share_their_attackers_and_each_seed_has_its_own() -> None:
    arms = [to.arm("flip", attack=LabelFlip(fraction=0.3)), to.arm("sign", attack=SignFlip(fraction=0.3))]
    rounds = study(arms=arms, seeds=2, rounds=1).run().loaded.rounds
    said = {(row.arm, row.seed): row.events[0].partition(": ")[2] for row in rounds.itertuples() if row.round == 0}  # type: ignore[index, union-attr]
    assert said["flip", 0] == said["sign", 0]
    assert said["flip", 1] == said["sign", 1]
    assert said["flip", 0] != said["flip", 1]


def test_golden_benign_accuracy_is_the_mean_over_clients_who_do_not_attack() -> None:
    loaded = study(attack=ScaledUpdate(fraction=0.3), rounds=1).run().loaded
    hostile = drawn_attackers(0, 10, 0.3)
    by_client = loaded.client_accuracy.sort_values("client")["accuracy"].to_numpy()
    metrics = loaded.rounds.set_index("round")["benign_accuracy"]
    assert metrics[1] == pytest.approx(np.mean(by_client[~hostile]))
    assert by_client[hostile].mean() != pytest.approx(by_client[~hostile].mean())


def test_error_labels_cannot_be_flipped_where_there_are_none() -> None:
    data = to.data.LinearRegression(clients=5)
    with pytest.raises(DataError, match="An attack on labels needs data with classes"):
        study(data=data, attack=LabelFlip(fraction=0.5)).run()


FILE = """
rounds = 3
data   = { use = "digits", clients = 10 }
model  = "softmax"
local  = { use = "sgd", lr = 0.1, steps = 1 }
attack = { use = "sign-flip", fraction = 0.2 }

[[arm]]
name = "attacked"

[[arm]]
name   = "by these"
attack = { use = "inner-product", clients = [1, 3], fraction = "none" }

[[arm]]
name   = "honest"
attack = "none"
"""


def test_contract_a_study_file_names_attacks_and_writes_them_back(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE)
    arms = load_study(tmp_path / "study.toml").versions()
    assert arms["attacked"].attack == SignFlip(fraction=0.2)
    assert arms["by these"].attack == to.attacks.InnerProduct(clients=(1, 3))
    assert arms["honest"].attack is None
    written = resolved_settings(arms["by these"])["attack"]
    assert written == {"use": "inner-product", "fraction": None, "clients": [1, 3], "scale": 0.5}


def test_error_a_file_with_too_few_clients_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE.replace("[1, 3]", "[1, 30]"))
    with pytest.raises(ConfigError, match=r"study\.toml:\d+: InnerProduct needs clients below 10"):
        load_study(tmp_path / "study.toml")
