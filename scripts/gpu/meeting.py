"""Shared folder of the processes of a first run, and a lock for the device."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

# Environment variable with the folder.
FOLDER = "FIRST_RUN_FOLDER"


@contextlib.contextmanager
def alone_on_device() -> Generator[None]:
    """Context in which no other worker uses the device; a killed process releases it."""
    with open(Path(os.environ.get(FOLDER, tempfile.gettempdir())) / "device.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
