"""Shakespeare: predict the next character of a role; a client is one speaking role.

Inputs are 80 characters as int64 numbers of LEAF's vocabulary of 80 symbols, the target is the character after them.
As in LEAF, lines and speeches of a role are joined by a space and windows start at every character (`stride` = 1).
The last stretch of each role is the global test set, and the stretch before it that role's own hold-out: no test
window shares a character with a training window. Windows are views of the text, so the text is stored once.

    role  ──── training ────│── holdout ──│── test ──

Two editions: "tiny" (one file, one client a name: a First Citizen in two plays is one client) and "plays" (a folder
with one file a play, one client a name and play, as LEAF has it). Both hold blocks `NAME:`, the lines, a blank line.

Differs from the paper: LEAF's source is another edition, so its 1,129 roles are not these; characters outside the
vocabulary become spaces.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629; Caldas et al. LEAF. 2018. arXiv:1812.01097.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.assemble import assemble, shared
from turnout.data.federation import Federation, Samples
from turnout.data.files import DataSet, File, find_folder, read
from turnout.data.loading import kept
from turnout.errors import ConfigError, DataError
from turnout.limits import read_bounded
from turnout.settings import Clients, Count, CountOrZero, ShareBelowOne, rule
from turnout.streams import Streams

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80  # characters
MAX_PLAY_BYTES = 4_000_000
TINY = DataSet(title="tiny-shakespeare", folders=("tiny-shakespeare",))
TINY_FILE = File(
    name="input.txt",
    size=1_115_394,
    digest="sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
)
PLAYS = DataSet(
    title="Shakespeare's plays",
    folders=("shakespeare-plays",),
    advice='No such folder is published; make it from any edition, or use edition = "tiny", which is downloaded.',
)


class Role(NamedTuple):
    """One speaking role and all it says."""

    name: str
    speeches: list[str]

    @property
    def characters(self) -> int:
        """The number of characters spoken, line ends included."""
        return sum(map(len, self.speeches))

    @property
    def text(self) -> str:
        """All lines and speeches, joined by single spaces."""
        return " ".join(" ".join(self.speeches).split())


class Stretches(NamedTuple):
    """Where the windows of one role start."""

    train: Ids
    holdout: Ids
    test: Ids


def parse_play(text: str, where: str, play: str = "") -> list[Role]:
    """Return the roles of one file in the order in which they first speak."""
    roles: dict[str, list[str]] = {}
    for block in filter(None, (block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n"))):
        head, _, speech = block.partition("\n")
        if not head.endswith(":"):
            raise DataError(
                f"{where} must hold blocks of a line `NAME:` and the spoken lines, parted by blank lines; "
                f"got a block that starts {head[:40]!r}. Correct that block."
            )
        roles.setdefault(head[:-1], []).append(speech)
    return [Role(f"{play}: {name}" if play else name, speeches) for name, speeches in roles.items()]


def read_roles(edition: str, folder: str | None) -> list[Role]:
    """Return every role of an edition."""
    if edition == "tiny":
        return parse_play(read(TINY, (TINY_FILE,), folder)[TINY_FILE.name].decode(), TINY_FILE.name)
    place = find_folder(PLAYS, folder, needs="a folder with one .txt file a play", holds=_holds_plays)
    roles: list[Role] = []
    for path in _plays(place):
        roles += parse_play(read_bounded(path, MAX_PLAY_BYTES).decode("utf-8-sig", "replace"), str(path), path.stem)
    return roles


def _plays(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("*.txt") if path.name != TINY_FILE.name)


def _holds_plays(place: Path) -> bool:
    return place.is_dir() and any(_plays(place))


def encode(text: str) -> NDArray[np.int64]:
    """Return each character's place in the vocabulary; others count as spaces."""
    table = np.full(256, VOCABULARY.index(" "), dtype=np.int64)
    table[np.frombuffer(VOCABULARY.encode("ascii"), dtype=np.uint8)] = np.arange(len(VOCABULARY))
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    codes: NDArray[np.int64] = table[np.minimum(points, 255)]
    return codes


@rule("data")
class Shakespeare:
    """Next-character prediction, a client a role."""

    edition: Literal["tiny", "plays"] = "tiny"  # one file of some plays, or the folder of all plays
    clients: Clients | None = None  # a keyed subset of the roles; left out, all
    stride: Count = 1  # characters between the starts of two windows
    min_characters: CountOrZero = 1000  # roles that say less are left out
    test_share: ShareBelowOne = 0.1  # of each role's text, its end
    holdout: ShareBelowOne = 0.0  # of each role's text, before the test stretch
    server_samples: CountOrZero = 0  # how many the server holds, taken from the clients
    folder: str | None = None  # where its files are; left out: TURNOUT_DATA, then the cache, then a download

    def __post_init__(self) -> None:
        if self.test_share + self.holdout >= 1.0:
            raise ConfigError(
                f"Shakespeare needs test_share + holdout < 1; got {self.test_share} and {self.holdout}. "
                "Change data.test_share or data.holdout."
            )

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        roles = self._chosen(streams)
        texts = [encode(role.text) for role in roles]
        ends = np.cumsum([len(text) for text in texts])
        stretches = [self._stretches(int(end) - len(text), len(text)) for end, text in zip(ends, texts, strict=True)]
        letters = torch.from_numpy(np.concatenate(texts))
        store = Samples(letters.unfold(0, WINDOW, 1)[:-1], letters[WINDOW:])  # row i: the window that starts at i
        test = torch.from_numpy(np.concatenate([part.test for part in stretches]))
        federation = assemble(
            name=f"shakespeare-{self.edition}",
            store=store,
            parts=[part.train for part in stretches],
            streams=streams,
            test=Samples(store.x[test], store.y[test]) if len(test) else None,
            server_samples=self.server_samples,
            num_classes=len(VOCABULARY),
            client_names=tuple(role.name for role in roles),
        )
        if self.holdout == 0.0:
            return federation
        sizes = np.array([len(part.holdout) for part in stretches], dtype=np.int64)
        return replace(federation, holdout=shared(store, np.concatenate([p.holdout for p in stretches]), sizes))

    def _chosen(self, streams: Streams) -> list[Role]:
        """Return the roles that say enough, or the keyed subset of them."""
        enough = [
            role
            for role in read_roles(self.edition, self.folder)
            if role.characters >= self.min_characters and len(self._stretches(0, len(role.text)).train)
        ]
        if not enough:
            raise DataError(
                f"Shakespeare needs a role with min_characters = {self.min_characters} and one training window of "
                f"{WINDOW} + 1 characters; there is none. Lower data.min_characters, data.test_share or data.holdout."
            )
        rows = kept(len(enough), self.clients, streams, purpose="clients", what=f"roles in edition {self.edition}")
        return [enough[row] for row in rows]

    def _stretches(self, start: int, length: int) -> Stretches:
        """Return where windows start in a text of this length: each lies, with its target, inside one stretch."""
        test = start + length - int(self.test_share * length)
        holdout = test - int(self.holdout * length)
        edges = ((start, holdout), (holdout, test), (test, start + length))
        return Stretches(*(np.arange(low, max(low, high - WINDOW), self.stride) for low, high in edges))
