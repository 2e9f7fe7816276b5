"""QEMU's end of a guest's console: a Unix socket that waits for one connection."""

import os
import socket
from functools import cached_property
from pathlib import Path


class ConsoleSocket:
    """Listens at `path`; `descriptor` is the connection, once there is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        # A name that is short enough, whatever the folder of the test is called.
        folder = os.open(path.parent, os.O_PATH)
        self._listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        self._listener.listen(1)

    @cached_property
    def descriptor(self) -> int:
        """The connection; waits for it."""
        connection, _ = self._listener.accept()
        return connection.detach()

    def close(self) -> None:
        self._listener.close()
        if "descriptor" in self.__dict__:
            os.close(self.descriptor)
            del self.descriptor
