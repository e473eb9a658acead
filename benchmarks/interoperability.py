"""The same inputs to turnout and to other libraries: are the outputs the same?

python -m benchmarks.interoperability [--only flwr pfl] [--venvs DIR] [--json FILE].

Every library runs the same rounds on the same quadratics with the same cohorts, and the models after each round are
laid side by side; local solvers run beside PyTorch's optimisers on the same mini-batches. With personal models and
widths, the clients have small networks, the mini-batches are the same too, and each client's own model is compared as
well as the shared one. A peer lives in a virtual environment of its own under --venvs, made when it is missing, and is
told and answers through .npz files. Where a peer is known to be wrong, the reason is printed, and either a copy with
that one mistake put right is compared, or turnout's rule with the same mistake made on purpose.
Exit code 0 when all that should agree does, 1 when something does not or a peer did not get through; a peer that
cannot be installed is reported with the reason.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import personal_cases
from benchmarks.peers.cases import DOUBLE, SINGLE, Case, GivenCohorts, states_of
from benchmarks.peers.install import PEERS, InstallError, python_of
from benchmarks.peers.networks import Network
from benchmarks.peers.paths_torch import ROUNDS, small_task, solvers, torch_path
from benchmarks.peers.quadratics import (
    ADAPTIVITY,
    ATTACKERS,
    BETA1,
    BETA2,
    FEDEXP_EPS,
    KEPT,
    LOCAL_LR,
    LOCAL_STEPS,
    MOMENTUM,
    SERVER_LR,
    TINY_ADAPTIVITY,
    TRIMMED,
    Floats,
    Quadratics,
)
from benchmarks.peers.run import ROOT, PeerError, environment, last_line
from benchmarks.reporting import print_table, write_json
from turnout import losses
from turnout.aggregation import FedAvg, FedNova, Krum, Median, MultiKrum, TrimmedMean
from turnout.coordinator import Cadence, Plan
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.local import SGD
from turnout.models.point import Vector
from turnout.server import SGD as ServerSGD
from turnout.server import FedAdagrad, FedAdam, FedAvgM, FedExP, FedYogi
from turnout.streams import Streams

CLIPPED = 1e-5  # PyTorch adds 1e-6 to the norm it divides by
LONGEST = 600  # seconds one peer may take
LIBRARIES = ("torch", "flwr", "fluke", "pfl", "flgo", "fedlab", "reference")


def flwr_cases(plan: Plan) -> Iterator[Case]:
    """Yield what is compared with Flower."""
    betas = {"beta1": BETA1, "beta2": BETA2}
    corrected = FedAdam(lr=SERVER_LR, adaptivity=TINY_ADAPTIVITY, bias_correction=True, **betas)
    for rule, server, reason in (
        ("FedAvg", ServerSGD(), ""),
        ("FedAvgM", FedAvgM(lr=SERVER_LR, momentum=MOMENTUM), ""),
        ("FedAdagrad", FedAdagrad(lr=SERVER_LR, adaptivity=ADAPTIVITY), ""),
        ("FedYogi", FedYogi(lr=SERVER_LR, adaptivity=ADAPTIVITY, **betas), ""),
        ("FedAdam", corrected, "its bias correction has the exponent t + 1 where it should be t"),
        ("FedAdam, exponent put right", corrected, ""),
    ):
        yield Case(peer="flwr", rule=rule, plan=replace(plan, server=server), reason=reason)
    for rule, aggregation in (
        ("FedMedian", Median()),
        ("FedTrimmedAvg", TrimmedMean(fraction=TRIMMED)),
        ("Krum", Krum(num_attackers=ATTACKERS)),
        ("MultiKrum", MultiKrum(num_attackers=ATTACKERS, num_kept=KEPT)),
    ):
        yield Case(peer="flwr", rule=rule, plan=replace(plan, aggregation=aggregation), by_size=False)


def fluke_cases(plan: Plan) -> Iterator[Case]:
    """Yield what is compared with fluke."""
    betas = {"beta1": BETA1, "beta2": BETA2}
    equal = replace(plan, aggregation=FedAvg(weighting="mean"))
    # fluke rounds its rate to single precision
    yield Case(peer="fluke", rule="FedExP", plan=replace(equal, server=FedExP(eps=FEDEXP_EPS)), tolerance=SINGLE)
    twice = "the server's rate is also in the average that makes its pseudo-gradient, so it counts twice"
    for rule, server, reason in (
        ("FedOpt, adam", FedAdam(lr=SERVER_LR, adaptivity=ADAPTIVITY, **betas), twice),
        ("FedOpt, adam, rate 1", FedAdam(lr=1.0, adaptivity=ADAPTIVITY, **betas), ""),
        ("FedOpt, yogi, rate 1", FedYogi(lr=1.0, adaptivity=ADAPTIVITY, **betas), ""),
        ("FedOpt, adagrad, rate 1", FedAdagrad(lr=1.0, adaptivity=ADAPTIVITY), ""),
    ):
        yield Case(peer="fluke", rule=rule, plan=replace(plan, server=server), reason=reason)
    yield Case(peer="fluke", rule="SCAFFOLD", plan=with_controls(equal, "average"), by_size=False)
    yield Case(
        peer="fluke",
        rule="FedAVGM",
        plan=replace(plan, server=FedAvgM(momentum=MOMENTUM)),
        reason="the first round's change never enters its momentum, so the first round moves nothing",
    )
    yield Case(
        peer="fluke",
        rule="FedNova",
        plan=replace(plan, aggregation=FedNova(), local=SGD(lr=LOCAL_LR, batch_size=1, epochs=LOCAL_STEPS)),
        reason="its coefficients, which need not sum to one, multiply the clients' models and not their changes",
    )


def pfl_cases(plan: Plan) -> Iterator[Case]:
    """Yield what is compared with pfl."""
    average = with_controls(replace(plan, aggregation=FedAvg(weighting="mean")), "average")
    gradient = with_controls(average, "gradient")
    single: dict[str, Any] = {"peer": "pfl", "by_size": False, "tolerance": SINGLE}
    backwards = (
        "its controls are made of x_i − x, minus the gradient, and added as if they were plus: "
        "they double the drift that they should cancel"
    )
    shared = (
        "the sign is wrong here too, and controls kept in memory share one buffer, so that all clients hold "
        "the last one's"
    )
    yield Case(rule="SCAFFOLD", plan=average, reason=backwards, **single)
    yield Case(rule="SCAFFOLD, sign put right", plan=average, **single)
    yield Case(rule="SCAFFOLD from gradients", plan=gradient, reason=shared, **single)
    yield Case(rule="SCAFFOLD from gradients, both put right", plan=gradient, **single)


def with_controls(plan: Plan, control: Any) -> Plan:
    """Return the plan with control variates at the clients."""
    return replace(plan, local=SGD(lr=LOCAL_LR, steps=LOCAL_STEPS, batches="full", control=control))


def task_of(given: Quadratics, *, by_size: bool) -> Task:
    """Return the quadratics as a federation of turnout's."""
    held = [torch.from_numpy(given.targets(client)) for client in range(len(given.sizes))]
    clients = [(torch.zeros(len(y), 1, dtype=torch.float64), y) for y in (held if by_size else [y[:1] for y in held])]
    module = Vector(torch.tensor(given.start))
    return Task(federation=from_clients(clients), module=module, loss=losses.quadratic)


def path_of(task: Task, plan: Plan) -> Floats:
    """Return the model after each round."""
    return np.stack([state.model.numpy() for state in states_of(task, plan)])


def compare_with_torch() -> Iterator[Case]:
    """Yield each local solver, compared with PyTorch's optimiser."""
    for rule, (local, optimiser, clip_norm) in solvers().items():
        task, plan = small_task(), Plan(local=local, rounds=ROUNDS, evaluate=Cadence(every=10**9))
        tolerance = DOUBLE if clip_norm is None else CLIPPED
        case = Case(peer="torch", rule=rule, plan=plan, tolerance=tolerance)
        ours = path_of(task, plan)
        case.difference = float(np.abs(ours - torch_path(task, local, optimiser, clip_norm, Streams(0))).max())
        yield case


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What one peer is given in one process, and the cases that are compared with its answer."""

    peer: str
    script: str  # of benchmarks.peers
    given: Quadratics | Network
    cases: list[Case]

    def ours(self, case: Case) -> Floats:
        """Return turnout's side of a case."""
        if isinstance(self.given, Network):
            return personal_cases.path_of(self.given, case.plan)
        return path_of(task_of(self.given, by_size=case.by_size), case.plan)

    def theirs(self, venvs: Path) -> dict[str, Floats]:
        """Run the peer in its environment and return its models after each round, by rule."""
        python = python_of(venvs, PEERS[self.peer])
        with tempfile.TemporaryDirectory(prefix="turnout-peer-") as folder:
            told, found, said = (Path(folder) / file for file in ("given.npz", "found.npz", "said.txt"))
            self.given.save(told)
            command = [str(python), "-m", f"benchmarks.peers.{self.script}", str(told), str(found)]
            with said.open("w") as log:
                try:
                    where = {"cwd": ROOT, "env": environment(), "stdout": log, "stderr": log}
                    subprocess.run(command, timeout=LONGEST, check=True, **where)  # type: ignore[call-overload]
                except (subprocess.SubprocessError, OSError) as error:
                    raise PeerError(f"{self.peer}: {last_line(said) or error}") from error
            with np.load(found) as held:
                return dict(held)

    def compare(self, venvs: Path) -> None:
        """Fill in the difference of each case, or why there is none."""
        print(f"running {self.peer}, after installing it where it is missing ...", file=sys.stderr, flush=True)
        try:
            theirs = self.theirs(venvs)
        except (InstallError, PeerError) as error:
            kind = "cannot be installed" if isinstance(error, InstallError) else "did not get through"
            for case in self.cases:
                case.failure = f"{kind}: {error}"
            return
        for case in self.cases:
            case.compare(self.ours(case), theirs)


def suites() -> Iterator[Suite]:
    """Yield what is compared with each peer."""
    given = Quadratics.drawn()
    local = SGD(lr=LOCAL_LR, steps=LOCAL_STEPS, batches="full")
    asked = GivenCohorts(cohorts=given.cohorts)
    plan = Plan(local=local, rounds=len(given.cohorts), selection=asked, evaluate=Cadence(every=10**9))
    for peer, some in {"flwr": flwr_cases, "fluke": fluke_cases, "pfl": pfl_cases}.items():
        yield Suite(peer=peer, script=f"paths_{peer}", given=given, cases=list(some(plan)))
    network = personal_cases.drawn()
    plan = personal_cases.plan_of(network)
    for peer, some in personal_cases.PEER_CASES.items():
        yield Suite(peer=peer, script=f"personal_{peer}", given=network, cases=list(some(plan)))


def all_cases(libraries: list[str], venvs: Path) -> list[Case]:
    """Run everything; whatever fails is kept with its reason."""
    cases = list(compare_with_torch()) if "torch" in libraries else []
    for suite in suites():
        if suite.peer in libraries:
            suite.compare(venvs)
            cases += suite.cases
    if "reference" in libraries:
        cases += personal_cases.compare_with_references(personal_cases.drawn())
    return cases


def as_json(case: Case) -> dict[str, Any]:
    """Return what is written of a case."""
    kept = ("peer", "rule", "difference", "tolerance", "reason", "failure")
    return {name: value for name, value in asdict(case).items() if name in kept} | {"agrees": case.agrees}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--venvs", type=Path, default=ROOT / ".peers", help="where the virtual environments live")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    cases = all_cases(given.only, given.venvs)
    header = ["peer", "rule", "largest difference", "tolerance", ""]
    print_table("Models after every round, turnout's beside the peer's", header, [case.row() for case in cases])
    for case in cases:
        if case.reason and case.was_compared:
            kind = "chose otherwise" if case.is_choice else "is wrong"
            print(f"{case.peer} {case.rule} {'no longer shows' if case.agrees else kind}: {case.reason}.")
    if "reference" in given.only:
        print(f"reference: {personal_cases.ABOUT_REFERENCES}")
    for failure in sorted({f"{case.peer} was not compared. It {case.failure}" for case in cases if case.failure}):
        print(failure)
    write_json(given.json, {f"{case.peer} {case.rule}": as_json(case) for case in cases})
    return 1 if any(case.is_bad or case.failure.startswith("did not get through") for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
