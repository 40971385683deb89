"""Java's properties files, in which Kafka's tools and clients keep their options."""

from __future__ import annotations

import re
from typing import Final

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"((?:[^\\:=\s]|\\.)*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """The names and values; comments, continued lines and escapes are Java's."""
    found: dict[str, str] = {}
    lines = iter(_LINE_END.split(text))
    for line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while _is_continued(logical):
            logical = logical[:-1] + next(lines, "").lstrip()
        match = _KEY.fullmatch(logical)
        assert match is not None, "both parts may be empty"
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROL.get(code, code)
