"""Encode a round's facts as a few bytes: which clients were up, and what each asked client did.

The set of clients that were up is stored in the smallest of these forms:

    everyone    one byte
    up, down    the gaps between the ids that are up (or down, if those are fewer), in the narrowest width that fits
    bitmap      one bit per client

A body above a thousand bytes is compressed if that makes it smaller. The first byte of a blob is the tag: bits 0
and 1 the form, bits 2 and 3 the width, bit 4 whether the body is compressed.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.errors import JournalError
from turnout.progress import Progress
from turnout.requests import Outcome, Record
from turnout.untrusted_input import MOST_LETTERS, name_of

EVERYONE, BITMAP, UP, DOWN = range(4)
WIDTHS = ("<u1", "<u2", "<u4", "<i8")
ZIPPED = 16
WORTH_ZIPPING = 1000  # bytes; below this, compressing takes longer than to write what it saves
MOST_CLIENTS = 1 << 25
MOST_BYTES = 8 * MOST_CLIENTS  # of an unpacked body whose length is not known from elsewhere
INTEGERS = ("client", "multiplicity", "asked_steps", "local_steps", "progress", "cut_off")
FLOATS = ("coefficient", "work", "loss", "seconds")
OUTCOMES = tuple(outcome.name.lower().replace("_", " ") for outcome in Outcome)  # as people read them
USED = (Outcome.COMPLETE, Outcome.PARTIAL)  # outcomes of jobs whose update was used
MOST_MEASURES = 16  # of clients' own models
MOST_ENTRY_BYTES = 8 * (len(INTEGERS) + len(FLOATS)) + 1  # per client that was asked


def pack(tag: int, body: bytes) -> bytes:
    """Return a blob: the tag, then the body, compressed if that makes it smaller."""
    if len(body) > WORTH_ZIPPING:
        zipped = zlib.compress(body, 1)
        if len(zipped) < len(body):
            return bytes((tag | ZIPPED,)) + zipped
    return bytes((tag,)) + body


def unpack(blob: bytes, most_bytes: int = MOST_BYTES) -> tuple[int, bytes]:
    """Return the tag, without the compression bit, and the unpacked body; raise if it is longer than `most_bytes`."""
    tag, body = blob[0], blob[1:]
    if not tag & ZIPPED:
        return tag, body
    unzip = zlib.decompressobj()
    body = unzip.decompress(body, most_bytes + 1)  # 0 would be any number
    if not unzip.eof or len(body) > most_bytes:
        raise ValueError("its compressed body breaks off, or is far too long")
    return tag & ~ZIPPED, body


@contextmanager
def _decoding() -> Iterator[None]:
    """Turn every error that decoding a malformed body can raise into one message."""
    try:
        yield
    except (ValueError, IndexError, TypeError, OverflowError, MemoryError, zlib.error) as error:
        raise JournalError(
            f"The journal holds bytes that turnout did not write ({error}); nothing was changed. "
            "Bring back a good copy, or run the study again in another output folder."
        ) from error


def width_of(values: NDArray[Any]) -> int:
    """Return the index in WIDTHS of the narrowest width that holds the values."""
    if not values.size:
        return 0
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 0xFFFFFFFF:
        return 3
    return 0 if high <= 0xFF else 1 if high <= 0xFFFF else 2


def encode_ids(ids: Ids, num_clients: int) -> bytes:
    """Return a set of client ids, ascending, as bytes."""
    if len(ids) == num_clients:
        return bytes((EVERYONE,))
    if len(ids) and (ids[0] < 0 or ids[-1] >= num_clients or not (ids[1:] > ids[:-1]).all()):
        raise JournalError(
            f"The journal needs the clients that are up in ascending order, each once, from 0 to {num_clients - 1}; "
            f"got {ids[:5].tolist()}… Sort them in the availability rule."
        )
    bitmap_bytes = (num_clients + 7) // 8
    if min(len(ids), num_clients - len(ids)) <= bitmap_bytes:
        kind, few = (UP, ids) if 2 * len(ids) <= num_clients else (DOWN, _others(ids, num_clients))
        gaps = few.copy()
        gaps[1:] -= few[:-1] + 1
        width = width_of(gaps)
        body = gaps.astype(WIDTHS[width]).tobytes()
        if len(body) <= bitmap_bytes:
            return pack(kind | width << 2, body)
    return pack(BITMAP, np.packbits(_mask(ids, num_clients)).tobytes())


def decode_ids(blob: bytes, num_clients: int) -> Ids:
    """Return the client ids that `encode_ids` packed."""
    return np.flatnonzero(decode_mask(blob, num_clients))


def decode_mask(blob: bytes, num_clients: int) -> NDArray[np.bool_]:
    """Return whether each client is among those that `encode_ids` packed."""
    with _decoding():
        if not 0 <= num_clients <= MOST_CLIENTS:
            raise ValueError(f"{num_clients} clients")
        tag, body = unpack(blob, 8 * num_clients)
        kind, width = tag & 3, tag >> 2
        if kind == EVERYONE:
            return np.ones(num_clients, dtype=np.bool_)
        if kind == BITMAP:
            return np.unpackbits(np.frombuffer(body, dtype=np.uint8), count=num_clients).view(np.bool_)
        few = np.cumsum(np.frombuffer(body, dtype=WIDTHS[width]).astype(np.int64) + 1) - 1
        if len(few) and (few[0] < 0 or few[-1] >= num_clients or not (few[1:] > few[:-1]).all()):
            raise ValueError(f"ids that are not those of {num_clients} clients")
        mask = _mask(few, num_clients)
        return mask if kind == UP else ~mask


def encode_clients(record: Record) -> bytes | None:
    """Return the facts of each asked client as bytes; None if no client was asked."""
    if not len(record.asked):
        return None
    progress = _progress(record)
    columns = (record.asked, record.multiplicity, record.asked_steps, record.local_steps, progress.steps)
    numbers = np.array((*columns, progress.cut_off))
    width = width_of(numbers)
    floats = np.array((record.coefficients, _work(record), record.losses, progress.seconds), dtype="<f8")
    outcomes = _outcomes(record).astype(np.uint8)
    return pack(width << 2, numbers.astype(WIDTHS[width]).tobytes() + outcomes.tobytes() + floats.tobytes())


def decode_clients(blob: bytes, num_clients: int, count: int) -> dict[str, NDArray[Any]]:
    """Return the facts that `encode_clients` packed: one array per fact, one entry per client that was asked.

    Args:
        blob: the packed facts.
        num_clients: number of clients in the round; ids outside 0 to num_clients − 1 are refused.
        count: number of clients asked; a blob of more or fewer is refused before it is unpacked further.
    """
    with _decoding():
        if not 0 <= count <= MOST_CLIENTS:
            raise ValueError(f"{count} clients asked")
        tag, body = unpack(blob, count * MOST_ENTRY_BYTES)
        kind = np.dtype(WIDTHS[tag >> 2])
        if len(body) != count * (len(INTEGERS) * kind.itemsize + 1 + 8 * len(FLOATS)):
            raise ValueError(f"other facts than those of {count} clients")
        numbers = np.frombuffer(body, dtype=kind, count=len(INTEGERS) * count).reshape(len(INTEGERS), count)
        rest = body[numbers.nbytes :]
        floats = np.frombuffer(rest[count:], dtype="<f8").reshape(len(FLOATS), count)
        outcomes = np.frombuffer(rest, dtype=np.uint8, count=count)
        if count and outcomes.max() > max(Outcome):
            raise ValueError("an unknown outcome of a job")
        if count and not 0 <= numbers[0].min() <= numbers[0].max() < num_clients:
            raise ValueError(f"ids that are not those of {num_clients} clients")
    return {
        **dict(zip(INTEGERS, numbers.astype(np.int64), strict=True)),
        "cut_off": numbers[INTEGERS.index("cut_off")] != 0,
        "outcome": outcomes.astype(np.int64),
        "answered": np.isin(outcomes, USED),
        **dict(zip(FLOATS, floats, strict=True)),
    }


def encode_counts(counts: Ids) -> bytes:
    """Return whole numbers, from 0 up, as bytes in the narrowest width that holds them."""
    width = width_of(counts)
    return pack(width << 2, counts.astype(WIDTHS[width]).tobytes())


def decode_counts(blob: bytes, most: int = MOST_CLIENTS) -> Ids:
    """Return the whole numbers that `encode_counts` packed, in one row; more than `most` are refused."""
    with _decoding():
        tag, body = unpack(blob, 8 * most)
        counts = np.frombuffer(body, dtype=WIDTHS[tag >> 2])
        if len(counts) > most:
            raise ValueError(f"more than {most} numbers")
        return counts.astype(np.int64)


def encode_floats(values: Floats | Ids | None) -> bytes | None:
    """Return numbers as bytes; None stays None."""
    return None if values is None else pack(0, np.asarray(values, dtype="<f8").tobytes())


def decode_floats(blob: bytes, count: int) -> Floats:
    """Return the numbers that `encode_floats` packed; raise unless there are `count` of them."""
    with _decoding():
        if not 0 <= count <= MOST_CLIENTS:
            raise ValueError(f"{count} numbers")
        values = np.frombuffer(unpack(blob, 8 * count)[1], dtype="<f8").astype(np.float64)
        if len(values) != count:
            raise ValueError(f"{len(values)} numbers in place of {count}")
        return values


def encode_measures(measures: Mapping[str, Floats]) -> bytes | None:
    """Return named numbers by client as bytes; None if there are none."""
    if not measures:
        return None
    values = np.concatenate([np.asarray(each, dtype="<f8") for each in measures.values()])
    return pack(0, "\n".join([*measures, ""]).encode() + b"\0" + values.tobytes())


def decode_measures(blob: bytes, count: int) -> dict[str, Floats]:
    """Return what `encode_measures` packed; raise unless there are `count` numbers of each name."""
    with _decoding():
        if not 0 <= count <= MOST_CLIENTS:
            raise ValueError(f"{count} numbers")
        body = unpack(blob, MOST_MEASURES * (8 * count + MOST_LETTERS))[1]
        head, _, numbers = body.partition(b"\0")
        names = head.decode().splitlines()
        values = np.frombuffer(numbers, dtype="<f8").astype(np.float64)
        if not names or len(set(names)) != len(names) or len(values) != len(names) * count:
            raise ValueError(f"{len(values)} numbers of {len(names)} measures of {count} clients")
        return dict(zip(names, values.reshape(len(names), count), strict=True))


def encode_texts(texts: Sequence[str] | None) -> bytes | None:
    """Return texts of one line each as bytes; None stays None."""
    return None if texts is None else pack(0, "\n".join(texts).encode())


def decode_texts(blob: bytes, count: int) -> tuple[str, ...]:
    """Return the texts that `encode_texts` packed; raise unless there are `count` of them."""
    with _decoding():
        texts = tuple(name_of(text) for text in unpack(blob, 4 * count * (MOST_LETTERS + 1))[1].decode().split("\n"))
        if len(texts) != count:
            raise ValueError(f"{len(texts)} texts for {count} clients")
        return texts


def _outcomes(record: Record) -> Ids:
    """Return the outcome of each asked client's job; a record without outcomes gets them from who answered."""
    if len(record.outcomes) == len(record.asked):
        return record.outcomes
    ended = np.where(record.local_steps < record.asked_steps, Outcome.PARTIAL, Outcome.COMPLETE)
    ended[~np.isin(record.asked, record.answered)] = Outcome.LOST
    ended[np.isin(record.asked, record.late)] = Outcome.LATE
    ended[np.isin(record.asked, list(record.rejected))] = Outcome.REJECTED
    return ended


def _work(record: Record) -> Floats:
    """Return the local work of each asked client; a record that does not say has one unit for each step."""
    return record.work if len(record.work) == len(record.asked) else record.local_steps.astype(np.float64)


def _progress(record: Record) -> Progress:
    """Return how far each asked client got; a record that does not say has the steps that were used."""
    if record.progress is not None:
        return record.progress
    count = len(record.asked)
    return Progress(
        clients=record.asked,
        steps=record.local_steps,
        seconds=np.full(count, np.nan),
        cut_off=np.zeros(count, dtype=bool),
    )


def _mask(ids: Ids, num_clients: int) -> NDArray[np.bool_]:
    mask = np.zeros(num_clients, dtype=np.bool_)
    mask[ids] = True
    return mask


def _others(ids: Ids, num_clients: int) -> Ids:
    return np.flatnonzero(~_mask(ids, num_clients))
