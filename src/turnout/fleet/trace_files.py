"""Trace files: reading and writing availability traces in one strict format.

One row per interval, as CSV, or as Parquet where pyarrow is installed (`pip install "turnout[parquet]"`):

    client,start,end,state
    0,0,1800,up
    0,1800,9000,down
    1,600,4200,evaluate

`client` is a whole number from 0. `start` and `end` are seconds, start included, end excluded. `state` is `up`,
`evaluate` or `down`; a client is down at all times without a row. Rows of one client are in the order of time and do
not overlap; rows of different clients may be mixed. The largest `end` is the length of the trace, so a last row `down`
extends a trace.
"""

import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from turnout.errors import DataError
from turnout.fleet.traces import MOST_CLIENTS, STATES, Codes, Intervals, Origin, Trace

if TYPE_CHECKING:
    import pandas as pd  # half a second to import: at run time only where a trace is read or written

COLUMNS = ("client", "start", "end", "state")
PARQUET = (".parquet", ".pq")
MOST_BYTES = 1 << 31
MOST_LINE_BYTES = 1 << 16
MOST_ENTRIES = 400_000_000  # limit for Parquet, where a small file can unpack to very many entries
INSTALL = 'needs pyarrow. Install it with `pip install "turnout[parquet]"`'


def read_trace(path: str | Path, num_clients: int | None = None) -> Trace:
    """Read a trace; raise DataError if it has more clients than `num_clients`. An unchanged file is read once."""
    file = Path(path).expanduser()
    try:
        stamp = file.stat()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise DataError(
            f"There is no trace {path}. Name a CSV or Parquet file with the columns {', '.join(COLUMNS)}, or make one "
            "with `turnout trace convert`."
        ) from error
    return _read(file, stamp.st_mtime_ns, stamp.st_size, num_clients)


@lru_cache(maxsize=4)
def _read(file: Path, modified: int, size: int, num_clients: int | None) -> Trace:
    is_parquet = file.suffix.lower() in PARQUET
    _check_lines(file, size, is_parquet)
    frame = _parquet(file) if is_parquet else _csv(file)
    origin = Origin(str(file), "row", 1) if is_parquet else Origin(str(file), "line", 2)
    codes = _state_codes(frame["state"])
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        got = _shown(frame["state"].iloc[row])
        raise DataError(
            f"{origin.place(row)}: the state must be one of {', '.join(STATES)}; got {got}. "
            "Correct the trace; nothing of it was used."
        )
    clients, starts, ends = (frame[name].to_numpy() for name in COLUMNS[:3])
    return Trace.of(Intervals(clients, starts, ends, codes), num_clients, origin)


def _check_lines(file: Path, size: int, is_parquet: bool) -> None:
    """Raise if the path is not a file, or the file is too large, or it is text without line ends."""
    if not file.is_file():
        raise DataError(f"{file} must be a CSV or Parquet file; it is something else. Name the file itself.")
    if file.suffix.lower() == ".json":
        raise DataError(
            f"{file} must be a CSV or Parquet file; it is JSON. If it is a recording of FLASH or FedScale, make a "
            f"trace of it with `turnout trace convert {file} -o {file.stem}.csv`."
        )
    if size > MOST_BYTES:
        raise DataError(f"{file} must have at most {MOST_BYTES:,} bytes; it has {size:,}. Split the trace.")
    try:
        with file.open("rb") as stream:
            while not is_parquet and len(block := stream.read(MOST_LINE_BYTES)) == MOST_LINE_BYTES:
                if b"\n" not in block:
                    raise DataError(
                        f"{file} must have lines of at most {MOST_LINE_BYTES:,} bytes; one is longer. Is it a trace?"
                    )
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}. Check its permissions.") from error


def _state_codes(states: "pd.Series[str]") -> Codes:
    """Return the code of each state; -1 for an unknown state."""
    words = states.astype("category").cat
    codes = [STATES.index(word) if word in STATES else -1 for word in words.categories]
    return np.array([*codes, -1], dtype=np.int8)[words.codes.to_numpy()]  # the last entry is for missing values


def _csv(file: Path) -> "pd.DataFrame":
    import pandas as pd

    kinds = {"client": np.int64, "start": np.float64, "end": np.float64, "state": "category"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are too long
            warnings.simplefilter("error", RuntimeWarning)  # ids that are not whole numbers
            head = pd.read_csv(file, nrows=0, encoding="utf-8-sig", compression=None, skip_blank_lines=False)
            _need_columns(f"{file}, line 1", list(head.columns))
            rules = {
                "encoding": "utf-8-sig",
                "compression": None,  # otherwise a name like x.csv.gz could unpack to a very large file
                "index_col": False,
                "skip_blank_lines": False,
                "keep_default_na": False,
                "na_values": [""],
            }
            try:
                return pd.read_csv(file, dtype=kinds, **rules)  # type: ignore[call-overload,no-any-return]
            except (ValueError, OverflowError, RuntimeWarning) as error:
                if isinstance(error, pd.errors.ParserError | UnicodeDecodeError):
                    raise
                raise _not_a_number(file, pd.read_csv(file, dtype=str, **rules)) from error  # type: ignore[call-overload]
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{file}: the file is empty. Its first line must be {','.join(COLUMNS)}.") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise DataError(
            f"{file}, line {_odd_line(file)}: the line has too many entries, or a quote that never closes. "
            f"A line has one entry each for {', '.join(COLUMNS)}."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not a text file in UTF-8. Save the trace as CSV, or name it .parquet.") from error


def _odd_line(file: Path) -> int:
    """Return the first line with more commas than the first, or with a single quote mark."""
    with file.open(encoding="utf-8-sig") as lines:
        commas = next(lines).count(",")
        odd = (n for n, line in enumerate(lines, 2) if line.count(",") > commas or line.count('"') % 2)
        return next(odd, 2)


def _not_a_number(file: Path, text: "pd.DataFrame") -> DataError:
    """Return the error about the first entry that is not a number."""
    import pandas as pd

    errors = []
    for name in COLUMNS[:3]:
        numbers = pd.to_numeric(text[name], errors="coerce")
        wrong = numbers.isna().to_numpy(copy=True)
        if name == "client":
            wrong |= ~text[name].fillna("").str.fullmatch(r"\s*[+-]?\d{1,18}\s*").to_numpy()
        if wrong.any():
            errors.append((int(np.argmax(wrong)), name))
    row, name = min(errors, default=(0, "client"))
    need = "a whole number" if name == "client" else "a number of seconds"
    got = _shown(text[name].iloc[row])
    return DataError(f"{file}, line {row + 2}: {name} must be {need}; got {got}. Correct the line, or leave it out.")


def _shown(entry: object) -> str:
    import pandas as pd

    return repr(entry) if isinstance(entry, str) else "nothing" if pd.isna(entry) else str(entry)  # type: ignore[call-overload]


def _parquet(file: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

        stored = ParquetFile(file)
        facts = stored.metadata
        if facts.num_rows * facts.num_columns > MOST_ENTRIES:  # a file of a few bytes can claim this
            raise ValueError(f"it says it has {facts.num_rows:,} rows of {facts.num_columns:,} columns")
        frame = stored.read(use_threads=False).to_pandas(use_threads=False)  # pyarrow's and torch's threads crash
    except ImportError as error:
        raise DataError(f"{file}: reading Parquet {INSTALL}, or save the trace as CSV.") from error
    except Exception as error:  # pyarrow may raise anything for a damaged file
        why = str(error).strip().rstrip(".")
        raise DataError(f"{file} cannot be read as Parquet: {why}. Write it again, or save it as CSV.") from error
    _need_columns(str(file), list(frame.columns))
    for name in COLUMNS[:3]:
        if frame[name].dtype.kind not in "iuf":
            raise DataError(f"{file}: the column {name} must hold numbers; got {frame[name].dtype}. Convert it.")
    clients, starts, ends = (frame[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in COLUMNS[:3])
    if len(rows := np.flatnonzero(~np.isfinite(clients) | (clients != np.floor(clients)))):
        got = _shown(frame["client"].iloc[rows[0]])
        raise DataError(
            f"{file}, row {rows[0] + 1}: client must be a whole number; got {got}. Correct the row, or leave it out."
        )
    try:
        states = frame["state"].astype("category")
    except TypeError as error:  # lists and the like
        raise DataError(f"{file}: the column state must hold one of {', '.join(STATES)} a row. Convert it.") from error
    ids = np.clip(clients, -MOST_CLIENTS, MOST_CLIENTS).astype(np.int64)  # no overflow; Trace.of rejects clipped ids
    return pd.DataFrame({"client": ids, "start": starts, "end": ends, "state": states})


def _need_columns(place: str, names: list[str]) -> None:
    """Raise where a column is missing. A line that names none is not quoted: the file may be anything, and secret."""
    if missing := [name for name in COLUMNS if name not in names]:
        is_trace = len(missing) < len(COLUMNS)
        has = f"it has {', '.join(map(str, names))}" if is_trace else "nor any other that a trace has"
        raise DataError(
            f"{place}: the trace has no column {missing[0]}; {has}. It needs the columns {', '.join(COLUMNS)}."
        )


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace as CSV, or as Parquet if the file name ends in .parquet or .pq."""
    import pandas as pd

    owner = np.repeat(np.arange(trace.num_clients), np.diff(trace.offsets))
    names = pd.Categorical.from_codes(trace.states, categories=pd.Index(STATES))
    frame = pd.DataFrame({"client": owner, "start": trace.starts, "end": trace.ends, "state": names})
    file = Path(path)
    try:
        if file.suffix.lower() in PARQUET:
            frame.assign(state=frame["state"].astype(str)).to_parquet(file, index=False)
        else:
            frame.to_csv(file, index=False)
    except ImportError as error:
        raise DataError(f"{file}: writing Parquet {INSTALL}, or name the file .csv.") from error
    except OSError as error:
        raise DataError(f"{file} cannot be written: {error.strerror or error}. Name another file.") from error
