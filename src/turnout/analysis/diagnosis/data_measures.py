"""How the data differs between clients, and how it goes with who is available."""

import numpy as np

from turnout.analysis.audit.weights import Weights
from turnout.analysis.diagnosis.estimate import Estimate, Measure
from turnout.analysis.diagnosis.prober import Prober
from turnout.array_types import Floats, Ids
from turnout.protocols import Population
from turnout.streams import Streams

SHUFFLES = 200  # of the availability over clients, for what chance gives


def data_measures(prober: Prober, population: Population, pilot: Weights) -> list[Measure]:
    """Return label and feature divergence, and how availability goes with sizes and labels."""
    available = pilot.times_up / pilot.rounds
    sizes = size_correlation(available, population.sizes)
    found = [Measure("availability and data size", "corr", sizes, "correlation of availability with sample counts")]
    if population.label_counts is not None:
        counts = np.asarray(population.label_counts)
        divergence = Estimate(label_divergence(counts, population.weights))
        found.append(Measure("label divergence", "½‖q_i − q‖₁", divergence, "mean total variation of labels"))
        shift, chance = availability_shift(counts, available, prober.streams)
        meaning = f"shift of the labels by who is available; chance gives {chance:.2g}"
        found.append(Measure("labels by availability", "½‖q_a − q‖₁", shift, meaning))
    moments = _moments(prober)
    if moments is not None:
        share = Estimate(feature_divergence(*moments, prober.sizes))
        found.append(Measure("feature divergence", "between/total", share, "share of input variance between clients"))
    return found


def label_divergence(label_counts: Ids, weights: Floats) -> float:
    """Return Σ p_i ½ ‖q_i − q‖₁ of the clients' label distributions q_i from their mean q = Σ p_i q_i."""
    shares = label_counts / np.maximum(label_counts.sum(1, keepdims=True), 1)
    return float(weights @ (0.5 * np.abs(shares - weights @ shares).sum(1)))


def feature_divergence(means: Floats, squares: Floats, sizes: Ids) -> float:
    """Return the share of the variance of inputs that lies between clients: 0 if all have the same mean.

    Args:
        means: (clients, features), the mean input of each client.
        squares: (clients, features), the mean of its squared inputs.
        sizes: number of samples of each client.
    """
    weights = sizes / sizes.sum()
    centre = weights @ means
    between = float((weights @ (means - centre) ** 2).sum())
    total = float((weights @ squares - centre**2).sum())
    return between / total if total > 0 else 0.0


def availability_shift(label_counts: Ids, availability: Floats, streams: Streams) -> tuple[Estimate, float]:
    """Return how far availability shifts the label distribution, and what chance gives on average.

    The shift is ½ ‖q_a − q‖₁ of the labels weighted by availability from those of all samples; its error is that over
    shuffles of the availability among clients.
    """

    def shift(values: Floats) -> float:
        seen = values @ label_counts
        if not seen.sum() > 0:
            return 1.0
        return float(0.5 * np.abs(seen / seen.sum() - label_counts.sum(0) / label_counts.sum()).sum())

    rng = streams.generator("availability-shift")
    by_chance = np.array([shift(rng.permutation(availability)) for _ in range(SHUFFLES)])
    return Estimate(shift(availability), float(by_chance.std(ddof=1))), float(by_chance.mean())


def size_correlation(availability: Floats, sizes: Ids) -> Estimate:
    """Return Pearson's correlation of availability with data size; 0 if one of them does not vary."""
    if np.ptp(availability) == 0 or np.ptp(sizes) == 0:
        return Estimate(0.0)
    value = float(np.corrcoef(availability, sizes)[0, 1])
    return Estimate(value, ((1 - value**2) / max(len(sizes) - 2, 1)) ** 0.5)


def _moments(prober: Prober) -> tuple[Floats, Floats] | None:
    """Return the mean input and the mean squared input of each measured client; None if inputs are not numbers."""
    slab = prober.task.federation.train.fetch(prober.clients)
    if not slab.x.is_floating_point():
        return None
    means, squares = [], []
    for start, size in zip(slab.starts.tolist(), slab.sizes.tolist(), strict=True):
        rows = slice(start, start + size) if slab.order is None else slab.order[start : start + size]
        own = slab.x[rows].flatten(1).double()
        means.append(own.mean(0).cpu().numpy())
        squares.append(own.square().mean(0).cpu().numpy())
    return np.array(means), np.array(squares)
