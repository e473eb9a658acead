"""Shakespeare: prediction of the next character; each speaking role is a client.

Inputs are windows of 80 characters as int64 indices into LEAF's vocabulary of 80 symbols. The target is the character
after the window. As in LEAF, the lines and speeches of a role are joined by a space, and a window starts at every
character (`stride` = 1). The end of each role's text is in the global test set, and the part before it is the role's
own hold-out. No test window shares a character with a training window. Windows are views of the text, so the text is
stored once.

    role  ──── training ────│── holdout ──│── test ──

There are two editions. In "tiny", one file, a client is a name: a First Citizen of two plays is one client. In "plays",
a folder with one file per play, a client is a name in a play, as in LEAF. Files of both editions are blocks of a line
`NAME:`, the spoken lines, and a blank line.

Differs from the paper: LEAF uses another edition with 1,129 roles. Characters outside the vocabulary become
spaces.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629; Caldas et al. LEAF. 2018. arXiv:1812.01097.
"""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.assemble import assemble, shared
from turnout.data.federation import Federation, Samples
from turnout.data.files import DataSet, File, find_folder, read
from turnout.data.loading import random_subset
from turnout.errors import ConfigError, DataError
from turnout.limits import read_bounded
from turnout.settings import Clients, Count, CountOrZero, ShareBelowOne, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80  # length of an input in characters
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
    """One speaking role and its speeches."""

    name: str
    speeches: list[str]

    @property
    def characters(self) -> int:
        """Number of characters, line ends included."""
        return sum(map(len, self.speeches))

    @property
    def text(self) -> str:
        """All lines and speeches, joined by single spaces."""
        return " ".join(" ".join(self.speeches).split())


class WindowStarts(NamedTuple):
    """Positions at which the windows of one role start."""

    train: Ids  # training windows
    holdout: Ids  # hold-out windows
    test: Ids  # windows of the global test set


def parse_play(text: str, where: str, play: str = "") -> list[Role]:
    """Return the roles of one file in the order of their first speech."""
    roles: dict[str, list[str]] = {}
    for block in filter(None, (block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n"))):
        head, _, speech = block.partition("\n")
        if not head.endswith(":"):
            raise DataError(
                f"{where} must hold blocks of a line `NAME:` and the spoken lines, separated by blank lines; "
                f"got a block that starts with {head[:40]!r}. Correct that block."
            )
        roles.setdefault(head[:-1], []).append(speech)
    return [Role(f"{play}: {name}" if play else name, speeches) for name, speeches in roles.items()]


def read_roles(edition: str, folder: str | None) -> list[Role]:
    """Return every role of an edition."""
    if edition == "tiny":
        return parse_play(read(TINY, (TINY_FILE,), folder)[TINY_FILE.name].decode(), TINY_FILE.name)
    place = find_folder(PLAYS, folder, needs="a folder with one .txt file per play", holds=_holds_plays)
    roles: list[Role] = []
    for path in _plays(place):
        roles += parse_play(read_bounded(path, MAX_PLAY_BYTES).decode("utf-8-sig", "replace"), str(path), path.stem)
    return roles


def _plays(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("*.txt") if path.name != TINY_FILE.name)


def _holds_plays(place: Path) -> bool:
    return place.is_dir() and any(_plays(place))


def encode(text: str) -> NDArray[np.int64]:
    """Return the index of each character in the vocabulary; characters outside it become spaces."""
    table = np.full(256, VOCABULARY.index(" "), dtype=np.int64)
    table[np.frombuffer(VOCABULARY.encode("ascii"), dtype=np.uint8)] = np.arange(len(VOCABULARY))
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    codes: NDArray[np.int64] = table[np.minimum(points, 255)]
    return codes


@rule("data")
class Shakespeare:
    """Next-character prediction; each role is a client."""

    # source of the text: "tiny" is one file that is downloaded (usual), "plays" a folder with one file per play
    edition: Literal["tiny", "plays"] = "tiny"
    clients: Clients | None = None  # number of clients N, a random subset of the roles, 1 or more; none is all roles
    stride: Count = 1  # characters between the starts of two windows, 1 or more; 1 is usual
    min_characters: CountOrZero = 1000  # smallest number of characters of a role that is a client, 0 or more
    test_share: ShareBelowOne = 0.1  # fraction of each role's text in the test set, 0 to below 1; 0.1 is usual
    holdout: ShareBelowOne = 0.0  # fraction of each role's text in its own hold-out, 0 to below 1; 0.1 is usual
    server_samples: CountOrZero = 0  # number of samples moved from the clients to the server, 0 or more; 100 is usual
    # number of inputs, without labels, moved from the clients to the public set, 0 or more; 100 to 5000 is usual
    public_samples: CountOrZero = 0
    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache, and then downloads the "tiny" edition
    folder: str | None = None

    def __post_init__(self) -> None:
        if self.test_share + self.holdout >= 1.0:
            raise ConfigError(
                f"Shakespeare needs test_share + holdout < 1; got {self.test_share} and {self.holdout}. "
                "Change data.test_share or data.holdout.",
                setting="data.test_share",
            )

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(WINDOW,), outputs=len(VOCABULARY), is_index=True)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        roles = self._roles(streams)
        texts = [encode(role.text) for role in roles]
        ends = np.cumsum([len(text) for text in texts])
        starts = [self._window_starts(int(end) - len(text), len(text)) for end, text in zip(ends, texts, strict=True)]
        letters = torch.from_numpy(np.concatenate(texts))
        store = Samples(letters.unfold(0, WINDOW, 1)[:-1], letters[WINDOW:])  # row i: the window that starts at i
        test = torch.from_numpy(np.concatenate([part.test for part in starts]))
        federation = assemble(
            name=f"shakespeare-{self.edition}",
            store=store,
            parts=[part.train for part in starts],
            streams=streams,
            test=Samples(store.x[test], store.y[test]) if len(test) else None,
            server_samples=self.server_samples,
            public_samples=self.public_samples,
            num_classes=len(VOCABULARY),
            client_names=tuple(role.name for role in roles),
        )
        if self.holdout == 0.0:
            return federation
        sizes = np.array([len(part.holdout) for part in starts], dtype=np.int64)
        return replace(federation, holdout=shared(store, np.concatenate([p.holdout for p in starts]), sizes))

    def _roles(self, streams: Streams) -> list[Role]:
        """Return the roles with enough text, or a random subset of them."""
        enough = [
            role
            for role in read_roles(self.edition, self.folder)
            if role.characters >= self.min_characters and len(self._window_starts(0, len(role.text)).train)
        ]
        if not enough:
            raise DataError(
                f"Shakespeare needs a role with min_characters = {self.min_characters} and one training window of "
                f"{WINDOW} + 1 characters; there is none. Lower data.min_characters, data.test_share or data.holdout."
            )
        rows = random_subset(
            len(enough), self.clients, streams, purpose="clients", what=f"roles in edition {self.edition}"
        )
        return [enough[row] for row in rows]

    def _window_starts(self, start: int, length: int) -> WindowStarts:
        """Return where windows start in a text of this length; a window and its target lie within one part."""
        test = start + length - int(self.test_share * length)
        holdout = test - int(self.holdout * length)
        edges = ((start, holdout), (holdout, test), (test, start + length))
        return WindowStarts(*(np.arange(low, max(low, high - WINDOW), self.stride) for low, high in edges))
