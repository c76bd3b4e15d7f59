"""The page of a comparison: valid, safe with any table, and the same numbers in all its files."""

import csv
import functools
import html.parser
import itertools
import json
import math
import re
import shutil
import sys

import numpy as np
import pytest
import summaries
from matplotlib.text import Text

from jaxroute.comparison.page import labels, numbers, pictures, plain, strategies
from jaxroute.comparison.page.write import _plain, rendered, write

VOID = {"meta", "br", "hr", "wbr"}


class Reader(html.parser.HTMLParser):
    """Reads a page: its elements with their attributes and texts, and whether all are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs)), f"an attribute of {tag} twice"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def words(self):
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Folders of written reports."""

    def make(name):
        folder = tmp_path_factory.mktemp("reports") / "new" / "folder"
        assert sorted(write(summaries.ALL[name](), folder)) == sorted(folder.iterdir())
        return folder

    return functools.cache(make)


@pytest.fixture(scope="module")
def pages(reports):
    return functools.cache(lambda name: (summaries.ALL[name](), (reports(name) / "index.html").read_text()))


@pytest.mark.parametrize("name", summaries.ALL)
def test_a_page_is_valid_small_and_needs_nothing_else(pages, name):
    text = pages(name)[1]
    read = Reader(text)
    ids = [a["id"] for _, a in read.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert len(text.encode("utf-8", "replace")) < 500_000
    for tag, attributes in read.elements:
        assert tag not in ("link", "img", "iframe", "object", "base", "form")
        assert not {"src", "href", "srcset", "style", "action"} & set(attributes)
        assert not [a for a in attributes if a.startswith("on")]
        assert attributes.get("xlink:href", "#").removeprefix("#") in {"", *ids}
    assert not re.search(r"url\(|@import", text)
    assert "nan" not in read.words().lower().split() and "None" not in read.words().split()
    levels = [int(t[1]) for t, _ in read.elements if re.fullmatch("h[1-6]", t)]
    assert levels[0] == 1 and levels.count(1) == 1 and set(levels) <= {1, 2}
    for tag, attributes in read.elements:
        if tag == "svg":
            assert attributes.get("aria-hidden") or (attributes["role"] == "img" and attributes["aria-label"])
        assert tag != "th" or attributes["scope"] in ("col", "row", "rowgroup")


def test_what_comes_from_the_table_is_text(pages):
    text = pages("hostile")[1]
    read = Reader(text)
    assert [t for t, _ in read.elements].count("script") == 1
    assert "<script>alert" not in text and "<img" not in text and "<b>cents" not in text
    assert "\x00" not in text and not re.search("[\ud800-\udfff]", text)
    assert "模型-七十亿-指令" in read.words() and "Größe $x^2$ & 'Söhne' 🚀" in read.words()
    assert "a" * 22 + "<wbr>" + "a" * 22 in text
    (policy,) = (a["content"] for _, a in read.elements if a.get("http-equiv"))
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy  # Digests alone allow scripts and styles.


@pytest.mark.parametrize("name", summaries.ALL)
def test_every_point_is_in_the_page(pages, name):
    summary, text = pages(name)
    words = Reader(text).words()
    for p in summary["points"]:
        for pair, show in ((p["quality"], numbers.percent), (p["cost"], numbers.measured)):
            assert " ".join(show(pair).split()) in words


def test_rows_are_sorted_by_cost_and_those_that_meet_the_target_come_first(pages):
    summary, text = pages("typical")
    groups = strategies.groups(summary)
    for rows in groups.values():
        costs = [p["cost"][0] for p in rows]
        assert costs == sorted(costs)
    meeting, missing, judged, retried = groups.values()
    assert list(groups)[:3] == [strategies.MEETS, strategies.MISSES, "not deployable without a perfect judge"]
    assert all(p["meets"] for p in meeting) and not any(p["meets"] for p in missing)
    assert {p["strategy"] for p in judged} == {"cascade, perfect judge", "COSMOS"}
    assert [p["strategy"] for p in retried] == ["ACQB, with retries"]
    singles = [p for p in meeting if p["kind"] == "single"]
    assert list(map(strategies.name_of, singles)) == [strategies.name_of(strategies.cheapest_single(summary))]
    assert any(p is strategies.best(summary) for p in meeting)
    table = text[text.index('<table role="table" aria-label="Chosen settings"') :]
    named = re.findall(r'scope="row" data-key="([^"]*)"', table[: table.index("</table>")])
    assert named == [p["strategy"] for rows in groups.values() for p in rows]


@pytest.fixture(scope="module")
def drawn():
    """Main pictures, wide and narrow, of cleaned summaries."""

    def make(name):
        summary = _plain(summaries.ALL[name]())
        seen = pictures.looks_of(summary)
        return [pictures.quality_cost(summary, seen, form) for form in (pictures.WIDE, pictures.NARROW)]

    return functools.cache(make)


def test_strategies_with_a_judge_are_hollow_and_not_on_the_frontier(drawn):
    summary = summaries.typical()
    cast = pictures.looks_of(summary)
    rare = [p["without"] is not None or p["kind"] == "bound" for p in summary["points"] if p["kind"] != "single"]
    assert [cast[p["strategy"]].fill == "hollow" for p in summary["points"] if p["kind"] != "single"] == rare and any(rare)
    assert [look.fill for look in cast.values()] == sorted((look.fill for look in cast.values()), key="hollow".__eq__)
    for picture in drawn("typical"):
        legend = [text.get_text() for legend in picture.figure.legends for text in legend.get_texts()]
        assert "hollow: not deployable without a perfect judge" in legend and legend.count(strategies.CHEAPEST) == 1
        (ax,) = picture.figure.axes
        (staircase,) = (line for line in ax.get_lines() if line.get_label() == "frontier")
        front = strategies.frontier(p for p in summary["points"] if strategies.deployable(p))
        assert staircase.get_drawstyle() == "steps-post"
        np.testing.assert_allclose(staircase.get_xdata()[:-1], [p["cost"][0] for p in front])


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200, None])
@pytest.mark.parametrize("name", summaries.ALL)
def test_the_table_of_a_terminal_has_groups_at_any_width(name, width):
    summary = summaries.ALL[name]()
    lines = plain.text(summary, width).splitlines()
    assert max(map(len, lines)) <= (width or 10**6)
    titles = [f"{title}:" if width is None else f"{title}:"[: width - 3] for title in strategies.groups(summary)]
    places = [i for title in titles for i, line in enumerate(lines) if line.startswith(title)]
    assert len(places) == len(titles) and places == sorted(places)
    after = {title: lines[i + 1 :] for title, i in zip(strategies.groups(summary), places, strict=True)}
    for title, rows in strategies.groups(summary).items():
        for p, line in zip(rows, after[title], strict=False):
            assert line.startswith(strategies.name_of(p)[:18].splitlines()[0].rstrip())
    if name == "typical" and width and width >= 80:
        assert lines[0].split()[-2:] in (["saving", "calls"], ["calls", "setting"])
    assert max(map(len, plain.shares(summary, width).splitlines())) <= (width or 10**6)


def test_a_notebook_shows_a_small_table_without_anything_else():
    for name in ("typical", "hostile", "nothing"):
        summary = summaries.ALL[name]()
        read = Reader(plain.html(summary))
        assert {tag for tag, _ in read.elements} <= {"div", "p", "table", "tr", "th", "td", "wbr"}
        assert all(set(attributes) <= {"colspan"} for _, attributes in read.elements)
        for title, points in strategies.groups(summary).items():
            assert title in read.words()
            assert all(" ".join(numbers.percent(p["quality"]).split()) in read.words() for p in points)


def test_the_frontier_is_not_dominated():
    real = [p for p in summaries.typical()["points"] if strategies.deployable(p)]
    front = strategies.frontier(real)
    for f in front:
        assert not [p for p in real if p["cost"][0] <= f["cost"][0] and p["quality"][0] > f["quality"][0]]
    assert len(front) > 3


def texts(picture):
    """Boxes of the texts of a picture, in points, and its size. Wide letters, which the font lacks, are replaced."""
    found = []
    picture.figure.draw_without_rendering()  # Places the legends.
    for text in picture.figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_visible()):
        words = text.get_text()
        if words:
            text.set_text(labels.stand_in(words))
            found.append((words, text.get_window_extent(picture._renderer).extents))
            text.set_text(words)
    return found, picture.figure.bbox.size


@pytest.mark.parametrize("name", summaries.ALL)
def test_labels_are_inside_and_on_no_other_label(drawn, name):
    summary = _plain(summaries.ALL[name]())
    seen = pictures.looks_of(summary)
    small = pictures.while_learning(summary, plain.learners(summary), seen)
    small += [pictures.other_targets(summary, seen)] if summary["sensitivity"] else []
    for picture in [*drawn(name), *small]:
        boxes, size = texts(picture)
        for words, box in boxes:
            assert (box[:2] >= -1).all() and (box[2:] <= size + 1).all(), words
        for (one, a), (two, b) in itertools.combinations(boxes, 2):
            assert (np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])).min() <= 0.5, f"{one!r} and {two!r}"


def test_every_strategy_has_its_own_look_with_enough_contrast():
    summary = summaries.typical(ways=tuple((f"strategy {i}", "online", "v", (), 0.5) for i in range(25)))
    cast = pictures.looks_of(summary)
    assert len({(c.colour, c.marker) for c in cast.values()}) == len(cast) == 26
    assert len(set(pictures.LIGHT.values())) == len(pictures.LIGHT)  # Each colour of a picture is a variable of the page.

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for palette in (pictures.LIGHT, pictures.DARK):
        for name in ("ink", "muted", "accent", *(n for n in palette if re.fullmatch(r"c\d+", n))):
            for ground in ("paper", "wash"):
                pair = sorted((light(palette[name]), light(palette[ground])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (name, ground)
        assert all(palette[f"c{i}-tint"] not in (palette["paper"], palette[f"c{i}"]) for i in range(10))


@pytest.mark.parametrize("name", ["typical", "hostile", "free"])
def test_pictures_have_no_colours_apart_from_those_of_the_page(pages, name):
    for svg in re.findall("<svg.*?</svg>", pages(name)[1], re.DOTALL):
        values = re.findall(r' (?:fill|stroke)="([^"]*)"', svg)
        assert set(values) <= {"none", *(f"var(--{colour})" for colour in pictures.LIGHT)}
    assert "@media screen and (prefers-color-scheme:dark)" in pages(name)[1]


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((0.00614, 0.0002), "0.00614 (0.0002)"),
        ((0.00614, 0.000151), "0.00614 (0.00015)"),
        ((1.234, math.nan), "1.23"),
        ((1.0, 0.0), "1.00 (0)"),
        ((0.0, 0.0), "0.00 (0)"),
        ((3123.4, 21.0), "3,120 (20)"),
        ((999.9, 1.2), "1,000 (1.2)"),
        ((12345678.0, 200000.0), "1.23 (0.02) × 10⁷"),
        ((1.234e-6, 4.1e-8), "1.23 (0.04) × 10⁻⁶"),
        ((0.0000123, 4e-7), "0.0000123 (0.0000004)"),
        ((-0.5, 0.03), "−0.500 (0.03)"),
        ((math.nan, 0.1), "–"),
        (None, "–"),
    ],
)
def test_numbers_have_three_digits_and_their_error(pair, text):
    assert numbers.measured(pair) == text


def test_numbers_with_units_and_percentages_and_long_names():
    assert labels.shortened("a" * 50, 20) == "a" * 13 + "…" + "a" * 6  # Names keep their ends.
    assert numbers.measured((0.00614, 0.0002), "USD") == "0.00614 (0.0002) USD"
    assert numbers.percent((0.7512, 0.0041)) == "75.1 (0.4) %"
    assert numbers.percent((0.7512, 0.0003)) == "75.1 (0.03) %"
    assert numbers.percent((-0.086, 0.03)) == "−8.6 (3.0) %"
    assert numbers.percent((0.75, None)) == "75.0 %"
    assert numbers.share(0.75) == "75 %" and numbers.share(0.995) == "99.5 %" and numbers.share(0.1 + 0.2) == "30 %"
    assert numbers.count(1, "query", "queries") == "1 query" and numbers.count(1200, "query", "queries") == "1,200 queries"


def test_ticks_are_round_and_readable(drawn):
    assert numbers.ticks([9.8e-5, 1e-4]) == ["0.000098", "0.0001"]
    assert numbers.ticks([1e-8, 1e-5, 1e-4], log=True) == ["10⁻⁸", "10⁻⁵", "0.0001"]
    for name, scale in (("typical", "log"), ("free", "symlog"), ("all_free", "linear"), ("one_point", "linear")):
        for picture in drawn(name):
            (ax,) = picture.figure.axes
            shown = [label.get_text() for label in ax.get_xticklabels()]
            assert ax.get_xscale() == scale and 2 <= len(shown) <= 9 and len(set(shown)) == len(shown)
            assert (shown[0] == "0") == (scale == "symlog") or scale == "linear"
            assert re.fullmatch(r"[0-9., ]*", "".join(t.get_text() for t in ax.get_yticklabels()))


@pytest.mark.parametrize("name", summaries.ALL)
def test_files_hold_the_same_numbers(reports, name):
    summary, folder = summaries.ALL[name](), reports(name)
    names = "index.html points.csv quality-cost.pdf quality-cost.png summary.json"
    assert sorted(f.name for f in folder.iterdir()) == names.split()
    read = json.loads((folder / "summary.json").read_text("utf-8"), parse_constant=pytest.fail)
    assert read["target"] == summary["target"] and len(read["points"]) == len(summary["points"])
    with open(folder / "points.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def number(value):
        return float(value) if value not in (None, "") else None

    flat = [(p["strategy"], p["kind"], p["meets"], number(p["cost"][0]), number(p["quality"][0])) for p in read["points"]]
    lines = [(r["strategy"], r["kind"], r["meets"] == "true", number(r["cost"]), number(r["quality"])) for r in rows]
    assert sorted(flat, key=repr) == sorted(lines, key=repr)


def test_nothing_is_half_written_if_rendering_fails(tmp_path, monkeypatch):
    before = {f.name: f.read_bytes() for f in write(summaries.ALL["no_learners"](), tmp_path)}
    monkeypatch.setattr(plain, "learners", lambda summary: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(summaries.typical(), tmp_path)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra_there_are_numbers_alone(tmp_path, monkeypatch, missing):
    for name in ("quality-cost.png", "index.html"):
        (tmp_path / name).write_bytes(b"of an older report")
    for module in [m for m in sys.modules if m.split(".")[0] == missing or m == "jaxroute.comparison.page.pictures"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr("jaxroute.comparison.page.pictures", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.warns(UserWarning, match="jaxroute\\[plot\\]"):
        assert [f.name for f in write(summaries.one_point(), tmp_path)] == ["summary.json", "points.csv"]
    assert sorted(f.name for f in tmp_path.iterdir()) == ["points.csv", "summary.json"]


def test_the_same_summary_gives_the_same_bytes():
    first, second = (rendered(summaries.typical()) for _ in range(2))
    assert first == second and first["quality-cost.png"].startswith(b"\x89PNG")
    assert first["quality-cost.pdf"].startswith(b"%PDF") and b"CreationDate" not in first["quality-cost.pdf"]


def test_learning_in_words():
    summary = summaries.typical()
    history = {"queries": [100, 200, 300, 400], "quality": [0.6, 0.7, 0.795, 0.8], "cost": [3.0, 2.0, 1.0, 1.0]}
    point = {**strategies.best(summary), "learning": history}
    # Lost: (0.2 + 0.1) * 100 over 200 queries = 15 points each; cost: (2 + 1) * 100 more.
    assert plain.course_of_learning(point, summary) == (
        "After 200 queries MESS+ is within .01 of its final quality (80.0 %). "
        "Until then the mean quality is 15.0 points lower than at the end, and the queries cost 300 USD more in total."
    )
    flat = {**point, "learning": {**history, "quality": [0.8] * 4}}
    assert plain.course_of_learning(flat, summary).endswith("from the first part on.")
    late = {**point, "learning": {**history, "quality": [0.5, 0.6, 0.7, 0.8]}}
    assert "still changing" in plain.course_of_learning(late, summary)
    short = {**point, "learning": {"queries": [10], "quality": [None], "cost": [None]}}
    assert "too few" in plain.course_of_learning(short, summary)


@pytest.mark.parametrize("name", ["typical", "hostile", "many_models", "one_point"])
def test_no_page_scrolls_sideways(reports, name):
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width in (420, 1280):
            for script in (True, False):
                context = browser.new_context(viewport={"width": width, "height": 800}, java_script_enabled=script)
                sheet = context.new_page()
                failed = []
                sheet.on("pageerror", lambda error, failed=failed: failed.append(str(error)))
                sheet.on("request", lambda request, failed=failed: failed.append(request.url))
                sheet.goto((reports(name) / "index.html").as_uri())
                size = sheet.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
                assert size[0] <= size[1] and all(text.startswith("file:") for text in failed)
                context.close()
        browser.close()
