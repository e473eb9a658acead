"""Loaders of data that comes by person, writer or role: Shakespeare, HAPT, FEMNIST."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.optional import present
from tests.support.tasks import held_out_test_set, holdout_of, train_of
from turnout.data.femnist import Femnist, parse_leaf
from turnout.data.hapt import Hapt, Recording, read_npz, read_raw, read_recording, windows
from turnout.data.shakespeare import VOCABULARY, WINDOW, Shakespeare, encode, parse_play, read_roles
from turnout.errors import DataError
from turnout.streams import Streams

Real = Callable[..., str]
STREAMS = Streams(seed=7)
pytestmark = pytest.mark.usefixtures("nothing_is_downloaded")


# ------------------------------------------------------------------------------------------------ Shakespeare


def test_golden_the_vocabulary_has_leafs_80_symbols() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY) == 80
    assert encode("\n }é€\t").tolist() == [0, 1, 79, 1, 1, 1]


def test_golden_roles_are_parsed_in_order_and_their_lines_joined_by_spaces() -> None:
    text = "KING:\nOne line,\nand: two:\n\nFOOL:\nNay.\n\n\nKING:\nThree.\n"
    roles = parse_play(text, "a play", "lear")
    assert [role.name for role in roles] == ["lear: KING", "lear: FOOL"]
    assert roles[0].text == "One line, and: two: Three."
    assert roles[1].characters == 4


def test_error_a_block_without_a_name_is_shown() -> None:
    with pytest.raises(DataError, match=r"a play must hold blocks of a line `NAME:`.*starts with 'Exeunt'"):
        parse_play("KING:\nOne.\n\nExeunt\nall", "a play")


def write_plays(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for play in ("one", "two"):
        letters = rng.choice(list("abcdefgh"), size=(3, 600))
        blocks = [f"ROLE{role}:\n{''.join(letters[role])}" for role in range(3)]
        (folder / f"{play}.txt").write_text("\n\n".join(blocks) + "\n\nMUTE:\nshort\n")


def test_property_windows_stay_inside_one_stretch_of_one_role(tmp_path: Path) -> None:
    write_plays(tmp_path / "shakespeare-plays")
    folder = str(tmp_path)
    source = Shakespeare(edition="plays", folder=folder, min_characters=500, holdout=0.2, test_share=0.2)
    federation = source.build(STREAMS)
    roles = {role.name: role.text for role in read_roles("plays", folder)}
    assert federation.client_names == tuple(name for name in roles if "MUTE" not in name)
    assert federation.sizes.tolist() == [360 - 80] * 6
    assert holdout_of(federation).sizes.tolist() == [120 - 80] * 6
    assert len(held_out_test_set(federation)) == 6 * (120 - 80)
    for client, name in enumerate(federation.client_names):
        stretches = ((federation.train, 0), (federation.holdout, 360))
        for shares, start in stretches:
            mine = present(shares).of(client)  # type: ignore[attr-defined]
            for row in (0, len(mine) - 1):
                window = "".join(VOCABULARY[i] for i in mine.x[row]) + VOCABULARY[int(mine.y[row])]
                assert window == roles[name][start + row : start + row + WINDOW + 1]


def test_contract_stride_thins_the_windows_and_the_text_is_stored_once(tmp_path: Path) -> None:
    write_plays(tmp_path / "shakespeare-plays")
    source = Shakespeare(edition="plays", folder=str(tmp_path), min_characters=500, stride=10, test_share=0.0)
    federation = source.build(STREAMS)
    assert federation.sizes.tolist() == [52] * 6
    assert federation.test is None
    x = train_of(federation).x
    assert x.dtype == torch.int64
    assert x.shape == (6 * 600 - WINDOW, WINDOW)
    assert x.untyped_storage().nbytes() == 6 * 600 * 8


@pytest.mark.data
@pytest.mark.parametrize(
    ("edition", "folder", "roles", "talkers"),
    [("tiny", "tiny-shakespeare", 309, 141), ("plays", "shakespeare-plays", 1346, 637)],
)
def test_golden_both_editions_have_their_counted_roles(
    real: Real, edition: str, folder: str, roles: int, talkers: int
) -> None:
    everyone = read_roles(edition, real(folder))
    assert len(everyone) == roles
    assert sum(role.characters >= 1000 for role in everyone) == talkers
    assert sum(len(role.speeches) for role in everyone) == {"tiny": 7222, "plays": 30_913}[edition]


@pytest.mark.data
def test_contract_tiny_shakespeare_builds_with_a_keyed_subset_of_roles(real: Real) -> None:
    federation = Shakespeare(folder=real("tiny-shakespeare"), clients=5, stride=20).build(STREAMS)
    assert federation.num_clients == 5
    assert set(present(federation.client_names)) <= {role.name for role in read_roles("tiny", real())}
    assert federation.num_classes == 80


def test_error_no_role_says_enough(tmp_path: Path) -> None:
    write_plays(tmp_path / "shakespeare-plays")
    with pytest.raises(
        DataError, match=r"min_characters = 5000 and one training window of 80 \+ 1 characters; there is none"
    ):
        Shakespeare(edition="plays", folder=str(tmp_path), min_characters=5000).build(STREAMS)


def test_error_plays_that_are_nowhere_point_to_the_tiny_edition(nowhere: None) -> None:
    with pytest.raises(DataError, match=r'needs a folder with one \.txt file per play.*use edition = "tiny"'):
        Shakespeare(edition="plays").build(STREAMS)


# ------------------------------------------------------------------------------------------------ HAPT


def test_golden_windows_lie_inside_labelled_runs() -> None:
    label = np.repeat([1, -1, 2, 2, 7, 3], [200, 100, 130, 127, 300, 128])
    user = np.repeat([1, 1, 1, 2, 2, 2], [200, 100, 130, 127, 300, 128])  # the run of 2 is cut by the change of user
    signal = np.arange(len(label) * 6, dtype=np.float32).reshape(-1, 6)
    x, y, who = windows(Recording(signal, label, user, np.ones_like(label)), hop=64)
    assert y.tolist() == [0, 0, 1, 2]
    assert who.tolist() == [1, 1, 1, 2]
    assert x.shape == (4, 6, 128)
    first = np.array([0, 64, 300, 857])
    assert x[:, 0, 0].tolist() == (first * 6).tolist()
    assert x[:, 5, 127].tolist() == ((first + 127) * 6 + 5).tolist()


@pytest.mark.data
def test_golden_hapt_has_its_counted_windows(real: Real) -> None:
    recording = read_recording(real("hapt"))
    assert len(recording.label) == 1_122_772
    assert int((recording.label > 0).sum()) == 815_614
    _, y, who = windows(recording, hop=64)
    assert len(y) == 10_411
    counts = np.bincount(who)[1:]
    assert (len(counts), counts.min(), counts.max()) == (30, 284, 413)


@pytest.mark.data
def test_contract_hapt_tests_on_other_people_and_scales_by_the_training_people(real: Real) -> None:
    federation = Hapt(folder=real("hapt")).build(STREAMS)
    assert federation.num_clients == 21
    assert int(federation.sizes.sum()) + len(held_out_test_set(federation)) == 10_411
    x = train_of(federation).x
    assert x.mean((0, 2)).tolist() == pytest.approx([0.0] * 6, abs=1e-4)
    assert x.std((0, 2)).tolist() == pytest.approx([1.0] * 6, abs=1e-4)
    assert held_out_test_set(federation).x.mean((0, 2)).abs().max() > 1e-2


@pytest.mark.data
def test_identity_the_published_folder_of_hapt_reads_as_the_packed_file_does(real: Real, tmp_path: Path) -> None:
    packed = read_npz(Path(real("hapt")) / "hapt" / "hapt_raw.npz")
    mine = packed.experiment <= 2
    runs = []
    for experiment in (1, 2):
        rows = np.flatnonzero(packed.experiment == experiment)
        user = packed.user[rows[0]]
        for sensor, columns in (("acc", slice(0, 3)), ("gyro", slice(3, 6))):
            path = tmp_path / f"{sensor}_exp{experiment:02d}_user{user:02d}.txt"
            np.savetxt(path, packed.signal[rows, columns], fmt="%.9g")
        label = packed.label[rows]
        edges = np.concatenate([[0], np.flatnonzero(np.diff(label)) + 1, [len(label)]])
        runs += [(experiment, user, label[low], low + 1, high) for low, high in pairwise(edges) if label[low] > 0]
    np.savetxt(tmp_path / "labels.txt", np.array(runs), fmt="%d")
    published = read_raw(tmp_path)
    assert np.array_equal(published.signal, packed.signal[mine])
    assert np.array_equal(published.label, packed.label[mine])
    assert np.array_equal(published.user, packed.user[mine])


def test_error_hapt_refuses_pickles_bombs_and_other_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hapt_raw.npz"
    arrays: dict[str, Any] = {name: np.zeros(4, dtype=np.int8) for name in ("label", "user", "experiment")}
    np.savez(path, signal=np.array([{}, {}], dtype=object), scale=np.ones(6), **arrays, allow_pickle=True)
    with pytest.raises(DataError, match=r"hapt_raw\.npz is damaged or is another file: .*allow_pickle=False"):
        read_npz(path)
    np.savez(path, signal=np.zeros((4, 5), dtype=np.int16), scale=np.ones(6), **arrays)
    with pytest.raises(DataError, match=r"must hold 6 channels and one label, .*got signal \(4, 5\)"):
        read_npz(path)
    monkeypatch.setattr("turnout.data.hapt.MAX_BYTES", 100_000)
    np.savez_compressed(path, signal=np.zeros(1_000_000, dtype=np.int8))
    with pytest.raises(DataError, match=r"must unpack to at most 100,000 bytes; it unpacks to 1,000,"):
        read_npz(path)
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"damaged or is another file: File is not a zip file"):
        read_npz(path)


@pytest.mark.parametrize(
    ("labels", "gyro", "message"),
    [
        ("1 1 5 1 9\n", "0 0 0\n" * 4, r"must name samples 1…4 of acc_exp01_user01\.txt; got 1…9"),
        ("1 1 5 1 4\n", "0 0 0\n" * 3, r"must have equally many lines; got 4 and 3"),
        ("1 1 five 1 4\n", "0 0 0\n" * 4, r"labels\.txt must hold 5 numbers a line"),
        ("1 2 5 1 4\n", "0 0 0\n" * 4, r"acc_exp01_user02\.txt cannot be read: No such file"),
    ],
)
def test_error_a_damaged_folder_of_hapt_is_explained(tmp_path: Path, labels: str, gyro: str, message: str) -> None:
    (tmp_path / "labels.txt").write_text(labels)
    (tmp_path / "acc_exp01_user01.txt").write_text("0 0 0\n" * 4)
    (tmp_path / "gyro_exp01_user01.txt").write_text(gyro)
    with pytest.raises(DataError, match=message):
        read_raw(tmp_path)


def test_error_hapt_that_is_nowhere_says_what_to_unpack_where(nowhere: None) -> None:
    with pytest.raises(
        DataError, match=r"HAPT needs hapt_raw\.npz or the folder RawData.*Looked in: .*UCI's data set 341"
    ):
        Hapt().build(STREAMS)


# ------------------------------------------------------------------------------------------------ FEMNIST


def leaf(users: dict[str, list[int]], value: float = 0.5) -> str:
    data = {user: {"x": [[value] * 784 for _ in labels], "y": labels} for user, labels in users.items()}
    return json.dumps({"users": list(users), "num_samples": [len(y) for y in users.values()], "user_data": data})


@pytest.mark.parametrize("inner", ["data", "."])
def test_golden_femnist_makes_each_writer_a_client(tmp_path: Path, inner: str) -> None:
    for part, files in {
        "train": [{"f02": [61, 0], "f00": [5]}, {"f01": [1, 1, 2]}],
        "test": [{"f00": [7], "f01": [8]}],
    }.items():
        folder = tmp_path / "femnist" / inner / part
        folder.mkdir(parents=True)
        for number, users in enumerate(files):
            (folder / f"all_data_{number}.json").write_text(leaf(users))
    federation = Femnist(folder=str(tmp_path)).build(STREAMS)
    assert federation.client_names == ("f00", "f01", "f02")
    assert [train_of(federation).of(client).y.tolist() for client in range(3)] == [[5], [1, 1, 2], [61, 0]]
    assert held_out_test_set(federation).y.tolist() == [7, 8]
    assert federation.example_shape == (1, 28, 28)
    assert Femnist(folder=str(tmp_path), clients=2).build(STREAMS).num_clients == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"must be LEAF's JSON with users, num_samples and user_data: JSONDecodeError"),
        ('{"users": []}', r"KeyError 'num_samples'"),
        ('{"users": ["a"], "num_samples": [], "user_data": {}}', r"ValueError zip"),
        (leaf({"a": [1]}).replace('"num_samples": [1]', '"num_samples": [2]'), r"must hold 2 images of 784 values"),
        (leaf({"a": [62]}), r"labels in 0…61; writer a has values 0\.5…0\.5 and labels 62…62"),
        (leaf({"a": [1]}, value=float("nan")), r"must hold values in \[0, 1\]"),
        ("[" * 100_000, r"must be LEAF's JSON"),
    ],
)
def test_error_a_malformed_leaf_file_is_explained(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_leaf(text.encode(), "all_data.json")


def test_error_a_writer_in_two_files_is_noticed(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        for number in range(2):
            (tmp_path / part / f"{number}.json").write_text(leaf({"f00": [1]}))
    with pytest.raises(DataError, match=r"1\.json holds writer f00 again"):
        Femnist(folder=str(tmp_path)).build(STREAMS)


def test_error_femnist_that_is_nowhere_says_how_to_make_it(nowhere: None) -> None:
    with pytest.raises(
        DataError, match=r"FEMNIST needs data/train/\*\.json and data/test/\*\.json.*LEAF's data/femnist"
    ):
        Femnist().build(STREAMS)
