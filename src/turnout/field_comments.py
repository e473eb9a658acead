"""The comment that explains a field of a class: at the end of the field's line, or on the lines directly above it.

An empty line between a comment and the field below it separates the two: the comment then explains nothing.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

LINTER_MARKS = ("noqa", "type:")  # comments for tools, not for readers


@dataclass(frozen=True, slots=True)
class Comments:
    """The comments of a source text by line number."""

    trailing: dict[int, str]  # comments that follow code
    own_line: dict[int, str]  # comments that have the line to themselves

    @classmethod
    def of(cls, text: str) -> "Comments":
        """Return the comments of a source text; raise SyntaxError if it cannot be split into tokens."""
        trailing: dict[int, str] = {}
        own_line: dict[int, str] = {}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            words = token.string.lstrip("# ")
            if token.type == tokenize.COMMENT and not words.startswith(LINTER_MARKS):
                comments = own_line if token.line.lstrip().startswith("#") else trailing
                comments[token.start[0]] = words
        return cls(trailing, own_line)

    def explanation(self, field: ast.AnnAssign) -> str:
        """Return the text above a field, followed by the text at the end of its line; empty if there is neither."""
        last_line = field.end_lineno or field.lineno
        return " ".join([*reversed(list(self._above(field.lineno))), *self._at_end(last_line)])

    def _above(self, line: int) -> Iterator[str]:
        while line - 1 in self.own_line:
            line -= 1
            yield self.own_line[line]

    def _at_end(self, line: int) -> Iterator[str]:
        if line in self.trailing:
            yield self.trailing[line]
