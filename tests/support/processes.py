"""Processes of their own, for what several hosts do together."""

import json
import os
import socket
import subprocess
import sys

from helpers import CHILDREN_PATH, SUPPORT


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(*command, **options):
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": CHILDREN_PATH}
    return subprocess.Popen(
        [sys.executable, *map(str, command)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def together(number, out, how="", timeout=120):
    """Plays with `number` processes; returns exit status, report and errors of each."""
    port = free_port()
    children = [start(SUPPORT / "hosts_child.py", port, number, i, out, how) for i in range(number)]
    found = []
    try:
        for child in children:
            shown, errors = child.communicate(timeout=timeout)
            lines = [line for line in shown.splitlines() if line.startswith("{")]
            found.append((child.returncode, json.loads(lines[-1]) if lines else None, errors))
    finally:
        for child in children:
            child.kill()
    return found
