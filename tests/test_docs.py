"""The documents name only things that exist: every link, every file in backticks, every test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.oracle.scripts import SCRIPTS

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "tests/compatibility/README.md",
        ROOT / "testkit/clients/README.md",
    ]
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(
    r"`((?:protocol|storage|coordinators|broker|client|pipeline|testkit|cli|tests|benchmarks|docs|\.ci)/[\w./-]+)(?:::(\w+))?`"
)
"""A path from the top of the tree, optionally with the name of a test in it."""
_MEMBER = re.compile(r"`([A-Z]\w+)\.(\w+)`")
_PAGE = re.compile(r"docs/[\w/-]+\.md")
_INVARIANT = re.compile(r"Invariant: (.+)")
ROOMS = ("protocol", "storage", "coordinators", "broker", "client", "pipeline", "testkit", "cli")
CODE = (*ROOMS, "benchmarks", "containers", "tests")
_PROSE = re.compile(r'"""(.*?)"""|#(.*?)$', re.MULTILINE | re.DOTALL)
"""A docstring or a comment, nearly enough."""
_NAMED_FILE = re.compile(r"`([\w./-]+\.(?:py|md|toml|txt|yml))`")
_FIRST_WORD = re.compile(r'"""(?:Of|There|Also|Where|Under|Whose|That|What)\b.*')
"""Words with which a docstring neither says what something does nor names it."""
_FIRST_WORD_OF_PRODUCT = re.compile(
    r'"""(?:By which|How|Those|These|They|It|Who|Which|Not|Never|As|From here on)\b.*'
)
"""More of them, which the names of tests may need."""
_TRANSLATED = re.compile(
    r".*\b(?:all the same|what becomes of|comes? and goes?|as nearly always"
    r"|(?:un)?told(?! apart)|wider|from here on)\b.*",
    re.IGNORECASE,
)
"""Phrases that no engineer who maintains a broker would write."""


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The targets that GitHub makes of the headings."""
    headings = _HEADING.findall(prose(page))
    kept = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file or directory, and its anchor a heading there."""
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_files_and_tests_exist(page: Path) -> None:
    """A path in backticks is a file or directory, and it contains a test named after it."""
    for path, test in _FILE.findall(prose(page)):
        target = ROOT / path
        assert target.exists(), f"{path} does not exist"
        assert not test or f"def {test}(" in target.read_text(encoding="utf-8"), f"{path}::{test}"


def sources(room: str) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in (ROOT / room).rglob("*.py")}


def test_pages_named_in_the_code_exist() -> None:
    """A docstring that refers to a page of `docs/` refers to an existing one."""
    for room in CODE:
        for path, source in sources(room).items():
            for page in _PAGE.findall(source):
                assert (ROOT / page).exists(), f"{path.relative_to(ROOT)} names {page}"


def test_files_named_in_the_code_exist() -> None:
    """A file name in backticks, in a docstring or a comment, is the end of a path in the tree."""
    names = {
        path.relative_to(ROOT) for room in (*CODE, "docs") for path in (ROOT / room).rglob("*")
    }
    ends = {"/".join(name.parts[n:]) for name in names for n in range(len(name.parts))}
    ends |= {path.name for path in ROOT.iterdir()}
    for room in CODE:
        for path, source in sources(room).items():
            for docstring, comment in _PROSE.findall(source):
                for name in _NAMED_FILE.findall(docstring or comment):
                    assert name in ends, f"{path.relative_to(ROOT)} names {name}"


@pytest.mark.parametrize("room", CODE)
def test_a_docstring_begins_with_a_verb_or_a_noun(room: str) -> None:
    """No docstring begins with a word that leaves its reader to guess the noun."""
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path, source in sources(room).items()
        for line in _FIRST_WORD.findall(source)
    ]
    assert found == []


@pytest.mark.parametrize("room", [*ROOMS, "diagram"])
def test_the_product_says_it_in_the_words_of_the_field(room: str) -> None:
    """A docstring begins with a noun or a verb, and nothing reads as translated."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path, source in sources(room).items()
        for pattern in (_FIRST_WORD_OF_PRODUCT, _TRANSLATED)
        for line in pattern.findall(source)
    ]
    assert found == []


@pytest.mark.parametrize("page", ["architecture.md", "invariants.md"])
def test_named_methods_exist(page: str) -> None:
    """`Class.method` in backticks is a member of a class of ours."""
    sources = [
        path.read_text(encoding="utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py")
    ]
    for owner, member in _MEMBER.findall(prose(ROOT / "docs" / page)):
        homes = [source for source in sources if f"class {owner}" in source]
        found = re.compile(rf"\b{member}\b(\(|:)")
        assert any(found.search(home) for home in homes), f"{owner}.{member}"


def test_every_page_can_be_reached() -> None:
    """No page of `docs/` is without a link to it."""
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in _LINK.findall(prose(page))
        if "://" not in link
    }
    for page in PAGES:
        if page.is_relative_to(ROOT / "docs"):
            assert page in linked, f"{page.relative_to(ROOT)} is linked from nowhere"


def test_every_named_difference_is_explained() -> None:
    """The oracle allows no difference that `docs/differences.md` does not list by its name."""
    cells = {
        cell.strip()
        for line in prose(ROOT / "docs/differences.md").splitlines()
        for cell in re.split("[|;]", line)
    }
    names = {name for script in SCRIPTS.values() for name in script.differences}
    assert names - cells == set()


@pytest.mark.parametrize("room", ROOMS)
def test_every_invariant_is_listed(room: str) -> None:
    """`docs/invariants.md` has as many rows for a room as its code has invariants."""
    stated = {
        sentence
        for path in (ROOT / room).rglob("*.py")
        for sentence in _INVARIANT.findall(path.read_text(encoding="utf-8"))
    }
    _, _, section = (
        (ROOT / "docs/invariants.md").read_text(encoding="utf-8").partition(f"\n## {room}\n")
    )
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert len(rows[1:]) == len(stated)
