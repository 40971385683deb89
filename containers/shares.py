"""Shares of the parts in the image: `python -m containers.shares [IMAGE]` lists them, as docs/containers.md does.

The bytes are those of the layers, as `podman image inspect` counts them: an entry takes 512 bytes for its name, and its
content in whole blocks of 512.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from containers.images import DEBIAN, ECHOLESS
from containers.podman import CACHE, podman

_BLOCK: Final = 512
_PARTS: Final = (
    (r"opt/echoless/lib/python3\.\d+/site-packages/([A-Za-z0-9_]+)", None),
    (r"usr/bin/python3|usr/lib/python3", "Python"),
    (r".*/lib(?:crypto|ssl)\.so", "OpenSSL"),
    (r".*/libsqlite3\.so", "SQLite"),
    (r".*/libexpat\.so", "Expat"),
)
"""Expressions of paths, and the parts that they belong to: by their group, where no name is given."""


def main() -> int:
    """Prints the parts that take a hundredth of a megabyte, the biggest first, and the sum of all."""
    image = sys.argv[1] if len(sys.argv) > 1 else ECHOLESS
    found = shares(image)
    for part, size in found.most_common():
        if size >= 1e4:
            print(f"| {part} | {size / 1e6:.2f} |")
    print(f"| all | {found.total() / 1e6:.2f} |")
    return 0


def shares(image: str) -> Counter[str]:
    """Part -> bytes in the layers that the image adds to Debian."""
    found: Counter[str] = Counter()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        saved = Path(name, "image.tar")
        podman("save", "--quiet", "--format", "docker-archive", "--output", str(saved), image)
        with tarfile.open(saved) as archive:
            manifest = archive.extractfile("manifest.json")
            assert manifest is not None
            for layer in json.load(manifest)[0]["Layers"][layer_count(DEBIAN) :]:
                with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                    for file in files:
                        found[_part(file.name)] += _BLOCK * (1 + -(-file.size // _BLOCK))
    return found


def layer_count(image: str) -> int:
    """How many layers the image has."""
    return len(json.loads(podman("image", "inspect", "--format", "{{json .RootFS.Layers}}", image)))


def _part(path: str) -> str:
    for expression, name in _PARTS:
        if found := re.match(expression, path):
            return name or found[1]
    return "everything else"


if __name__ == "__main__":
    sys.exit(main())
