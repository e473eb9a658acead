"""Where each key of a TOML document stands."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnout.study.toml_lines import Path, key_lines

DOCUMENT = '''# a comment with [brackets] and "quotes"
name = "a = b # not a comment"   # a comment
text = """
rounds = 7
"""
raw = \'\'\'C:\\new
[not.a.table]\'\'\'

[data]
use = "digits"
partition = { use = "dirichlet", deep = { concentration = 0.1 } }
sizes = [
  1,  # one
  [2, 3],
]
"quoted key" = 1
a."b.c".d = 2
when = 1979-05-27 07:32:00

[[arm]]
name = "A"

[[arm]]
name = "B"
local.lr = 1
[arm.server]
lr = 2
[[arm.deep]]
x = 1
'''


def test_golden_every_form_of_key_has_its_line() -> None:
    lines = key_lines(DOCUMENT)
    expected: dict[Path, int] = {
        ("name",): 2,
        ("text",): 3,
        ("raw",): 6,
        ("data",): 9,
        ("data", "use"): 10,
        ("data", "partition", "deep", "concentration"): 11,
        ("data", "sizes"): 12,
        ("data", "sizes", 0): 13,
        ("data", "sizes", 1, 1): 14,
        ("data", "quoted key"): 16,
        ("data", "a", "b.c", "d"): 17,
        ("data", "when"): 18,
        ("arm",): 20,
        ("arm", 0): 20,
        ("arm", 0, "name"): 21,
        ("arm", 1): 23,
        ("arm", 1, "name"): 24,
        ("arm", 1, "local", "lr"): 25,
        ("arm", 1, "server"): 26,
        ("arm", 1, "server", "lr"): 27,
        ("arm", 1, "deep", 0, "x"): 29,
    }
    assert {path: lines.get(path) for path in expected} == expected


def test_identity_line_ends_do_not_matter() -> None:
    assert key_lines(DOCUMENT.replace("\n", "\r\n")) == key_lines(DOCUMENT)


def test_golden_escaped_keys_are_read_as_the_reader_reads_them() -> None:
    text = "\"\\u0061\\tb\" = 1\n'c\\d' = 2\n"
    assert set(key_lines(text)) == {(key,) for key in tomllib.loads(text)} == {("a\tb",), ("c\\d",)}


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, int]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from leaves(entry, (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from leaves(entry, (*path, index))
    else:
        yield path, value


FORMS = (
    "{key} = {n}\n",
    "{key}.inner . deep = {n}\n",
    '"{key} [x] = 1" = {n}  # = {n}\n',
    "{key} = {{ a = 'b', n = {n}, e = [] }}\n",
    "{key} = [\n  # none\n  {{ n = {n} }},\n]\n",
    '{key} = ["""\n]""", {n}]\n',
)
HEADERS = ("[t{at}]\n", "[t{at}.'x]y']\n", "[[many]]\n", "\n[[many.inner]] # [[no]]\n", "# only a comment\n")


@given(st.lists(st.tuples(st.sampled_from(HEADERS), st.lists(st.sampled_from(FORMS), max_size=4)), max_size=6))
def test_property_every_value_is_found_on_its_own_line(blocks: list[tuple[str, list[str]]]) -> None:
    number, text = 1000, "[[many]]\n"
    for at, (header, forms) in enumerate(blocks):
        text += header.format(at=at)
        for form in forms:
            number += 1
            text += form.format(key=f"k{number}", n=number)
    found, lines = key_lines(text), text.splitlines()
    for path, value in leaves(tomllib.loads(text)):
        if isinstance(value, int):
            assert re.search(rf"\b{value}\b", lines[found[path] - 1]), (path, found[path], text)
