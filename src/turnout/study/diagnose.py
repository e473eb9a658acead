"""Diagnose an arm of a study: a short pilot run shows who takes part, then an engine measures losses and gradients."""

from dataclasses import replace

import numpy as np
from torch import Tensor

from turnout.analysis.audit.weights import client_weights, round_facts
from turnout.analysis.diagnosis.diagnosis import Diagnosis, Planned, diagnose
from turnout.analysis.diagnosis.participation import Pilot
from turnout.analysis.diagnosis.prober import Prober
from turnout.analysis.skew import expected_shares
from turnout.array_types import Floats
from turnout.coordinator import Cadence
from turnout.engine import Vectorised
from turnout.errors import ConfigError, did_you_mean
from turnout.journal import Loaded
from turnout.protocols import View
from turnout.study.driver import Run
from turnout.study.rehearsal import Tell, rehearse
from turnout.study.run_factory import RunFactory, RunKey
from turnout.study.study import Study

PILOT_ROUNDS = 30


def _say_nothing(what: str) -> None:
    pass


def diagnose_study(
    study: Study, arm: str | None = None, seed: int | None = None, *, tell: Tell = _say_nothing
) -> Diagnosis:
    """Return the diagnosis of one arm of a study, the first by default, with one seed.

    The pilot trains for at most 30 rounds, and the rehearsal for a share of the rounds; their models are thrown away.
    `tell` is called with the current activity.
    """
    versions = study.versions()
    if arm is not None and arm not in versions:
        raise ConfigError(
            f"There is no arm {arm!r} in the study.{did_you_mean(arm, list(versions))} It has {', '.join(versions)}."
        )
    name = next(iter(versions)) if arm is None else arm
    number = study.all_seeds[0] if seed is None else seed
    version = versions[name]
    rounds = min(version.rounds, PILOT_ROUNDS)
    short = replace(
        version, name="pilot", rounds=rounds, seeds=(number,), evaluate=Cadence(every=rounds), target=None, track=()
    )
    engine = Vectorised(deterministic=True)
    result = short.run(
        engine=engine,
        progress=False,
        on_progress=lambda _, __, record: tell(f"pilot: round {record.round} of {rounds}"),
    )
    run = RunFactory(short, engine.device).run(0, RunKey("pilot", number))
    later = run.task.layout.flatten(result.module("pilot", number)).to(run.state.model)
    prober = Prober.of(run.task, engine, run.streams, run.population, run.state.buffers)
    rehearsal = rehearse(replace(version, seeds=study.all_seeds), number, engine, tell)
    tell("measuring losses and gradients of each client")
    return diagnose(
        Planned(
            arm=name,
            prober=prober,
            population=run.population,
            start=run.state.model,
            later=later,
            pilot=pilot_of(result.loaded, "pilot", number),
            rehearsal=rehearsal,
            rounds=version.rounds,
            seeds=len(study.all_seeds),
            batch_size=None if run.plan.local.batches == "full" else run.plan.local.batch_size,
            shares_at=lambda model, losses: _selection_shares(run, prober, model, losses),
        )
    )


def pilot_of(loaded: Loaded, arm: str, seed: int) -> Pilot:
    """Return what a recorded run shows of who takes part and how much work is done."""
    rounds = list(round_facts(loaded, arm, seed))
    moved = [facts for facts in rounds if facts.total.any()]
    selected = np.concatenate([facts.asked_steps[facts.drawn > 0] for facts in rounds])
    steps = np.concatenate([facts.local_steps[facts.used > 0] for facts in moved])
    work = np.concatenate([facts.work[facts.used > 0] for facts in moved])
    return Pilot(
        weights=client_weights(loaded, arm, seed),
        rounds=rounds,
        mean_step=float(np.mean([facts.total.sum() for facts in moved])),
        mean_cohort=float(np.mean([facts.used.sum() for facts in moved])),
        mean_steps=float(selected.mean()),
        mean_lr=float(work.sum() / steps.sum()),
    )


def _selection_shares(run: Run, prober: Prober, model: Tensor, losses: Floats) -> Floats | None:
    """Return each client's expected share of the cohort at a model, with everyone available.

    None for a rule that asks for more than losses, and where not all clients are measured.
    """
    if len(prober.clients) < prober.num_clients:
        return None
    view = View(
        round=1,
        rounds=run.plan.rounds,
        streams=run.streams,
        population=run.population,
        model=model,
        last_losses=losses,
    )
    try:
        return expected_shares(run.plan.selection, view, prober.clients, losses)
    except ConfigError:
        return None
