"""Processes that execute tasks; a process that hangs is killed, one that crashed is replaced."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.tasks import Task


class Worker:
    """A process that executes one task after the other.

    Args:
      log: file of its output.
      env: environment variables, set before jax is imported.
      cores: processors that it may use.
    """

    def __init__(self, log: Path, env: Mapping[str, str], cores: set[int]):
        self.log, self._env, self._cores = log, dict(env), cores
        self._process: Any = None

    def do(self, task: Task, limit: float) -> Iterator[dict[str, Any]]:
        """Yields partial results of a task; one with `error` is the last.

        Args:
          task: task of a kind in `measures`.
          limit: largest number of seconds.
        """
        end = time.monotonic() + limit
        try:
            if self._process is None:
                self._start()
            self._pipe.send(task)
            while self._pipe.poll(max(0.0, end - time.monotonic())):
                piece = self._pipe.recv()
                if piece is None:
                    return
                yield piece
            self._process.kill()
            yield {"error": f"took more than {limit:.0f} s"}
        except (EOFError, OSError):
            self._process.join(5)
            printed = self.log.read_text(errors="replace")[-3000:]
            yield {"error": f"its process ended with {self._process.exitcode}", "log": printed}
        self.stop()

    def stop(self) -> None:
        """Stops the process, after some seconds by force."""
        if self._process is not None:
            self._pipe.close()
            self._process.join(5)
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self.log, self._env, self._cores), daemon=True)
        self._process.start()
        other.close()


def _serve(pipe: Any, log: Path, env: Mapping[str, str], cores: set[int]) -> None:
    """Executes received tasks, and sends their results and then None."""
    os.environ.update(env)
    os.sched_setaffinity(0, cores)
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(printed, sys.stdout.fileno())
    os.dup2(printed, sys.stderr.fileno())
    with contextlib.suppress(EOFError):
        while True:
            for piece in pieces(pipe.recv()):
                pipe.send(piece)
            pipe.send(None)


def pieces(task: Task) -> Iterator[dict[str, Any]]:
    """Yields the results of a task, including errors, and finally its seconds."""
    start = time.perf_counter()
    try:
        from gpu import measures  # Not before the environment is set: it imports jax.

        yield from measures.KINDS[task.kind](**task.given)
    except BaseException as error:
        yield {"error": f"{type(error).__name__}: {error}"[:1500], "traceback": traceback.format_exc()[-3000:]}
    yield {"task_s": round(time.perf_counter() - start, 2)}


def run_command(words: Sequence[str], limit: float, env: Mapping[str, str], folder: Path, log: Path) -> tuple[int, str]:
    """Executes a command in a folder, and kills it with its children after `limit` seconds; returns its exit status and output."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(words, cwd=folder, env={**os.environ, **env}, start_new_session=True, **streams)
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        text += f"\ntook more than {limit:.0f} s\n"
    with log.open("a") as file:
        file.write(f"$ {json.dumps(list(words))}\n{text}\n")
    return process.returncode, text
