"""Personal models and widths: what is compared with each peer, and turnout's side of it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from benchmarks.peers import references
from benchmarks.peers.cases import SINGLE, Case, GivenCohorts, states_of
from benchmarks.peers.mistakes import DittoFromFirstRound, MergedNotTrained, MoreauWithoutPull
from benchmarks.peers.networks import (
    BATCH_SIZE,
    CLASSES,
    CLIENTS,
    COHORT_SIZE,
    FEATURES,
    HIDDEN,
    INNER_LR,
    INNER_STEPS,
    LR,
    MIXING,
    MIXING_LR,
    OWN_STEPS,
    PULL,
    ROUNDS,
    SERVER_LR,
    SHARED_STEPS,
    STRENGTH,
    EncoderHead,
    Floats,
    Ids,
    Network,
    flat,
)
from turnout import losses
from turnout.aggregation import FedAvg
from turnout.coordinator import Cadence, Plan, State
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.local import SGD, Moreau
from turnout.local.batches import draw_batches
from turnout.models.slices import Slices
from turnout.personal import APFL, Ditto, Layers
from turnout.personal import Moreau as InnerSolution
from turnout.row_table import RowTable
from turnout.server import SGD as ServerSGD
from turnout.streams import Streams
from turnout.width import Nested

HEAD = ("head",)
LOCAL = SGD(lr=LR, steps=SHARED_STEPS, batch_size=BATCH_SIZE)


def drawn() -> Network:
    """Return clients of different sizes, and the mini-batches that turnout will draw."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(11, 24, CLIENTS)
    asked = [np.sort(rng.choice(CLIENTS, COHORT_SIZE, replace=False)) for _ in range(ROUNDS)]
    return Network(
        inputs=rng.normal(size=(sizes.sum(), FEATURES)),
        labels=rng.integers(0, CLASSES, sizes.sum()),
        sizes=sizes,
        start=rng.normal(scale=0.5, size=HIDDEN * (FEATURES + 1) + CLASSES * (HIDDEN + 1)),
        cohorts=np.array(asked),
        shared_batches=np.stack([_positions(sizes, round, "batches", SHARED_STEPS) for round in range(ROUNDS)]),
        own_batches=np.stack([_positions(sizes, round, "personal", OWN_STEPS) for round in range(ROUNDS)]),
    )


def _positions(sizes: Ids, round: int, purpose: str, steps: int) -> Ids:
    """Return the samples of each client's steps; −1 beyond the end of a smaller batch."""
    keys = Streams(0).keys(purpose, round + 1, np.arange(len(sizes)))
    batches = draw_batches(keys, sizes, np.full(len(sizes), steps), BATCH_SIZE, LOCAL.batches)
    places = np.arange(batches.positions.shape[2])
    return np.where(places < batches.counts[:, :, None], batches.positions, -1)


def fluke_cases(plan: Plan) -> Iterator[Case]:
    """Yield what is compared with fluke."""
    after = Ditto(strength=STRENGTH, order="after", steps=OWN_STEPS)
    kept_first = Layers(keep=HEAD, order="kept-first", kept_steps=OWN_STEPS)
    for rule, personal in (
        ("Ditto, after", after),
        ("Ditto, together", Ditto(strength=STRENGTH)),
        ("FedPer", Layers(keep=HEAD)),
        ("FedRep", kept_first),
    ):
        yield Case(peer="fluke", rule=rule, plan=replace(plan, personal=personal))
    yield Case(
        peer="fluke",
        rule="APFL",
        plan=replace(plan, personal=APFL(mixing=MIXING)),
        reason="it mixes copies of the two models, so that no gradient reaches the client's own, which is never "
        "trained, and puts the mixture in its place after every round",
    )
    merged = replace(plan, personal=MergedNotTrained())
    yield Case(peer="fluke", rule="APFL, with its mistakes made in ours", path="APFL", plan=merged)
    settings = {"steps": SHARED_STEPS, "batch_size": BATCH_SIZE, "inner_steps": INNER_STEPS, "strength": PULL}
    right = Moreau(lr=INNER_LR, inner_lr=INNER_LR, **settings)  # type: ignore[arg-type]
    wrong = MoreauWithoutPull(lr=INNER_LR, inner_lr=INNER_LR, **settings)  # type: ignore[arg-type]
    moreau = replace(plan, local=right, server=ServerSGD(lr=SERVER_LR), personal=InnerSolution())
    yield Case(
        peer="fluke",
        rule="pFedMe",
        plan=moreau,
        reason="the pull towards w is towards θ itself, hence zero, and θ is sent in place of w: what remains is "
        "FedAvg with several steps on each mini-batch",
    )
    yield Case(
        peer="fluke", rule="pFedMe, with its mistakes made in ours", path="pFedMe", plan=replace(moreau, local=wrong)
    )


def flgo_cases(plan: Plan) -> Iterator[Case]:
    """Yield what is compared with FLGo."""
    equal = replace(plan, aggregation=FedAvg(weighting="mean"), personal=Ditto(strength=STRENGTH))
    yield Case(
        peer="flgo",
        rule="Ditto",
        plan=equal,
        reason="a client's own model starts as the model of the first round in which it is selected, not as x⁰",
        is_choice=True,
    )
    late = replace(equal, personal=DittoFromFirstRound(strength=STRENGTH))
    yield Case(peer="flgo", rule="Ditto, with its choice made in ours", path="Ditto", plan=late)


def fedlab_cases(plan: Plan) -> Iterator[Case]:
    """Yield what is compared with FedLab."""
    after = Ditto(strength=STRENGTH, order="after", steps=OWN_STEPS)
    equal = replace(plan, aggregation=FedAvg(weighting="mean"), personal=after)
    yield Case(
        peer="fedlab",
        rule="Ditto",
        plan=equal,
        reason="it stops at the first client: its loop over clients calls a module as a function, and methods and "
        "settings that are not there",
    )
    # FedLab sends models in single precision
    yield Case(peer="fedlab", rule="Ditto, made to run", plan=equal, tolerance=SINGLE)


def reference_cases(plan: Plan) -> Iterator[tuple[Case, Callable[[Network], Floats]]]:
    """Yield what no peer has right, with the reference in plain PyTorch."""
    moreau = Moreau(
        lr=LR,
        steps=SHARED_STEPS,
        batch_size=BATCH_SIZE,
        strength=PULL,
        inner_steps=INNER_STEPS,
        inner_lr=INNER_LR,
    )
    for rule, changed, reference in (
        ("APFL", replace(plan, personal=APFL(mixing=MIXING)), partial(references.apfl, adaptive=False)),
        (
            "APFL, adaptive",
            replace(plan, personal=APFL(mixing=MIXING, mixing_lr=MIXING_LR)),
            partial(references.apfl, adaptive=True),
        ),
        (
            "pFedMe",
            replace(plan, local=moreau, server=ServerSGD(lr=SERVER_LR), personal=InnerSolution()),
            references.pfedme,
        ),
        ("HeteroFL", _width_plan(plan, scaler=False), partial(references.heterofl, scaler=False)),
        ("HeteroFL, scaler", _width_plan(plan, scaler=True), partial(references.heterofl, scaler=True)),
    ):
        yield Case(peer="reference", rule=rule, plan=changed), reference


def _width_plan(plan: Plan, *, scaler: bool) -> Plan:
    module = references.whole_network()
    slices = Slices.of(module, torch.zeros(1, FEATURES, dtype=torch.float64))
    return replace(
        plan, width=Nested(rates=references.RATES, assign="listed", scaler=scaler), slices=slices, layout=slices.layout
    )


def plan_of(given: Network) -> Plan:
    """Return FedAvg with the given cohorts."""
    return Plan(
        local=LOCAL,
        rounds=len(given.cohorts),
        selection=GivenCohorts(cohorts=given.cohorts),
        evaluate=Cadence(every=10**9),
        layout=task_of(given, EncoderHead(given.start)).layout,
    )


def task_of(given: Network, module: nn.Module) -> Task:
    """Return the given clients and a module as a task of turnout's."""
    clients = [given.samples(client) for client in range(len(given.sizes))]
    return Task(federation=from_clients(clients, num_classes=CLASSES), module=module, loss=losses.cross_entropy)


def path_of(given: Network, plan: Plan) -> Floats:
    """Return the shared model and every client's own after each round, in the order of the module's parameters."""
    task = task_of(given, EncoderHead(given.start) if plan.width is None else references.whole_network())
    return np.stack([_models(given, task, state) for state in states_of(task, plan)])


def _models(given: Network, task: Task, state: State) -> Floats:
    """Return the shared model and, where clients keep models or layers, one row for each."""
    rows, clients = [state.model], np.arange(len(given.sizes))
    models: RowTable | None = state.world.get("store personal model")
    layers: RowTable | None = state.world.get("store personal layers")
    first = task.layout.flatten(task.module)
    if models is not None:
        models.first = first
        rows += list(models.take(clients))
    if layers is not None:
        columns = task.layout.columns(Layers(keep=HEAD).kept_names(task.layout))
        layers.first = first[columns]
        for own in layers.take(clients):
            rows.append(state.model.clone())
            rows[-1][columns] = own
    ordered = [flat(task.layout.load(task.module, row)) for row in rows]
    task.layout.load(task.module, first)
    return np.stack(ordered)


def compare_with_references(given: Network) -> Iterator[Case]:
    """Yield each case of the references, compared."""
    for case, reference in reference_cases(plan_of(given)):
        case.compare(path_of(given, case.plan), {case.rule: reference(given)})
        yield case


PEER_CASES = {"fluke": fluke_cases, "flgo": flgo_cases, "fedlab": fedlab_cases}
ABOUT_REFERENCES = (
    "plain PyTorch in benchmarks/peers/references.py. No peer has HeteroFL; fluke alone has pFedMe, and has it wrong. "
    "Two have APFL: fluke, which has it wrong, and FedJAX, which is not compared. By its source, FedJAX has one α for "
    "each layer, moves it at every step, and leaves the factor α out of the step of the client's own model."
)
