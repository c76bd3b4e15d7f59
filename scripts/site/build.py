"""Builds the documentation site.

    python scripts/site/build.py                 # build/site/html/index.html
    python scripts/site/build.py --out FOLDER --fresh

Pages are notebooks/site/*.md, the notebooks with their stored outputs, CHANGELOG.md and CONTRIBUTING.md, and the API reference. A warning of
Sphinx is an error, also a link to a missing page, heading or object. Links to other sites are listed in links.txt and not fetched.
"""

import argparse
import re
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]


def assemble(source: Path) -> None:
    """Assembles Sphinx's source folder; removes old files."""
    import api

    before = {p for p in source.rglob("*") if p.is_file()}
    pages = ROOT / "notebooks" / "site"
    wanted = {source / p.relative_to(pages): p for p in pages.rglob("*") if p.is_file()}
    wanted |= {source / "notebooks" / p.name: p for p in (ROOT / "notebooks").iterdir() if p.suffix in (".ipynb", ".png")}
    wanted |= {source / f"{name.lower()}.md": ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING")}
    for target, origin in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(origin, target)  # With its time: Sphinx reads only what is newer.
    api.write(source / "api")
    made = {source / "api" / f"{name}.rst" for name in ("index", *(page.file for page in api.pages()))}
    for stale in before - wanted.keys() - made:
        stale.unlink()


def outside(html: Path) -> list[str]:
    """Returns the links to other sites, each once."""
    found = set()
    for page in html.rglob("*.html"):
        found |= set(re.findall(r'<a [^>]*href="(https?://[^"#]+)', page.read_text(encoding="utf-8")))
    return sorted(found)


def build(out: Path, fresh: bool = False) -> int:
    """Builds the site below `out`; returns Sphinx's exit status."""
    from sphinx.cmd.build import build_main

    if fresh:
        shutil.rmtree(out, ignore_errors=True)
    assemble(out / "source")
    options = ["-W", "--keep-going", "-n", "-q", "-b", "html", "-d", str(out / "doctrees"), "-c", str(HERE)]
    status = build_main([*options, str(out / "source"), str(out / "html")])
    (out / "links.txt").write_text("\n".join(outside(out / "html")) + "\n", encoding="utf-8")
    return status


def main(arguments: list[str] | None = None) -> int:
    """Builds, and prints address and seconds."""
    parser = argparse.ArgumentParser(prog="build", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder (default build/site)")
    parser.add_argument("--fresh", action="store_true", help="build from nothing")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    status = build(options.out.resolve(), options.fresh)
    built = f"{options.out}/html/index.html, {time.perf_counter() - began:.0f} s"
    print("the site has warnings: see above" if status else built)
    return status


if __name__ == "__main__":
    sys.exit(main())
