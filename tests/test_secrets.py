"""Secrets are compared in constant time: by `hmac.compare_digest` and nothing else (CVE-2021-38153)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("protocol", "broker", "client", "cli")
_SECRET = re.compile(
    r"(^|_)(password|secret|proof|signature|stored_key|server_key|client_key|salted|verifier|tokens?"
    r"|digest|nonce|credentials?)(_|$)"
)
_EARLY: tuple[type[ast.cmpop], ...] = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
NO_SECRETS = {
    "broker/authentication/admin_tokens.py": {"token.secret in found"},  # of one file, at the start
    "broker/authentication/bearer.py": {"token.endswith('.')"},  # the form of a claim
    "broker/handlers/describe_user_scram_credentials.py": {"mechanism in credentials"},  # names
    "protocol/sasl/scram_client.py": {
        "digest(mechanism, client_key) == credential.stored_key",  # both our own
        "match[1].startswith(self._nonce)",  # nonces travel in clear
        "match[1] == self._nonce",
    },
    "protocol/sasl/scram_server.py": {"match['nonce'].endswith(self._nonce)"},
}
"""Comparisons that tell no one anything, with the reason."""


def early_exits(source: str) -> Iterator[str]:
    """Comparisons with a secret that end at the first difference."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(one, _EARLY) for one in node.ops):
            sides = (node.left, *node.comparators)
            if any(map(_is_secret, sides)):
                yield ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_prefix = node.func.attr in {"startswith", "endswith"}
            if is_prefix and any(map(_is_secret, (node.func.value, *node.args))):
                yield ast.unparse(node)


def _is_secret(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return _SECRET.search(node.id) is not None
    if isinstance(node, ast.Attribute):
        return _SECRET.search(node.attr) is not None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return isinstance(node.slice.value, str) and _SECRET.search(node.slice.value) is not None
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id
        in {
            "digest",
            "keyed",
            "xor",
            "salted_password",
        }
    )


@pytest.mark.parametrize("room", ROOMS)
def test_secrets_are_compared_in_constant_time(room: str) -> None:
    """Whatever has a secret's name, wherever it is compared."""
    found = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        lines = set(early_exits(path.read_text())) - NO_SECRETS.get(name, set())
        if lines:
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "password == given",
        "if self.secret != x: pass",
        "known['proof'] == x",
        "token in tokens.values()",
        "digest(m, a) == b",
        "given.startswith(secret)",
    ],
)
def test_a_comparison_that_ends_early_is_found(line: str) -> None:
    """Otherwise the test above would prove nothing."""
    assert list(early_exits(line))


def test_the_exceptions_are_still_there() -> None:
    """One that is gone would excuse the next of its kind."""
    for name, lines in NO_SECRETS.items():
        assert lines <= set(early_exits((ROOT / name).read_text())), name
