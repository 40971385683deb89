"""A topic that was deleted, and how far one coordinator is with forgetting its offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class DeletedTopic:
    """A topic whose offsets a coordinator forgets; another topic of that name may exist by now."""

    name: str
    deleted_ms: int
    """Wall clock. Offsets that were committed later are those of another topic."""
    last_append: int | None = None
    """The coordinator's last append before it began: commits up to here may be of the deleted topic."""
    is_forgotten: bool = False
    """A walk has found nothing of it that is stored or may still be."""
