"""The effective weight of each client in a run, and the weights it would have had without some of the causes.

Intuition: a step of a run is a weighted sum of client gradients; the weights, summed over the rounds, say which
objective the run went down.

    w_i^t = η_g^t (c_i^t η_l^t ‖a_i^t‖₁ + m_i^t)        p̃_i = Σ_t w_i^t / Σ_t Σ_j w_j^t

c_i^t is the coefficient of client i's update in round t, η_l ‖a_i‖₁ the local work in it, and m_i^t the weight of
stored gradients of client i (FedVARP, MIFA, control variates). To first order in η_l the run minimises F̃ = Σ_i p̃_i F_i.

The way from p to p̃ goes through one weighting per cause. In every round, with λ_t = Σ_i w_i^t and n_i samples:

    asked for      r⁰ = p             p_i = n_i / Σ n over the clients in the objective at the end
    membership     r¹ ∝ n_i           over the clients that are in the objective and belong to the federation
    availability   r² ∝ r¹            over the available clients
    filtering      r³ ∝ r²            over the clients that the filter lets through
    selection      r⁴ ∝ n_i · draws   over the selected clients
    lost updates   r⁵ ∝ n_i · draws   over the clients whose update was used: not late, lost or rejected
    local work     r⁶ ∝ n_i · draws · η_l ‖a_i‖₁
    weighting      r⁷ ∝ c_i η_l ‖a_i‖₁
    memory         r⁸ = w^t / λ_t

and q^k = Σ_t λ_t r^k_t / Σ_t λ_t, so that q⁰ = p and q⁸ = p̃. Where a cause leaves nobody, it changes nothing.

Reduces to: p̃ = p when every client takes part in every round, does the same work and has the coefficient p_i.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481 (Theorem 1: the surrogate objective).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.errors import JournalError
from turnout.journal import ClientFacts, Loaded
from turnout.journal.codec import decode_clients, decode_floats, decode_mask
from turnout.journal.read_rounds import RoundClients

CAUSES = (
    "membership",
    "availability",
    "filtering",
    "selection",
    "lost updates",
    "local work",
    "weighting",
    "memory",
)
SERVER_LR = "server_lr"  # the metric by which a server rule reports an η_g of its own for each round


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of a run's clients: as asked for, after each cause, and as they were; and who took part."""

    stages: Floats  # (causes + 1, clients): q⁰ = p, …, q⁸ = p̃; each row sums to one
    standard_errors: Floats  # by client: of p̃_i, with rounds taken as independent
    rounds: int  # audited
    steps: int  # rounds among them in which the model moved
    times_up: Ids  # by client: rounds in which it was available
    draws: Floats  # by client: how often an update of it was used, with multiplicity
    worked_draws: Floats  # by client: Σ_t draws · η_l ‖a_i‖₁
    square_worked_draws: Floats  # by client: Σ_t (draws · η_l ‖a_i‖₁)²
    noise: float  # Σ_t Σ_i (w_i^t)² / (Σ_t Σ_i w_i^t)²

    @property
    def asked(self) -> Floats:
        """p: the weights that the objective asks for."""
        weights: Floats = self.stages[0]
        return weights

    @property
    def effective(self) -> Floats:
        """p̃: the weights of the objective that the run minimised."""
        weights: Floats = self.stages[-1]
        return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """One round, decoded; every array has one entry per client."""

    counted: NDArray[np.bool_]  # in the objective
    present: NDArray[np.bool_]
    up: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    drawn: Floats  # how often it was selected
    used: Floats  # the same, where its update was used
    asked_steps: Floats  # local steps that were asked for
    local_steps: Floats  # local steps that were done and used
    work: Floats  # η_l ‖a_i‖₁
    fresh: Floats  # η_g c_i η_l ‖a_i‖₁
    total: Floats  # w_i: the same, with stored gradients


class NothingToAuditError(JournalError):
    """A run whose model never moved, whose clients have no weight each, or whose journal lacks what clients hold."""


def client_weights(loaded: Loaded, arm: str, seed: int, *, since: int = 1) -> Weights:
    """Return the weights of a run's clients over its rounds from `since` on."""
    _check_widths(loaded, arm, seed)
    sizes = client_facts(loaded, arm, seed).sizes
    found = summed_weights(round_facts(loaded, arm, seed, since), sizes)
    if found is None:
        raise NothingToAuditError(
            f"An audit needs a round in which the model moved; arm {arm!r} with seed {seed} of "
            f"{loaded.study['name']} has none from round {since} on. Name another run, or an earlier round."
        )
    return found


def _check_widths(loaded: Loaded, arm: str, seed: int) -> None:
    """Raise if clients train models of different widths: no weight then holds for the whole model."""
    config = loaded.runs[(loaded.runs["arm"] == arm) & (loaded.runs["seed"] == seed)]["config"]
    if any(isinstance(each, Mapping) and isinstance(each.get("width"), Mapping) for each in config):
        raise NothingToAuditError(
            f"An audit needs one weight per client; the clients of arm {arm!r} train models of different widths, and "
            "every parameter has weights of its own. Name another run."
        )


def summed_weights(rounds: Iterable[RoundFacts], sizes: Ids) -> Weights | None:
    """Return the weights over these rounds; None if the model moved in none of them, or by more than can be said."""
    sums, last = _Sums(len(sizes)), None
    with np.errstate(over="ignore", invalid="ignore"):  # a journal from elsewhere may hold any number
        for last in rounds:
            sums.add(last, sizes)
        if last is None or not 0 < sums.scale < np.inf:
            return None
        counted: Floats = np.where(last.counted, sizes, 0).astype(np.float64)
        found = sums.weights(_normalised(counted, np.ones(len(sizes)) / len(sizes)))
    return found if np.isfinite(found.stages).all() and np.isfinite(found.standard_errors).all() else None


def client_facts(loaded: Loaded, arm: str, seed: int) -> ClientFacts:
    """Return the facts of a run's clients; raise if the journal has none."""
    facts = loaded.holdings(arm, seed)
    if facts is None:
        raise NothingToAuditError(
            f"An audit needs the number of samples of each client; the journal of {loaded.study['name']} has none for "
            f"arm {arm!r} with seed {seed}. Run the study again with this version of turnout."
        )
    return facts


def round_facts(loaded: Loaded, arm: str, seed: int, since: int = 1) -> Iterator[RoundFacts]:
    """Yield the rounds of a run, decoded, from `since` on; round 0 has no step."""
    rates = _server_rates(loaded, arm, seed)
    for row in loaded.round_clients(arm, seed):
        if row.round >= max(since, 1):
            yield _decoded(row, rates.get(row.round, 1.0))


def _server_rates(loaded: Loaded, arm: str, seed: int) -> dict[int, float]:
    """Return η_g of the rounds that report one; a rate that never changes has no effect on the weights."""
    if SERVER_LR not in loaded.metrics:
        return {}
    rounds = loaded.rounds[(loaded.rounds["arm"] == arm) & (loaded.rounds["seed"] == seed)]
    pairs = zip(rounds["round"].tolist(), rounds[SERVER_LR].tolist(), strict=True)
    return {int(round): float(rate) for round, rate in pairs if np.isfinite(rate)}


def _decoded(row: RoundClients, server_lr: float) -> RoundFacts:
    count = row.num_clients
    everyone = np.ones(count, dtype=np.bool_)
    up = decode_mask(row.up, count)
    drawn, used, asked_steps, local_steps, work, fresh = (np.zeros(count) for _ in range(6))
    if row.asked is not None:
        table = decode_clients(row.asked, count, row.num_asked)
        clients = table["client"]
        drawn[clients], work[clients] = table["multiplicity"], table["work"]
        asked_steps[clients], local_steps[clients] = table["asked_steps"], table["local_steps"]
        used[clients] = np.where(table["answered"], table["multiplicity"], 0)
        fresh[clients] = server_lr * table["coefficient"] * table["work"]
    stored = 0.0 if row.reused is None else server_lr * decode_floats(row.reused, count)
    return RoundFacts(
        counted=everyone if row.counted is None else decode_mask(row.counted, count),
        present=everyone if row.members is None else decode_mask(row.members, count),
        up=up,
        kept=up if row.kept is None else decode_mask(row.kept, count),
        drawn=drawn,
        used=used,
        asked_steps=asked_steps,
        local_steps=local_steps,
        work=work,
        fresh=fresh,
        total=fresh + stored,
    )


def stage_shares(facts: RoundFacts, sizes: Ids) -> list[Floats]:
    """Return r¹ … r⁷ of one round; each sums to one."""
    counted: Floats = np.where(facts.counted, sizes, 0).astype(np.float64)
    members = _normalised(counted * facts.present, _normalised(counted, np.ones(len(sizes)) / len(sizes)))
    available = _normalised(members * facts.up, members)
    kept = _normalised(available * facts.kept, available)
    selected = _normalised(members * facts.drawn, kept)
    used = _normalised(members * facts.used, selected)
    worked = _normalised(members * facts.used * facts.work, used)
    return [members, available, kept, selected, used, worked, _normalised(facts.fresh, worked)]


def _normalised(values: Floats, otherwise: Floats) -> Floats:
    """Return the values over their sum, or another weighting if they sum to nothing."""
    total = values.sum()
    return values / total if total > 0 else otherwise


class _Sums:
    """Sums over rounds."""

    def __init__(self, num_clients: int) -> None:
        self.scale = 0.0  # Σ_t λ_t
        self._stages = np.zeros((len(CAUSES), num_clients))
        self._rounds, self._steps, self._squares, self._square_scale = 0, 0, 0.0, 0.0
        self._times_up = np.zeros(num_clients, dtype=np.int64)
        self._draws, self._worked, self._square_worked = (np.zeros(num_clients) for _ in range(3))
        self._square_weights, self._cross = np.zeros(num_clients), np.zeros(num_clients)  # Σ w², Σ λ w

    def add(self, facts: RoundFacts, sizes: Ids) -> None:
        """Add a round."""
        self._rounds += 1
        self._times_up += facts.up
        self._draws += facts.used
        self._worked += facts.used * facts.work
        self._square_worked += (facts.used * facts.work) ** 2
        if not facts.total.any():
            return
        step = float(facts.total.sum())  # λ_t
        self._steps += 1
        self.scale += step
        self._stages[:-1] += step * np.array(stage_shares(facts, sizes))
        self._stages[-1] += facts.total
        self._squares += float(facts.total @ facts.total)
        self._square_weights += facts.total**2
        self._cross += step * facts.total
        self._square_scale += step**2

    def weights(self, asked: Floats) -> Weights:
        """Return the weights, given p."""
        stages = np.concatenate([asked[None], self._stages / self.scale])
        effective = stages[-1]
        squares = self._square_weights - 2 * effective * self._cross + effective**2 * self._square_scale
        return Weights(
            stages=stages,
            standard_errors=np.sqrt(np.maximum(squares, 0)) / self.scale,  # √Σ_t (w_i^t − λ_t p̃_i)² / Σ_t λ_t
            rounds=self._rounds,
            steps=self._steps,
            times_up=self._times_up,
            draws=self._draws,
            worked_draws=self._worked,
            square_worked_draws=self._square_worked,
            noise=self._squares / self.scale**2,
        )
