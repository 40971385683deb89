"""Regular expressions that match names of topics: RE2's, which take time in proportion to the name and the expression.

That may be five milliseconds for one name, so an expression is bounded, and matched with some names at a time: addresses take
turns in between, on a thread that does nothing else. RE2 does not need the interpreter meanwhile
(docs/decisions/group-regexes.md).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from echoless.broker.network.turns import PATTERNS
from echoless.protocol.errors import ErrorCode, KafkaError

PATTERN_LENGTH_MAX: Final = 1024
UNICODE_CLASSES_MAX: Final = 20
"""Classes of Unicode in an expression: each takes 0.2 ms to read, with the interpreter held, and names of topics are ASCII."""
PROGRAM_STEPS_MAX: Final = 1250
"""Steps of a compiled expression: each may be taken at every character of a name, which takes up to 20 ns."""
_COMPILED_BYTES: Final = 1 << 16
"""Memory with which an expression of too many steps does not compile, which is noticed early."""
_MATCHED_BYTES: Final = 1 << 20
"""Memory to match with: with too little of it, matching becomes a hundred times slower."""
STEPS_PER_TURN: Final = 500_000
"""Steps, at every character, that one turn of an address may take: ten milliseconds at most."""


async def check_pattern(pattern: str, address: str) -> None:
    """Raises `KafkaError` INVALID_REGULAR_EXPRESSION."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise _invalid(f"a regular expression has at most {PATTERN_LENGTH_MAX} characters")
    if pattern.count("\\p") + pattern.count("\\P") > UNICODE_CLASSES_MAX:
        raise _invalid(f"a regular expression has at most {UNICODE_CLASSES_MAX} classes of Unicode")
    await PATTERNS.run(address, partial(_check, pattern))


async def matching_names(pattern: str, names: list[str], address: str) -> list[str]:
    """The names that a valid expression matches as a whole, in their order."""
    found: list[str] = []
    position = 0
    while position < len(names):
        some, position = await PATTERNS.run(address, partial(_match_some, pattern, names, position))
        found += some
    return found


def _match_some(pattern: str, names: list[str], position: int) -> tuple[list[str], int]:
    """Returns those that match of the names from `position` on, and the position of the first that was not looked at."""
    compiled = _compiled(pattern, _MATCHED_BYTES)
    matches, steps = compiled.fullmatch, compiled.programsize
    found: list[str] = []
    left = STEPS_PER_TURN
    while position < len(names) and left > 0:
        name = names[position]
        if matches(name):
            found.append(name)
        left -= steps * len(name) + _STEPS_OF_A_CALL
        position += 1
    return found, position


_STEPS_OF_A_CALL: Final = 200


def _check(pattern: str) -> None:
    import re2

    try:
        steps = _compiled(pattern, _COMPILED_BYTES).programsize
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise _invalid(f"{pattern!r} is not a valid RE2 regular expression: {text}") from error
    if steps > PROGRAM_STEPS_MAX:
        text = f"it takes {steps} steps for a character; at most {PROGRAM_STEPS_MAX} are allowed"
        raise _invalid(f"{pattern!r} is too expensive to match: {text}; repeat less in it")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


def _compiled(pattern: str, memory_bytes: int) -> Any:
    """The expression, from RE2's memory of the last 128 if it is there."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes
    options.never_capture = True  # what groups match would be looked for, ten times as slowly
    return re2.compile(pattern, options)
