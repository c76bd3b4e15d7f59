"""Meeting point of the processes of a first run: a folder, and a lock for the device."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

# Name of the variable that tells processes the folder.
FOLDER = "FIRST_RUN_FOLDER"


@contextlib.contextmanager
def alone_on_device() -> Generator[None]:
    """A context in which no other worker uses the device. A process that is ended in it leaves it."""
    with open(Path(os.environ.get(FOLDER, tempfile.gettempdir())) / "device.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
