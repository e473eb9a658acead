"""The line number of each key of a TOML document.

Python's parser returns the values of a document, but not their lines. This scanner reads a document that the parser has
accepted, so it needs no error handling, and records the line of every table, key and array entry.
"""

import re

Path = tuple[str | int, ...]

BARE = re.compile(r"[A-Za-z0-9_-]+")
SCALAR = re.compile(r"[^\s,\]}#]+(?: \d[^\s,\]}#]*)?")  # there may be a space between date and time
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def key_lines(text: str) -> dict[Path, int]:
    """Return the line, from 1, of every key path in a valid TOML document."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    """One pass over a document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self.entries: dict[Path, int] = {}  # arrays of tables: how many so far
        self.line_at, self.line_number = 0, 1

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self.skip()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.skip()
        return self.lines

    def header(self) -> Path:
        """Read [a.b] or [[a.b]] and return the path of the table."""
        line, is_array = self.line(), self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        keys = self.keys()
        self.at = self.text.index("]", self.at) + (2 if is_array else 1)
        path: Path = ()
        for key in keys[:-1]:
            path = self.latest((*path, key))
            self.lines.setdefault(path, line)
        path = (*path, keys[-1])
        if not is_array:
            path = self.latest(path)
        else:
            self.lines.setdefault(path, line)
            self.entries[path] = self.entries.get(path, 0) + 1
            path = self.latest(path)
        self.lines[path] = line
        return path

    def latest(self, path: Path) -> Path:
        """Return the path of the last entry if the path is an array of tables, else the path."""
        return (*path, self.entries[path] - 1) if path in self.entries else path

    def pair(self, table: Path) -> None:
        """Read `a.b = value`."""
        line, path = self.line(), table
        for key in self.keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.at = self.text.index("=", self.at) + 1
        self.value(path)

    def keys(self) -> list[str]:
        """Read a dotted key."""
        found = []
        while True:
            self.skip_blanks()
            if self.text[self.at] in "\"'":
                found.append(self.string())
            else:
                match = BARE.match(self.text, self.at)
                found.append(match.group() if match else "")
                self.at = match.end() if match else self.at + 1
            self.skip_blanks()
            if not self.text.startswith(".", self.at):
                return found
            self.at += 1

    def value(self, path: Path) -> None:
        """Skip a value; record the lines of the entries of arrays and inline tables."""
        self.skip()
        opening = self.text[self.at]
        if opening in "\"'":
            self.string()
        elif opening == "[":
            self.array(path)
        elif opening == "{":
            self.inline_table(path)
        else:
            match = SCALAR.match(self.text, self.at)
            self.at = match.end() if match else self.at + 1

    def array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self.skip()
            if self.text[self.at] == "]":
                self.at += 1
                return
            self.lines[(*path, index)] = self.line()
            self.value((*path, index))
            index += 1
            self.skip()
            if self.text[self.at] == ",":
                self.at += 1

    def inline_table(self, path: Path) -> None:
        self.at += 1
        while True:
            self.skip()
            if self.text[self.at] == "}":
                self.at += 1
                return
            self.pair(path)
            self.skip()
            if self.text[self.at] == ",":
                self.at += 1

    def string(self) -> str:
        """Read a string of any of the four kinds and return it."""
        quote = self.text[self.at]
        mark = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        start = end = self.at + len(mark)
        while not self.text.startswith(mark, end):
            end += 2 if quote == '"' and self.text[end] == "\\" else 1
        self.at = end + len(mark)
        while len(mark) == 3 and self.text.startswith(quote, self.at):  # the text itself may end with up to two quotes
            self.at += 1
        inside = self.text[start:end]
        return ESCAPE.sub(_unescape, inside) if quote == '"' else inside

    def skip(self) -> None:
        """Skip blanks, line ends and comments."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in " \t\n":
                self.at += 1
            else:
                return

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def line(self) -> int:
        self.line_number += self.text.count("\n", self.line_at, self.at)
        self.line_at = self.at
        return self.line_number


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if code[0] in "uUx" and len(code) > 1 else ESCAPES.get(code, code)
