"""Addresses of the project, from `[project.urls]` of pyproject.toml; missing ones are shown neither on the site nor in the notebooks."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Allowed keys. pip can install `Repository` as git+URL; `Wheel` is a file that pip can install.
KEYS = ("Repository", "Documentation", "Issues", "Changelog", "Wheel")


def links(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Returns the links by key.

    Raises:
      ValueError: a key that is not one of `KEYS`, or a URL that is not one.
    """
    found = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"].get("urls", {})
    for key, url in found.items():
        if key not in KEYS:
            raise ValueError(f"[project.urls] has {key!r}; it may have {', '.join(KEYS)}")
        if not url.startswith("https://"):
            raise ValueError(f"[project.urls] {key} must begin with https://, got {url!r}")
    return found
