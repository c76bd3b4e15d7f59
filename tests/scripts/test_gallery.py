"""The gallery has every experiment, as it is now, in pictures of bounded size; and the pages of problems name every policy."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from every_experiment import EXPERIMENTS
from PIL import Image

from jaxroute import experiments
from jaxroute.cli import make_parser
from jaxroute.experiments.base import on_table
from jaxroute.experiments.verdicts import Verdict
from jaxroute.problems import problems

SITE = Path(__file__).resolve().parents[2] / "scripts" / "site"


def _loaded(name):
    """A script of scripts/site, which no import finds: the standard library has a `site` of its own."""
    spec = importlib.util.spec_from_file_location(name, SITE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


gallery = _loaded("gallery")
ENTRIES = list(gallery.entries())


@pytest.mark.fast
def test_every_experiment_is_there_or_named_with_a_reason():
    there, names = {entry["experiment"] for entry in ENTRIES}, set(EXPERIMENTS)
    missing = names - there - set(gallery.NOT_RUN)
    assert not missing, f"`python scripts/site/gallery.py --only {' '.join(sorted(missing))}` plays them"
    assert set(gallery.NOT_RUN) <= names - there
    assert set(gallery.SEEDS) <= names
    wanted = {f"{gallery.stem(name)}.json" for name in there}
    wanted |= {one["file"] for entry in ENTRIES for one in entry["pictures"]}
    assert {path.name for path in gallery.GALLERY.iterdir()} == wanted


@pytest.mark.fast
@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["experiment"] for entry in ENTRIES])
def test_an_entry_is_what_the_experiment_says_now(entry):
    experiment = EXPERIMENTS[entry["experiment"]]
    redraw = f"`python scripts/site/gallery.py --only {experiment.name} --reword` (or `--redraw`) renews it"
    # A new experiment is judged before it is drawn.
    assert [one["name"] for one in entry["pictures"]] in ([], list(experiment.figures)), redraw
    assert [claim["id"] for claim in entry["claims"]] == [claim.id for claim in experiment.claims], redraw
    shown = [entry["title"], *(claim["text"] for claim in entry["claims"])]
    texts = [experiment.title, *(claim.text for claim in experiment.claims)]
    pairs = zip(shown, texts, strict=True)  # On the page with the number of rows behind it.
    assert all(one.startswith(on_table(text, experiment.stand_in)) for one, text in pairs), redraw
    now = experiment.source, experiment.notes, experiment.seeds, experiment.horizon
    assert (entry["source"], entry["notes"], entry["own_seeds"], entry["horizon"]) == now, redraw
    assert all(claim["verdict"] in list(Verdict) and claim["measured"] for claim in entry["claims"])


@pytest.mark.fast
@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["experiment"] for entry in ENTRIES])
def test_a_command_is_understood_and_names_what_was_played(entry):
    program, *arguments = shlex.split(entry["command"])
    options = make_parser().parse_args(arguments)
    assert program == "jaxroute"
    named = re.fullmatch(r"scripts/studies/(\w+)\.py:(.+)", options.experiment)
    assert ("/".join(named.groups()) if named else options.experiment) == entry["experiment"]
    assert bool(named) == (entry["experiment"] not in experiments.EXPERIMENTS)
    assert (options.seeds or entry["own_seeds"]) == entry["seeds"]


@pytest.mark.fast
def test_pictures_are_small_and_large_enough():
    total = 0
    for entry in ENTRIES:
        for one in entry["pictures"]:
            path = gallery.GALLERY / one["file"]
            with Image.open(path) as picture:
                assert picture.format == "WEBP"
                assert picture.size == (one["width"], one["height"])
            assert picture.width >= 600, f"{path.name} cannot be read on a screen"
            assert path.stat().st_size <= gallery.largest(one["panels"])
            total += path.stat().st_size
    assert total <= gallery.TOTAL == 3_700_000


@pytest.mark.fast
@pytest.mark.parametrize("name", sorted(problems()))
def test_a_page_names_every_policy_and_environment(name):
    page = (gallery.GALLERY.parent / "problems" / f"{name}.md").read_text(encoding="utf-8")
    for kind in ("POLICIES", "ENVIRONMENTS"):
        if f"{{{kind.lower()}}} {name}" not in page:  # A directive lists them.
            missing = [one.__name__ for one in getattr(problems()[name], kind) if f"`{one.__name__}`" not in page]
            assert not missing
    assert f"{{gallery}} {name}" in (gallery.GALLERY.parent / "gallery.md").read_text(encoding="utf-8")
    assert set(re.findall(rf"`({name}/[\w-]+)", page)) <= set(EXPERIMENTS)


@pytest.mark.fast
def test_names_of_experiments_and_of_problems_are_understood():
    names = ["staged/figure-2", "staged/figure-5", "cascade/bonus"]
    assert gallery.named([], names) == names
    assert gallery.named(["cascade", "staged/figure-5"], names) == ["staged/figure-5", "cascade/bonus"]
    with pytest.raises(ValueError, match="must name an experiment or a problem"):
        gallery.named(["stage"], names)


def test_what_is_drawn_fits_and_keeps_its_colours(tmp_path):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4.4, 3.0))
    ax.plot(np.random.default_rng(0).normal(size=400), color="#D55E00")
    whole = gallery.draw(figure, tmp_path / "a.webp", gallery.largest(1))
    assert whole == (704, 480)
    exact = np.asarray(Image.open(tmp_path / "a.webp").convert("RGB"))
    assert (exact == np.array([0xD5, 0x5E, 0x00])).all(-1).any()

    most = (tmp_path / "a.webp").stat().st_size // 2
    small = gallery.draw(figure, tmp_path / "b.webp", most)
    assert (tmp_path / "b.webp").stat().st_size <= most
    assert small <= whole
    few = np.asarray(Image.open(tmp_path / "b.webp").convert("RGB"))
    assert (few == np.array([0xD5, 0x5E, 0x00])).all(-1).any()

    before = (tmp_path / "b.webp").read_bytes()
    with pytest.raises(
        RuntimeError, match=r"b\.webp takes \d+ bytes at the worst readable quality, more than the 100 that .*TOTAL"
    ):
        gallery.draw(figure, tmp_path / "b.webp", 100)
    assert (tmp_path / "b.webp").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.webp", "b.webp"}
    plt.close(figure)


@pytest.mark.slow
def test_it_plays_and_draws_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gallery, "GALLERY", tmp_path / "gallery")
    monkeypatch.setattr(gallery, "RESULTS", tmp_path / "results")
    gallery.add("stochastic/regret", 4, redraw=False)
    assert "4 seeds" in capsys.readouterr().out
    file = tmp_path / "gallery" / "stochastic-regret.json"
    first = json.loads(file.read_text())
    assert first["command"] == "jaxroute run stochastic/regret --seeds 4"
    assert first["own_seeds"] == EXPERIMENTS["stochastic/regret"].seeds
    assert (tmp_path / "gallery" / first["pictures"][0]["file"]).stat().st_size <= gallery.LARGEST

    assert gallery.main(["--only", "stochastic/regret"]) == 0
    assert "in the gallery; --seeds N runs it again" in capsys.readouterr().out
    gallery.add("stochastic/regret", None, redraw=True)
    assert json.loads(file.read_text()) == first
    gallery.add("stochastic/regret", 6, redraw=False)  # Only two are played.
    assert json.loads(file.read_text())["seeds"] == 6
    assert json.loads(file.read_text())["cpu_s"] > first["cpu_s"]
