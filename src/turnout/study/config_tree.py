"""A study file as a tree of values with the place of each, and the list of its problems.

Arms, recipes and `--set` are merged as such trees, so every message can name the line or the flag that caused it.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any

from turnout.axes import AXES
from turnout.errors import ConfigError
from turnout.study.file_limits import MOST_LEVELS, MOST_PROBLEMS, check_integer, is_too_deep
from turnout.study.toml_lines import Path

DEFAULT_USE = {axis.name: axis.default_use for axis in AXES.values() if axis.default_use is not None}
FLAG = 10**9  # sorts flags after every line of a file


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """Where a value was written."""

    order: int
    text: str  # "study.toml:14" or "--set local.lr=2"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place in the file; the value of a table is a dict of nodes, of an array a list of nodes."""

    value: Any
    where: Where

    @property
    def is_table(self) -> bool:
        """Whether it is a table."""
        return isinstance(self.value, dict)

    @property
    def is_python_value(self) -> bool:
        """Whether it is a Python object, such as a rule, that no study file can contain."""
        return not isinstance(self.value, str | bool | int | float | list | dict | date | time | None)

    def plain(self) -> Any:
        """Return the value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def paths(self, path: Path = ()) -> "Iterator[tuple[Path, Node]]":
        """Yield every node inside with its path."""
        yield path, self
        pairs: Any = self.value.items() if isinstance(self.value, dict) else ()
        pairs = enumerate(self.value) if isinstance(self.value, list) else pairs
        for key, node in pairs:
            yield from node.paths((*path, key))


@dataclass(slots=True)
class Problems:
    """The problems of a study, raised together."""

    found: list[tuple[Where, str]] = field(default_factory=list)

    def add(self, where: Where, message: str) -> None:
        """Add a problem unless it is there already; raise all of them when there are very many."""
        if (where, message) not in self.found:
            self.found.append((where, message))
        if len(self.found) >= MOST_PROBLEMS:
            self.raise_any()

    def raise_any(self) -> None:
        """Raise one ConfigError with all problems, one line each, in the order of the file."""
        if self.found:
            placed = [(where.text and f"{where.text}: ", message) for where, message in sorted(self.found)]
            lines = [place + line for place, message in placed for line in message.splitlines()]
            raise ConfigError("\n".join(lines))


def tree_from_document(value: Any, lines: Mapping[Path, int], label: str) -> Node:
    """Return a TOML document as a tree; a value without a line of its own has the line of its parent."""

    def node_at(value: Any, path: Path, line: int) -> Node:
        line = lines.get(path, line)
        where = Where(line, f"{label}:{line}")
        if isinstance(value, dict):
            return Node({key: node_at(entry, (*path, key), line) for key, entry in value.items()}, where)
        if isinstance(value, list):
            return Node([node_at(entry, (*path, index), line) for index, entry in enumerate(value)], where)
        return Node(check_integer(value, where.text), where)

    return node_at(value, (), 1)


def tree_from_value(value: Any, where: Where) -> Node:
    """Return a plain value as a tree with one place for all nodes; a Python object is a node without children."""
    if isinstance(value, Mapping):
        return Node({key: tree_from_value(entry, where) for key, entry in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node([tree_from_value(entry, where) for entry in value], where)
    return Node(check_integer(value, where.text), where)


def as_table(node: Node) -> Node | None:
    """Return a rule as a table: a bare name is short for { use = name }."""
    if isinstance(node.value, str):
        return Node({"use": node}, node.where)
    return node if node.is_table else None


def where_set(tree: Node, setting: str) -> Where:
    """Return the place of the setting with this path; if it is left out, the place of its table."""
    node = tree
    for name in setting.split("."):
        table = as_table(node)
        if table is None or name not in table.value:
            break
        node = table.value[name]
    return node.where


def merge(shared: Node | None, own: Node, key: str) -> Node:
    """Merge an arm's value into the shared one, key by key; a table with another `use` replaces the shared table."""
    if shared is None or own.value == "none" or not (shared.is_table or own.is_table):
        return own
    base, top = as_table(shared), as_table(own)
    if base is None or top is None:
        return own
    if _use(top, None) is not None and _use(top, key) != _use(base, key):
        return top
    entries = dict(base.value)
    for name, node in top.value.items():
        entries[name] = merge(entries.get(name), node, name)
    return Node(entries, top.where)


def _use(table: Node, key: str | None) -> Any:
    named = table.value.get("use")
    return DEFAULT_USE.get(key or "") if named is None else named.plain()


def apply_override(root: Node, override: str, problems: Problems) -> Node:
    """Return the tree with one `a.b=c` applied; an arm is `arm.NAME.…` or `arm.0.…`."""
    where = Where(FLAG, f"--set {override}")
    path, sign, text = override.partition("=")
    keys = [key.strip().strip("\"'") for key in re.findall(r'"[^"]*"|\'[^\']*\'|[^.]+', path)]
    if not sign or not all(keys) or not 0 < len(keys) <= MOST_LEVELS:
        problems.add(where, "A setting is written as section.key=value, for example --set local.lr=0.1.")
        return root
    return _put(root, keys, tree_from_value(_flag_value(text.strip()), where), problems)


def _put(node: Node, keys: list[str], value: Node, problems: Problems) -> Node:
    if not keys:
        return merge(node, value, "") if node.is_table and value.is_table else value
    key, rest = keys[0], keys[1:]
    if isinstance(node.value, list):
        index = _arm_index(node.value, key)
        if index is None:
            names = [n.value["name"].plain() for n in node.value if n.is_table and "name" in n.value]
            problems.add(value.where, f"There is no arm {key}. The arms are {', '.join(map(str, names)) or 'none'}.")
            return node
        return Node([_put(e, rest, value, problems) if i == index else e for i, e in enumerate(node.value)], node.where)
    table = as_table(node)
    if table is None:
        problems.add(value.where, f"{key} can only be set in a table; got {node.plain()!r} instead of a table.")
        return node
    entry = table.value.get(key, Node({}, value.where) if rest else value)
    return Node({**table.value, key: _put(entry, rest, value, problems)}, table.where)


def _arm_index(entries: list[Node], key: str) -> int | None:
    for index, entry in enumerate(entries):
        if entry.is_table and "name" in entry.value and entry.value["name"].plain() == key:
            return index
    return int(key) if key.isascii() and key.isdigit() and int(key) < len(entries) else None


def _flag_value(text: str) -> Any:
    """Return a flag's value, read as TOML; if it is not TOML, the text itself."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if set(document) == {"value"} and not is_too_deep(document) else text
