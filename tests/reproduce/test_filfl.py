"""What the figures of FilFL share: data made small, the search over all subsets, and what is read off the curves."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from turnout.data import Digits
from turnout.data.federation import Held
from turnout.data.shakespeare import VOCABULARY, WINDOW, encode
from turnout.errors import ConfigError
from turnout.filtering import Greedy
from turnout.fleet import Fleet, Resampled
from turnout.journal import load
from turnout.journal.load import Loaded
from turnout.local import SGD
from turnout.models import Softmax
from turnout.reproduce.claims import judged
from turnout.reproduce.filfl import (
    PROSE,
    Exhaustive,
    PooledCifar10,
    RolesAndProse,
    gain,
    kept_share,
    late_means,
    local_steps,
    numbers,
    training_loss,
    with_inputs,
)
from turnout.reproduce.shipped import SCALES, shipped
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.study import Study, arm

UP, SERVER, ROUNDS, EVERY = 4, 20, 10, 5
needs_data = pytest.mark.skipif(
    not os.environ.get("TURNOUT_DATA"), reason="needs CIFAR-10 and Shakespeare: set TURNOUT_DATA to their folder"
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Run no filter, both greedy ones and the search beside each of them."""
    study = Study(
        data=Digits(clients=12, server_samples=SERVER),
        model=Softmax(),
        local=SGD(lr=0.1, batch_size=16, epochs=1),
        rounds=ROUNDS,
        seeds=2,
        fleet=Fleet(availability=Resampled(size=UP, every=EVERY, settle=EVERY - 1)),
        selection=Uniform(cohort_size=2),
        arms=(
            arm("none"),
            *(
                arm(f"{rule.__name__} {mode}", filtering=rule(mode=mode, every=EVERY))
                for rule in (Greedy, Exhaustive)
                for mode in ("deterministic", "randomised")
            ),
        ),
    )
    folder = tmp_path_factory.mktemp("filfl") / "run"
    study.run(folder)
    return load(folder)


@pytest.mark.parametrize("mode", ["deterministic", "randomised"])
def test_identity_looking_at_all_subsets_changes_nothing_but_the_bill(found: Loaded, mode: str) -> None:
    greedy, searched = (
        found.rounds[found.rounds["arm"] == f"{rule} {mode}"].sort_values(["seed", "round"])
        for rule in ("Greedy", "Exhaustive")
    )
    assert greedy["loss"].tolist() == searched["loss"].tolist()
    more = searched["probe_evaluations"].to_numpy() - greedy["probe_evaluations"].to_numpy()
    looks = searched["reward_ratio"].notna().to_numpy()
    assert searched["round"][looks].tolist() == [1, 2, 3, 4, 5, 10] * 2
    assert set(more[looks]) == {SERVER * (2**UP - 1)}
    assert set(more[~looks]) == {0}
    assert (searched["reward_ratio"].dropna() <= 1).all()
    assert (searched["loss_ratio"].dropna() <= searched["reward_ratio"].dropna()).all()  # C₀ hides what is lost


def test_golden_a_look_costs_two_evaluations_a_client_and_two_more(found: Loaded) -> None:
    rounds = found.rounds[(found.rounds["arm"] == "Greedy randomised") & found.rounds["filter_considered"].notna()]
    assert set(rounds["filter_considered"]) == {UP}
    # the last of Y has nothing to be taken out of, so one evaluation less where all others were left out
    assert set(rounds["probe_evaluations"]) <= {SERVER * (2 * UP + 2), SERVER * (2 * UP + 1)}


def test_golden_readings_are_those_of_a_loop_over_the_journal(found: Loaded) -> None:
    name = "Greedy deterministic"
    for place, seed in enumerate((0, 1)):
        mine = found.clients[(found.clients["arm"] == name) & (found.clients["seed"] == seed)]
        by_round = dict(iter(mine.groupby("round")))
        late = [by_round[number]["loss"].mean() for number in (9, 10)]
        assert training_loss(found, name)[place] == pytest.approx(np.mean(late))
        steps = [rows["local_steps"].mean() for rows in by_round.values()]
        assert local_steps(found, name)[place] == pytest.approx(np.mean(steps))
        looks = found.rounds[(found.rounds["arm"] == name) & (found.rounds["seed"] == seed)].set_index("round")
        kept = [looks["filter_kept"][number] / UP for number in (1, 2, 3, 4, 5, 10)]
        assert kept_share(found, name)[place] == pytest.approx(np.mean(kept))


def test_golden_a_seed_whose_filter_lets_nobody_through_at_the_end_counts_its_last_round() -> None:
    clients = pd.DataFrame(
        {"seed": [0, 0, 0, 0, 1, 1, 1], "round": [3, 9, 9, 10, 2, 4, 4], "loss": [9.0, 1.0, 3.0, 4.0, 9.0, 5.0, 7.0]}
    )
    assert late_means(clients, "loss", 8).tolist() == [3.0, 6.0]


def test_golden_a_gain_is_in_points_over_the_last_five_measurements(found: Loaded) -> None:
    table = found.rounds.pivot(index=["arm", "seed"], columns="round", values="accuracy")[[6, 7, 8, 9, 10]].mean(axis=1)
    by_hand = 100 * (table["Greedy randomised"] - table["none"]).mean()
    assert by_hand != 0
    (claim,) = judged([gain(found, "Greedy randomised", "none", "")])
    assert claim.ours == pytest.approx(by_hand)


def test_golden_where_an_arm_ends_as_it_began_nobody_waits_for_it(found: Loaded) -> None:
    flat = replace(found, rounds=found.rounds.assign(accuracy=0.1))
    waits = [claim for claim in judged(numbers(flat, "none")) if claim.statement.text.startswith("rounds until")]
    assert [claim.ours for claim in waits] == [1.0] * 4


def test_identity_inputs_that_stay_leave_the_federation_as_it_was() -> None:
    plain = Digits(clients=5, server_samples=20, holdout=0.2).build(Streams(0))
    same, short = with_inputs(plain, lambda x: x), with_inputs(plain, lambda x: x.flatten(1)[:, :7])
    assert isinstance(plain.train, Held)
    assert isinstance(same.train, Held)
    assert isinstance(short.train, Held)
    assert torch.equal(same.train.x, plain.train.x)
    assert short.train.offsets is plain.train.offsets
    assert short.train.y is plain.train.y
    assert short.example_shape == (7,)
    for part in (short.train, short.holdout, short.test, short.server):
        assert part is not None
        assert part.x.shape[1:] == (7,)


def test_contract_the_prose_is_within_the_vocabulary() -> None:
    assert set(PROSE) <= set(VOCABULARY)


@needs_data
def test_golden_the_server_holds_the_ends_of_windows_of_the_prose() -> None:
    built = RolesAndProse(edition="tiny", clients=3, window=12, stride=50, server_samples=2).build(Streams(0))
    assert built.server is not None
    letters = encode(PROSE)
    first, last = letters[WINDOW - 12 : WINDOW], letters[-13:-1]
    assert built.server.x.tolist() == [first.tolist(), last.tolist()]
    assert built.server.y.tolist() == [letters[WINDOW], letters[-1]]
    assert built.example_shape == (12,)


@needs_data
def test_golden_a_pooled_pixel_is_the_mean_of_its_block() -> None:
    whole, pooled = (PooledCifar10(clients=5, samples=500, block=block).build(Streams(0)) for block in (1, 4))
    assert whole.test is not None
    assert pooled.test is not None
    assert pooled.example_shape == (3, 8, 8)
    assert pooled.test.x[3, 1, 2, 5].item() == pytest.approx(whole.test.x[3, 1, 8:12, 20:24].mean().item(), abs=1e-6)
    assert pooled.sizes.tolist() == whole.sizes.tolist()


def test_error_settings_that_cannot_be_met_are_named() -> None:
    with pytest.raises(ConfigError, match=r"block to be one of 1, 2, 4, 8; got 3. Change data.block"):
        PooledCifar10(block=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"window in \[1, 80\]; got 81. Change data.window"):
        RolesAndProse(window=81)


def test_contract_figures_three_to_eleven_can_be_read_at_every_scale() -> None:
    figures = {name: study for name, study in shipped().items() if name.startswith("filfl-fig")}
    assert set(figures) == {f"filfl-fig{number}" for number in range(3, 12)}
    for study in figures.values():
        for scale in SCALES:
            assert all(version.arms for version in study.studies(scale).values())
