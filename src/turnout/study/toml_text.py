"""Plain values as TOML text; loading the text gives the same values."""

import json
import re
from collections.abc import Mapping
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(plain: Mapping[str, Any]) -> str:
    """Return resolved settings as a study file; loading it gives the same study."""
    lines = _table(None, {key: value for key, value in plain.items() if key != "arm" and value is not None})
    for arm in plain.get("arm", ()):
        lines += ["", "[[arm]]", *_table("arm", arm)]
    return "\n".join(lines) + "\n"


def _table(parent: str | None, entries: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table's plain settings, then those of each section."""
    lines = _pairs({key: value for key, value in entries.items() if not isinstance(value, dict)})
    for key, section in entries.items():
        if isinstance(section, dict):
            lines += ["", f"[{parent}.{_key(key)}]" if parent else f"[{_key(key)}]", *_pairs(section)]
    return lines


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    width = max((len(_key(key)) for key in settings), default=0)
    return [f"{_key(key):{width}} = {_toml(value)}" for key, value in settings.items()]


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _toml(key)


def _toml(value: Any) -> str:
    """Return a value in TOML notation; None is the text "none"."""
    if value is None:
        return '"none"'
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(key)} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
