"""Whether everything that was ever appended in a data directory is still there.

Two files say so: `.clean-shutdown`, the marker of a clean shutdown, and `.boot-id`, which names the run
of the operating system. While that is the same, the power has not failed, and what was written is there,
synced or not.

What a power failure took may be missed by other brokers, so a start that finds the tail unsafe keeps
that answer for the next start as well, until the caller vouches for the tail: once no one counts on
what may be missing. A clean shutdown before that writes a marker that says so.

Called by `log_directory.py`. Knows nothing of logs.
"""

from __future__ import annotations

from typing import Final

from echoless.storage import paths
from echoless.storage.file_system import FileSystem

_UNSAFE: Final = b"tail unsafe\n"
"""In the marker of a clean shutdown: the logs are whole, but may lack what they once had."""


class TailSafety:
    """The two files: what they said when the directory was opened, and what they will say next."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._marker = paths.join(data_dir, paths.CLEAN_SHUTDOWN)
        self.was_clean = fs.exists(self._marker)
        """Whether the last shutdown was clean."""
        was_safe = self.was_clean and not fs.read_bytes(self._marker)
        self.is_safe = was_safe or self._is_same_boot()
        """Whether all that was ever appended here is there: the power has not failed since."""
        self._is_vouched_for = self.is_safe

    def _is_same_boot(self) -> bool:
        boot_id = self._fs.boot_id()
        return bool(boot_id) and self._read_boot_id() == boot_id

    def _read_boot_id(self) -> str:
        path = paths.join(self._data_dir, paths.BOOT_ID)
        if not self._fs.exists(path):
            return ""
        return self._fs.read_bytes(path).decode(errors="replace").strip()

    def note_new_directory(self) -> None:
        """Vouches for the tail of a new directory: it lacks nothing that it ever had."""
        self._is_vouched_for = True

    def vouch(self) -> None:
        """Makes the tail safe for the next start, unless the power fails before it; see the module.

        Raises `StorageError`.
        """
        self._is_vouched_for = True
        boot_id = self._fs.boot_id()
        if boot_id and self._read_boot_id() != boot_id:
            path = paths.join(self._data_dir, paths.BOOT_ID)
            self._fs.write_atomic(path, f"{boot_id}\n".encode())

    def doubt(self) -> None:
        """Makes the tail unsafe: some of it is no longer served."""
        self.is_safe = self._is_vouched_for = False

    def remove_marker(self) -> None:
        """Removes the marker, durably: from now on a crash is possible. Raises `StorageError`."""
        self._fs.remove(self._marker)
        self._fs.sync_directory(self._data_dir)

    def write_marker(self) -> None:
        """Records a clean shutdown, durably. Raises `StorageError`."""
        self._fs.write_atomic(self._marker, b"" if self._is_vouched_for else _UNSAFE)

    def remove_boot_id(self) -> None:
        """Forgets the boot: a disk that failed may have lost what it had accepted."""
        self._fs.remove(paths.join(self._data_dir, paths.BOOT_ID))
