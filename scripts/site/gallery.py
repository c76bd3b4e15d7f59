"""Runs the experiments, and stores a small picture of each figure and the measured values in notebooks/site/gallery/.

    python scripts/site/gallery.py                                  # every experiment that is not in the gallery yet, one after the other
    python scripts/site/gallery.py --only staged/figure-2 cascade   # an experiment, all of a problem
    python scripts/site/gallery.py --only staged --redraw           # draws and judges stored results again, after a change of figures or claims
    python scripts/site/gallery.py --only staged --reword           # renews titles, claims, notes and commands; needs no results

Each runs by the command in the gallery, `jaxroute run`, at its own horizon and with its own seeds, or with fewer if those would take many
CPU minutes, or with more if that decides a claim (`SEEDS`). Results stay in results/gallery/ and are only extended by another run.
"""

import argparse
import contextlib
import functools
import io
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ROOT / "notebooks" / "site" / "gallery"
RESULTS = ROOT / "results" / "gallery"
LARGEST = 40_000  # Bytes of a picture with up to five panels.
A_PANEL = 7_500  # Bytes per panel of a larger one.
MOST = 110_000  # Bytes of any picture.
TOTAL = 3_700_000  # Bytes of all pictures.

# Seeds of experiments whose own number takes long or decides less.
SEEDS = {
    "stochastic/best-arm": 8192,
    "staged/figure-6": 64,
    "staged/discovery-slope": 64,
    "staged/lower-bound": 64,
    "combinatorial/figure-7": 128,
    "combinatorial/table-4": 32,
    "combinatorial/policies": 64,
    "combinatorial/variants": 16,
    "service/table-2": 256,
    "service/table-3": 1024,
    "service/theory": 512,
    "queueing/figure-4": 128,
    "queueing/figure-5": 1024,
    "queueing/table": 16,
    "cascade/two-boxes": 1024,
    "cascade/theory": 1024,
    "cascade/sizes": 16,
    "cascade/bonus": 1024,
    "cascade/rare-requests": 2048,
    "cascade/learned-scores": 32,
    "cascade/distributions": 512,
    "cascade/replay": 512,
}
# Experiments without a run, and the reason.
NOT_RUN = {
    "staged/table": "it needs your own table, `--data FILE`",
    "combinatorial/table": "it needs your own table, `--data FILE`",
    "service/table": "it needs your own table, `--data FILE`",
}


@functools.cache
def experiments() -> dict[str, Any]:
    """Returns the experiments of the package and the studies, problem by problem."""
    sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
    from studies import studies

    from jaxroute.experiments import EXPERIMENTS

    found = {**EXPERIMENTS, **studies()}
    problems = list(dict.fromkeys(name.partition("/")[0] for name in found))
    return dict(sorted(found.items(), key=lambda item: problems.index(item[0].partition("/")[0])))


def named(only: list[str], names: list[str]) -> list[str]:
    """Selects experiments by their names or by problem; all without a selection."""
    for one in only:
        if one not in names and not any(name.startswith(f"{one}/") for name in names):
            raise ValueError(f"--only must name an experiment or a problem of `jaxroute list`, got {one!r}")
    return [name for name in names if not only or name in only or name.partition("/")[0] in only]


def stem(name: str) -> str:
    """Returns the beginning of the names of an experiment's files in the gallery."""
    return name.replace("/", "-")


def entries() -> Iterator[dict[str, Any]]:
    """Yields the entries of the gallery, in the order of `jaxroute list`."""
    for name in experiments():
        file = GALLERY / f"{stem(name)}.json"
        if file.is_file():
            yield json.loads(file.read_text(encoding="utf-8"))


def command(experiment: Any, seeds: int) -> list[str]:
    """Returns the arguments of `jaxroute` that run an experiment."""
    from studies import argument, studies

    name = argument(experiment.name) if experiment.name in studies() else experiment.name
    return ["run", name, *(["--seeds", str(seeds)] if seeds != experiment.seeds else [])]


def simulate(experiment: Any, seeds: int, out: Path) -> float:
    """Runs an experiment by its command; returns the CPU seconds of all calls."""
    from jaxroute import cli

    before = time.process_time()
    with open(out.parent / f"{out.name}.txt", "w", encoding="utf-8") as output, contextlib.redirect_stdout(output):
        status = cli.main([*command(experiment, seeds), "--no-figures", "--out", str(out)])
    spent = time.process_time() - before
    if status:
        raise RuntimeError(f"{experiment.name}: the command ended with status {status}")
    file = out.parent / f"{out.name}.seconds"
    spent += float(file.read_text()) if file.is_file() else 0.0
    file.write_text(f"{spent:.2f}\n")
    return spent


# Numbers of colours by dots per inch, from the best to the worst readable.
_QUALITIES = {160: (256, 128, 64, 48), 130: (128, 64, 48, 32), 110: (64, 48, 32), 90: (64, 48, 32, 24)}


def in_few(pixels: np.ndarray, colours: int) -> np.ndarray:
    """Reduces pixels `[H, W, 3]` to their most frequent colours; greys, which are frequent at edges of letters, count less."""
    codes = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    found, place, count = np.unique(codes, return_inverse=True, return_counts=True)
    every = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=-1).astype(np.int32)
    chroma = every.max(-1) - every.min(-1)
    kept = every[np.argsort(-count * (1 + chroma / 16))[:colours]]
    nearest = np.square(every[:, None] - kept[None]).sum(-1).argmin(1)
    return kept[nearest].astype(np.uint8)[place.reshape(codes.shape)]


def largest(panels: int) -> int:
    """Returns the largest number of bytes of a figure's picture."""
    return min(max(LARGEST, A_PANEL * panels), MOST)


def left(experiment: Any) -> int:
    """Returns how many bytes an experiment's pictures may have, beside those of the others."""
    own = f"{stem(experiment.name)}.", f"{stem(experiment.name)}--"
    return TOTAL - sum(path.stat().st_size for path in GALLERY.glob("*.webp") if not path.name.startswith(own))


def draw(figure: Any, target: Path, most: int) -> tuple[int, int]:
    """Writes a figure as lossless WebP, as sharp and in as many colours as fit into `most` bytes; returns width and height in pixels.

    The file stays as it is until the new picture is complete. Lossless WebP takes half the bytes of a good JPEG. For fewer dots the figure is
    drawn again, since resampled letters take more bytes.
    """
    from PIL import Image

    size = 0
    for dots, numbers in _QUALITIES.items():
        with io.BytesIO() as drawn:
            figure.savefig(drawn, format="png", dpi=dots)
            pixels = np.asarray(Image.open(drawn).convert("RGB"))
        for colours in numbers:
            few, packed = Image.fromarray(in_few(pixels, colours)), io.BytesIO()
            few.save(packed, format="WEBP", lossless=True, quality=100, method=6)
            size = packed.tell()
            if size <= most:
                partial = target.with_suffix(".partial")
                partial.write_bytes(packed.getvalue())
                partial.replace(target)
                return few.size
    limit = f"more than the {most} that LARGEST, A_PANEL, MOST and the rest of TOTAL for {target.stem.partition('--')[0]} leave it"
    raise RuntimeError(f"{target.name} takes {size} bytes at the worst readable quality, {limit}")


def pictures_of(experiment: Any, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Draws the figures of a finished run into the gallery; returns their entries."""
    import matplotlib

    matplotlib.use("Agg")
    from jaxroute.experiments.base import picture

    pictures, free = [], left(experiment)
    for number, (name, make) in enumerate(experiment.figures.items()):
        file = f"{stem(experiment.name)}.webp" if len(experiment.figures) == 1 else f"{stem(experiment.name)}--{name}.webp"
        figure = picture(make, data)
        panels = sum(ax.get_visible() for ax in figure.axes)
        width, height = draw(figure, GALLERY / file, min(largest(panels), free // (len(experiment.figures) - number)))
        free -= (GALLERY / file).stat().st_size
        dots = round(width / figure.get_figwidth())
        matplotlib.pyplot.close(figure)
        pictures.append({"name": name, "file": file, "width": width, "height": height, "dots": dots, "panels": panels})
    return pictures


def keep(experiment: Any, out: Path, spent: float | None) -> dict[str, Any]:
    """Writes the entry of a finished run, with its figures.

    Args:
      experiment: the experiment.
      out: folder of the run.
      spent: CPU seconds; None for those of the present entry.
    """
    import jaxroute
    from jaxroute.experiments.base import summarise
    from jaxroute.store import results

    GALLERY.mkdir(parents=True, exist_ok=True)
    finished = json.loads((out / "summary.json").read_text())
    one = len(experiment.cases) == 1
    data = {case.name: results.load(out if one else out / case.name) for case in experiment.cases}
    summary = summarise(experiment, data)
    target = GALLERY / f"{stem(experiment.name)}.json"
    before = json.loads(target.read_text(encoding="utf-8")) if target.is_file() else {}
    spent = before["cpu_s"] if spent is None else spent
    entry = {
        "experiment": experiment.name,
        "title": summary["title"],
        "source": experiment.source,
        "notes": experiment.notes,
        "command": " ".join(["jaxroute", *command(experiment, summary["seeds"])]),
        "seeds": summary["seeds"],
        "own_seeds": experiment.seeds,
        "horizon": summary["horizon"],
        "claims": summary["claims"],
        "pictures": pictures_of(experiment, data),
        "device": summary["device"],
        "version": jaxroute.__version__,
        "compile_s": round(finished["compile_s"], 1),
        "run_s": round(finished["run_s"], 1),
        "cpu_s": round(spent, 1),
    }
    target.write_text(json.dumps(entry, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for file in {one["file"] for one in before.get("pictures", ())} - {one["file"] for one in entry["pictures"]}:
        (GALLERY / file).unlink(missing_ok=True)
    return entry


def reword(name: str) -> None:
    """Writes the texts that an experiment has now into its entry; pictures, verdicts and what was measured stay.

    Raises:
      ValueError: the experiment has other claims than its entry.
    """
    experiment, target = experiments()[name], GALLERY / f"{stem(name)}.json"
    entry = json.loads(target.read_text(encoding="utf-8"))
    claims = {claim.id: claim for claim in experiment.claims}
    if list(claims) != [claim["id"] for claim in entry["claims"]]:
        raise ValueError(f"{name} has other claims than its entry in the gallery: run it again")
    rows = re.search(r", [\d,]+ rows$", entry["title"])
    table = experiment.stand_in and experiment.stand_in + (rows.group() if rows else "")
    from jaxroute.experiments.base import on_table

    entry |= {"title": on_table(experiment.title, table), "source": experiment.source, "notes": experiment.notes}
    entry["command"] = " ".join(["jaxroute", *command(experiment, entry["seeds"])])
    for claim in entry["claims"]:
        now = claims[claim["id"]]
        claim |= {"text": on_table(now.text, table), "source": now.source}
    target.write_text(json.dumps(entry, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def add(name: str, seeds: int | None, redraw: bool) -> None:
    """Runs an experiment, or draws stored results, and writes its entry.

    Args:
      name: name of the experiment.
      seeds: number of seeds (default: from `SEEDS`, or the experiment's).
      redraw: whether to run nothing.
    """
    experiment, out, start = experiments()[name], RESULTS / stem(name), time.perf_counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    if redraw:
        if there := (out / "summary.json").is_file():
            keep(experiment, out, None)
        print(f"{name}: {'drawn' if there else f'no results in {out}; --seeds N runs it again'}", flush=True)
        return
    seeds = seeds or SEEDS.get(name, experiment.seeds)
    entry = keep(experiment, out, simulate(experiment, seeds, out))
    sizes = ", ".join(f"{(GALLERY / one['file']).stat().st_size / 1000:.0f} kB" for one in entry["pictures"])
    print(f"{name}: {seeds} seeds, {time.perf_counter() - start:.0f} s, {entry['cpu_s']:.0f} CPU s; {sizes}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; each experiment in a separate process, one after the other."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="experiments, or problems (default: all)")
    parser.add_argument("--seeds", type=int, help="number of seeds; also runs experiments of the gallery again")
    parser.add_argument("--redraw", action="store_true", help="draw and judge stored results again, run nothing")
    parser.add_argument("--reword", action="store_true", help="renew the texts alone, without results")
    options = parser.parse_args(arguments)
    try:
        names = named(options.only, list(experiments()))
    except ValueError as error:
        parser.error(str(error))
    failed = []
    for name in names:
        if name in NOT_RUN and name not in options.only:
            print(f"{name} is left out: {NOT_RUN[name]}", flush=True)
            continue
        if options.reword:
            reword(name)
            continue
        if (GALLERY / f"{stem(name)}.json").is_file() != options.redraw and options.seeds is None:
            if options.only:
                state = "not in the gallery yet" if options.redraw else "in the gallery; --seeds N runs it again"
                print(f"{name}: {state}", flush=True)
            continue
        process = multiprocessing.get_context("spawn").Process(target=add, args=(name, options.seeds, options.redraw))
        process.start()
        process.join()
        failed += [name] if process.exitcode else []
    if failed:
        print(f"not done: {' '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
