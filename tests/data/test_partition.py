from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator

from turnout.array_types import Ids
from turnout.data.partition import (
    Dirichlet,
    DirichletClient,
    Iid,
    KLabels,
    OneLabel,
    Pareto,
    Partition,
    Shards,
    __all__,
)
from turnout.data.partition.dirichlet import class_counts, topped_up
from turnout.data.partition.dirichlet_client import equal_counts
from turnout.data.partition.natural import by_id, id_names
from turnout.data.partition.pareto import level, pareto_sizes
from turnout.data.partition.splitting import counts_of, even_sizes
from turnout.errors import ConfigError, DataError
from turnout.streams import Streams

RULES = [
    Iid(),
    Dirichlet(concentration=0.5, min_size=1, top_up=True),
    DirichletClient(concentration=0.3),
    DirichletClient(concentration=0.3, balanced=False),
    Shards(),
    KLabels(labels_per_client=2),
    Pareto(min_size=1),
    OneLabel(),
    OneLabel(sizes=Pareto(min_size=2)),
]
COVERING = (Iid, Dirichlet, Shards, Pareto)  # these leave nothing out


def rng(seed: int = 0) -> Generator:
    return Streams(seed).generator("partition")


def table(parts: list[Ids], labels: Ids) -> Ids:
    classes = int(labels.max()) + 1
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def digits(n: int = 2000, classes: int = 10, seed: int = 1) -> Ids:
    return np.random.default_rng(seed).integers(0, classes, n)


def by_name(rule: Any) -> str:
    return repr(rule)


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_contract_parts_are_disjoint_positions_one_array_a_client(rule: Any) -> None:
    labels = digits()
    parts = rule.split(labels, 20, rng())
    pooled = np.concatenate(parts)
    assert len(parts) == 20
    assert all(part.dtype == np.int64 for part in parts)
    assert len(np.unique(pooled)) == len(pooled)
    assert pooled.min() >= 0
    assert pooled.max() < len(labels)


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_contract_same_stream_same_parts_and_another_stream_other_parts(rule: Any) -> None:
    labels = digits()
    once, again, other = (rule.split(labels, 20, rng(seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_contract_labels_are_not_changed_and_the_rule_is_a_partition(rule: Any) -> None:
    labels = digits()
    before = labels.copy()
    rule.split(labels, 20, rng())
    assert np.array_equal(labels, before)
    assert isinstance(rule, Partition)


def test_contract_every_listed_rule_is_under_test() -> None:
    assert {type(rule).__name__ for rule in RULES} == set(__all__)


@pytest.mark.parametrize("rule", RULES, ids=by_name)
def test_contract_no_client_is_refused(rule: Any) -> None:
    with pytest.raises((DataError, ConfigError), match=r"at least one client; got 0\. Set data\.clients"):
        rule.split(digits(), 0, rng())


@settings(max_examples=40)
@given(
    data=st.data(),
    rule=st.sampled_from(RULES[:8]),
    num_clients=st.integers(1, 12),
    classes=st.lists(st.integers(0, 60), min_size=2, max_size=6).filter(lambda counts: sum(n > 0 for n in counts) > 1),
)
def test_property_any_labels_give_disjoint_parts_or_a_message(
    data: st.DataObject, rule: Any, num_clients: int, classes: list[int]
) -> None:
    labels = data.draw(st.permutations(np.repeat(np.arange(len(classes)) * 3, classes).tolist()))
    labels = np.array(labels, dtype=np.int64)  # type: ignore[assignment]
    generator = rng(data.draw(st.integers(0, 99)))
    scarce = len(labels) < 3 * num_clients or isinstance(rule, OneLabel)  # the only reason to refuse
    try:
        parts = rule.split(labels, num_clients, generator)
    except (DataError, ConfigError):
        if not scarce:
            raise
        return
    pooled = np.concatenate(parts)
    assert len(parts) == num_clients
    assert len(np.unique(pooled)) == len(pooled)
    if isinstance(rule, COVERING) or (isinstance(rule, DirichletClient) and not rule.balanced):
        assert len(pooled) == len(labels)


# iid


def test_golden_iid_sizes_differ_by_one_at_most() -> None:
    assert [len(part) for part in Iid().split(digits(103), 10, rng())] == [11, 11, 11] + [10] * 7


def test_golden_iid_gives_the_sizes_asked_for_and_leaves_the_rest() -> None:
    parts = Iid(sizes=(5, 1, 30)).split(digits(100), 3, rng())
    assert [len(part) for part in parts] == [5, 1, 30]


def test_property_iid_mixture_is_the_pooled_one() -> None:
    labels = digits(20_000)
    shares = table(Iid().split(labels, 10, rng()), labels) / 2000
    assert np.abs(shares - np.bincount(labels) / 20_000).max() < 5 * np.sqrt(0.1 * 0.9 / 2000)


# class-wise Dirichlet


def test_golden_dirichlet_full_clients_get_no_more() -> None:
    totals = np.array([60, 60])  # two clients, sixty each is fair
    for seed in range(50):
        counts = class_counts(totals, 2, 0.2, rng(seed))
        full = counts[0] >= 60
        assert counts.sum(axis=1).tolist() == [60, 60]
        assert not counts[1, full].any()


def test_property_dirichlet_smaller_concentration_means_fewer_clients_share_a_class() -> None:
    labels = digits(20_000)
    effective = []
    for concentration in (0.1, 1.0, 100.0):
        rule = Dirichlet(concentration=concentration, min_size=1, top_up=True)
        shares = table(rule.split(labels, 20, rng()), labels) / np.bincount(labels)
        effective.append(float((1 / (shares**2).sum(axis=0)).mean()))  # how many clients hold a class, in effect
    assert effective[0] < effective[1] < effective[2]
    assert effective[0] < 5
    assert effective[2] > 15


def test_property_dirichlet_shares_of_the_first_class_have_dirichlet_moments() -> None:
    alpha, clients, draws = 0.5, 5, 2000
    generator = rng()
    counts = np.stack([class_counts(np.array([10_000, 1]), clients, alpha, generator)[0] for _ in range(draws)])
    shares = counts / 10_000
    mean, total = 1 / clients, alpha * clients
    variance = mean * (1 - mean) / (total + 1)
    assert np.abs(shares.mean(axis=0) - mean).max() < 5 * np.sqrt(variance / draws)
    assert np.abs(shares.var(axis=0) / variance - 1).max() < 0.2


def test_contract_dirichlet_gives_every_client_min_size() -> None:
    parts = Dirichlet(concentration=0.3).split(digits(5000), 20, rng())
    assert min(len(part) for part in parts) >= 10


def test_error_dirichlet_says_when_no_draw_is_good_enough() -> None:
    with pytest.raises(DataError, match=r"10 samples for every client \(min_size\); the best of 7 draws") as caught:
        Dirichlet(concentration=0.05, tries=7).split(digits(300), 25, rng())
    assert "Set partition.top_up = true, lower min_size" in str(caught.value)


def test_golden_dirichlet_top_up_takes_from_the_largest_client_and_class() -> None:
    counts = np.array([[9, 1, 0], [3, 0, 2]])  # sizes 12, 1, 2
    assert topped_up(counts, 3).tolist() == [[6, 3, 1], [3, 0, 2]]
    assert counts.tolist() == [[9, 1, 0], [3, 0, 2]]


def test_contract_dirichlet_top_up_keeps_every_sample_and_reaches_min_size() -> None:
    labels = digits(1797)
    parts = Dirichlet(concentration=0.1, tries=5, top_up=True).split(labels, 100, rng())
    assert min(len(part) for part in parts) == 10
    assert len(np.unique(np.concatenate(parts))) == 1797


def test_contract_dirichlet_ends_when_all_mass_is_on_full_clients() -> None:
    parts = Dirichlet(concentration=1e-9, min_size=0).split(digits(100, classes=10), 10, rng())
    assert sum(len(part) for part in parts) == 100


# client-wise Dirichlet


def test_contract_dirichlet_client_sizes_are_equal_and_the_remainder_is_left_out() -> None:
    parts = DirichletClient(concentration=0.1).split(digits(1003), 10, rng())
    assert {len(part) for part in parts} == {100}


def test_contract_dirichlet_client_ends_when_a_client_has_no_taste_for_what_is_left() -> None:
    tastes = np.array([[1.0, 0.0], [1.0, 0.0]])  # both want class 0 only, which has one sample
    counts = equal_counts(tastes, np.array([1, 9]), rng())
    assert counts.sum(axis=0).tolist() == [5, 5]
    assert counts.sum(axis=1).tolist() == [1, 9]


def test_golden_dirichlet_client_tastes_are_followed_while_samples_last() -> None:
    tastes = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    counts = equal_counts(tastes, np.array([10, 10, 0]), rng())
    assert counts.tolist() == [[10, 0], [0, 10], [0, 0]]


def test_property_dirichlet_client_frequencies_follow_the_tastes() -> None:
    tastes = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    counts = equal_counts(tastes, np.array([8000, 4000, 8000]), rng())  # what both want, in the mean
    assert np.abs(counts.T / 10_000 - tastes).max() < 0.03


def test_golden_dirichlet_client_unbalanced_splits_each_class_by_the_column_of_tastes() -> None:
    labels = np.repeat(np.arange(3), 4000)
    parts = DirichletClient(concentration=0.4, balanced=False).split(labels, 6, rng())
    generator = rng()
    generator.permutation(len(labels))  # the shuffle comes first
    tastes = generator.dirichlet(np.full(3, 0.4), size=6)
    expected = 4000 * tastes / tastes.sum(axis=0)
    assert np.abs(table(parts, labels) - expected).max() < 1.001


# shards


def test_golden_shards_mcmahan_two_shards_of_thirty() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
    parts = Shards().split(labels, 100, rng())
    counts = table(parts, labels)
    assert {len(part) for part in parts} == {60}
    assert set(counts.ravel().tolist()) == {0, 30, 60}  # 600 is 20 shards of 30: a shard never straddles two labels
    assert (counts > 0).sum(axis=1).max() == 2


def test_contract_shards_not_dealt_are_left_out() -> None:
    parts = Shards(per_client=1, num_shards=20).split(digits(200), 5, rng())
    assert [len(part) for part in parts] == [10] * 5


# k labels, one label


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_golden_k_labels_each_client_has_k_labels_shared_equally(k: int) -> None:
    labels = np.repeat(np.arange(10), 100)
    counts = table(KLabels(labels_per_client=k).split(labels, 10, rng()), labels)
    assert ((counts > 0).sum(axis=1) == k).all()
    assert (counts[np.arange(10), np.arange(10)] > 0).all()  # client i owns label i mod 10
    for label in range(10):
        shares = counts[counts[:, label] > 0, label]
        assert shares.max() - shares.min() <= 1
        assert shares.sum() == 100


def test_identity_k_labels_one_each_when_k_is_one() -> None:
    labels = np.repeat(np.arange(10), 7)
    assert np.array_equal(table(KLabels(labels_per_client=1).split(labels, 10, rng()), labels), 7 * np.eye(10))


def test_contract_k_labels_leaves_out_labels_nobody_owns() -> None:
    labels = np.repeat(np.arange(10), 7)
    parts = KLabels(labels_per_client=1).split(labels, 4, rng())
    assert sorted(set(labels[np.concatenate(parts)])) == [0, 1, 2, 3]


def test_contract_one_label_each_client_holds_one_and_owners_share_equally() -> None:
    labels = digits(5000)
    counts = table(OneLabel().split(labels, 40, rng()), labels)
    assert ((counts > 0).sum(axis=1) == 1).all()
    for label in np.flatnonzero(counts.sum(axis=0)):
        shares = counts[counts[:, label] > 0, label]
        assert shares.max() - shares.min() <= 1
        assert shares.sum() == (labels == label).sum()


def test_property_one_label_is_drawn_evenly() -> None:
    labels = np.repeat(np.arange(4), 5000)
    drawn = (table(OneLabel().split(labels, 2000, rng()), labels) > 0).sum(axis=0)
    assert np.abs(drawn - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_contract_one_label_with_pareto_sizes_keeps_their_shape_and_bounds() -> None:
    labels = np.repeat(np.arange(10), 1000)
    counts = table(OneLabel(sizes=Pareto(min_size=3)).split(labels, 60, rng()), labels)
    sizes = counts.sum(axis=1)
    assert ((counts > 0).sum(axis=1) == 1).all()
    assert sizes.min() >= 3
    assert sizes.max() <= 20 * (np.median(sizes) + 1)
    assert sizes.max() > 4 * np.median(sizes)
    assert 1000 - counts.sum(axis=0).max() < 60  # one label is used up, to rounding


# sizes


def test_property_pareto_sizes_sum_to_the_total_within_their_bounds() -> None:
    for seed in range(50):
        sizes = pareto_sizes(100, 20_000, rng(seed))
        assert sizes.sum() == 20_000
        assert sizes.min() >= 10
        assert sizes.max() <= 20 * (np.median(sizes) + 1)


def test_golden_pareto_uncapped_tail_is_why_there_is_a_cap() -> None:
    largest = [pareto_sizes(100, 100_000, rng(seed), cap=1e18, min_size=1).max() / 100_000 for seed in range(40)]
    capped = [pareto_sizes(100, 100_000, rng(seed)).max() / 100_000 for seed in range(40)]
    assert np.mean(largest) > 0.5
    assert max(capped) < 0.25


def test_identity_pareto_with_a_large_index_is_iid() -> None:
    sizes = pareto_sizes(30, 1000, rng(), index=1e9)
    assert sizes.max() - sizes.min() <= 1


def test_golden_level_by_hand() -> None:
    assert level(np.array([1.0, 1.0, 8.0]), 20, 2) == pytest.approx(2.0)  # 2, 2, 16
    assert level(np.array([1.0, 1.0, 8.0]), 14, 3) == pytest.approx(1.0)  # 3, 3, 8
    assert level(np.array([1.0, 1.0, 8.0]), 6, 2) == pytest.approx(0.25)  # 2, 2, 2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(lambda w: sum(w) > 0), st.integers(0, 1000))
def test_property_counts_follow_shares_and_sum_to_the_total(weights: list[float], total: int) -> None:
    shares = np.array(weights) / sum(weights)
    counts = counts_of(shares, total)
    assert counts.sum() == total
    assert np.abs(counts - shares * total).max() < 1 + 1e-6
    assert counts.min() >= 0


@given(st.integers(0, 1000), st.integers(1, 50))
def test_property_even_sizes_differ_by_one_at_most(total: int, parts: int) -> None:
    sizes = even_sizes(total, parts)
    assert sizes.sum() == total
    assert sizes.max() - sizes.min() <= 1


# natural ids


def test_golden_by_id_groups_in_rising_order_and_keeps_positions_in_order() -> None:
    ids = ["mary", "bob", "mary", "ann", "bob"]
    assert [part.tolist() for part in by_id(ids)] == [[3], [1, 4], [0, 2]]
    assert id_names(ids) == ("ann", "bob", "mary")
    assert by_id([]) == []


# messages


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Iid(sizes=(3, 0)), r"Iid needs sizes >= 1; got 0\. Change data\.partition\.sizes"),
        (lambda: Dirichlet(concentration=0.0), r"Dirichlet needs concentration > 0; got 0\.0\. Change data\.partition"),
        (lambda: Dirichlet(concentration=float("nan")), r"Dirichlet needs concentration to be a number; got nan"),
        (lambda: Dirichlet(concentration=1.0, tries=0), r"tries >= 1; got 0"),
        (lambda: DirichletClient(concentration=-1), r"DirichletClient needs concentration > 0; got -1"),
        (lambda: Shards(per_client=0), r"Shards needs per_client >= 1; got 0\. Change data\.partition\.per_client"),
        (lambda: KLabels(labels_per_client=0), r"KLabels needs labels_per_client >= 1; got 0\. Change data\.partition"),
        (lambda: Pareto(index=0), r"Pareto needs index > 0; got 0\. Change data\.partition\.index"),
        (lambda: Pareto(cap=0.5), r"cap >= 1; got 0\.5\. Change data\.partition\.cap"),
    ],
)
def test_error_impossible_settings_are_refused_at_once(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("rule", "clients", "message"),
    [
        (Iid(), 101, r"Iid needs 101 samples to give 101 clients 1 each; got 100\. Set data\.clients to 100 or less"),
        (Iid(sizes=(1, 2)), 3, r"Iid needs one size per client; got 2 sizes for 3 clients\. Set data\.clients to 2"),
        (Iid(sizes=(90, 20)), 2, r"Iid needs 110 samples for partition\.sizes; got 100\. Lower partition\.sizes"),
        (Dirichlet(concentration=1.0), 11, r"110 samples to give 11 clients 10 each; got 100.*or lower min_size"),
        (Pareto(), 11, r"Pareto needs 110 samples to give 11 clients 10 each; got 100"),
        (Shards(num_shards=5), 3, r"Shards needs num_shards >= clients x per_client; got 5 < 6\. Set partition"),
        (Shards(), 60, r"Shards needs at least one sample per shard; got 120 shards for 100 samples\. Lower partition"),
        (KLabels(labels_per_client=5), 3, r"KLabels needs labels_per_client <= 4, the number of labels; got 5"),
        (
            OneLabel(),
            100,
            r"OneLabel needs 1 samples for each of the \d+ clients that drew one label; the label has 25",
        ),
        (
            OneLabel(sizes=Pareto()),
            40,
            r"10 samples for each .* Use fewer clients, or lower partition\.sizes\.min_size",
        ),
    ],
)
def test_error_too_little_data_is_named_with_the_way_out(rule: Iid, clients: int, message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        rule.split(np.repeat(np.arange(4), 25), clients, rng())
