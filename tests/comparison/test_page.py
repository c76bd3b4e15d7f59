"""The page of a comparison: valid, safe with any table, and the same numbers in all its files."""

import csv
import html.parser
import itertools
import json
import math
import re
import shutil
import sys

import pytest
import summaries

from jaxroute.comparison.page import (
    labels,
    learning,
    looks,
    mpl,
    numbers,
    picture,
    plain,
    scales,
    sections,
    table,
    ways,
    write,
)
from jaxroute.comparison.page.html import breakable, element
from jaxroute.comparison.page.write import as_csv, as_json, page

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
def pages():
    return {name: (make(), page(make())) for name, make in summaries.ALL.items()}


@pytest.mark.parametrize("name", summaries.ALL)
def test_a_page_is_valid_small_and_needs_nothing_else(pages, name):
    text = pages[name][1]
    read = Reader(text)
    ids = [a["id"] for _, a in read.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert len(text.encode("utf-8", "replace")) < 500_000
    for tag, attributes in read.elements:
        assert tag not in ("link", "img", "iframe", "object", "base", "form")
        assert not {"src", "href", "srcset", "style", "action"} & set(attributes)
        assert not [a for a in attributes if a.startswith("on")]
    assert not re.search(r"url\(|@import", text)
    assert "nan" not in read.words().lower().split() and "None" not in read.words().split()


@pytest.mark.parametrize("name", summaries.ALL)
def test_headings_pictures_and_tables_can_be_read_aloud(pages, name):
    read = Reader(pages[name][1])
    levels = [int(t[1]) for t, _ in read.elements if re.fullmatch("h[1-6]", t)]
    assert levels[0] == 1 and levels.count(1) == 1 and set(levels) <= {1, 2}
    for tag, attributes in read.elements:
        if tag == "svg":
            assert attributes.get("aria-hidden") or (attributes["role"] == "img" and attributes["aria-label"])
        if tag == "th":
            assert attributes["scope"] in ("col", "row", "rowgroup")


def test_what_comes_from_the_table_is_text(pages):
    text = pages["hostile"][1]
    read = Reader(text)
    assert [t for t, _ in read.elements].count("script") == 1
    assert "<script>alert" not in text and "<img" not in text and "<b>cents" not in text
    assert "\x00" not in text and not re.search("[\ud800-\udfff]", text)
    assert "模型-七十亿-指令" in read.words() and "Größe $x^2$ & 'Söhne' 🚀" in read.words()
    assert element("p", "<&\"'", title="\"'<>") == '<p title="&quot;&#x27;&lt;&gt;">&lt;&amp;&quot;&#x27;</p>'
    assert breakable("a" * 30).count("<wbr>") == 1


def test_scripts_and_styles_are_allowed_by_their_digests_alone(pages):
    policies = [a["content"] for t, a in Reader(pages["typical"][1]).elements if a.get("http-equiv")]
    assert len(policies) == 1 and policies[0].startswith("default-src 'none';") and "unsafe" not in policies[0]


@pytest.mark.parametrize("name", summaries.ALL)
def test_every_point_is_in_the_page(pages, name):
    summary, text = pages[name]
    words = Reader(text).words()
    for p in summary["points"]:
        for pair, show in ((p["quality"], numbers.percent), (p["cost"], numbers.measured)):
            assert " ".join(show(pair).split()) in words


def test_rows_are_sorted_by_cost_those_that_meet_the_target_first():
    summary = summaries.typical()
    groups = ways.groups(summary)
    for rows in groups.values():
        costs = [p["cost"][0] for p in rows]
        assert costs == sorted(costs)
    meeting, missing, judged, retried = groups.values()
    assert list(groups)[:2] == [ways.MEETS, ways.MISSES] and list(groups)[2] == "out of reach without a perfect judge"
    assert all(p["meets"] for p in meeting) and not any(p["meets"] for p in missing)
    assert {p["approach"] for p in judged} == {"cascade, perfect judge", "COSMOS"}
    assert [p["approach"] for p in retried] == ["ACQB, with retries"]
    assert [ways.name_of(p) for p in meeting if p["kind"] == "single"] == [ways.name_of(ways.cheapest_single(summary))]
    assert any(p is ways.best(summary) for p in meeting)
    text = str(table.answers(summary, looks.cast(summary)))
    named = re.findall(r'data-key="([^"]*)" scope="row"', text)
    assert named == [p["approach"] for rows in groups.values() for p in rows]


def test_what_needs_a_judge_is_hollow_and_on_no_frontier():
    summary = summaries.typical()
    cast = looks.cast(summary)
    rare = [p["without"] is not None or p["kind"] == "bound" for p in summary["points"] if p["kind"] != "single"]
    shown = [cast[p["approach"]].fill == "hollow" for p in summary["points"] if p["kind"] != "single"]
    assert shown == rare and any(rare)
    names = list(cast)
    assert [cast[name].fill for name in names] == sorted((cast[name].fill for name in names), key="hollow".__eq__)
    for form in (picture.WIDE, picture.NARROW):
        legend = [t.text for t in picture.draw(summary, form).texts()]
        assert "hollow: out of reach without a perfect judge" in legend
        assert legend.count(ways.CHEAPEST) == 1
    (staircase,) = (s for s in picture.draw(summary).items if getattr(s, "stroke", "") == "frontier" and len(s.points) > 2)
    available = [p for p in summary["points"] if ways.available(p)]
    assert len(staircase.points) == 2 * len(ways.frontier(available))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200, None])
@pytest.mark.parametrize("name", summaries.ALL)
def test_the_table_of_a_terminal_has_groups_at_any_width(name, width):
    summary = summaries.ALL[name]()
    lines = plain.text(summary, width).splitlines()
    assert max(map(len, lines)) <= (width or 10**6)
    titles = [f"{title}:" if width is None else f"{title}:"[: width - 3] for title in ways.groups(summary)]
    places = [i for title in titles for i, line in enumerate(lines) if line.startswith(title)]
    assert len(places) == len(titles) and places == sorted(places)
    after = {title: lines[i + 1 :] for title, i in zip(ways.groups(summary), places, strict=True)}
    for title, rows in ways.groups(summary).items():
        for p, line in zip(rows, after[title], strict=False):
            assert line.startswith(ways.name_of(p)[:18].splitlines()[0].rstrip())
    if name == "typical" and width and width >= 80:
        assert lines[0].split()[-2:] in (["saves", "calls"], ["calls", "setting"])
    assert max(map(len, plain.shares(summary, width).splitlines())) <= (width or 10**6)


def test_a_notebook_shows_a_small_table_without_anything_else():
    for name in ("typical", "hostile", "nothing"):
        summary = summaries.ALL[name]()
        read = Reader(plain.html(summary))
        assert {tag for tag, _ in read.elements} <= {"div", "p", "table", "tr", "th", "td", "wbr"}
        assert all(set(attributes) <= {"colspan"} for _, attributes in read.elements)
        for title, points in ways.groups(summary).items():
            assert title in read.words()
            assert all(" ".join(numbers.percent(p["quality"]).split()) in read.words() for p in points)


def test_the_frontier_is_not_dominated():
    real = [p for p in summaries.typical()["points"] if ways.available(p)]
    front = ways.frontier(real)
    for f in front:
        assert not [p for p in real if p["cost"][0] <= f["cost"][0] and p["quality"][0] > f["quality"][0]]
    assert len(front) > 3


@pytest.mark.parametrize("form", [picture.WIDE, picture.NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", summaries.ALL)
def test_labels_are_inside_and_on_no_other_label(name, form):
    scene = picture.draw(summaries.ALL[name](), form)
    boxes = []
    for t in scene.texts():
        width = labels.text_width(t.text, t.size, t.bold)
        left = t.x - {"start": 0, "middle": width / 2, "end": width}[t.anchor]
        boxes.append((t.text, labels.Box(left, t.y - 0.8 * t.size, left + width, t.y + 0.2 * t.size)))
        assert left >= -1 and left + width <= scene.width + 1, t.text
        assert t.y - 0.8 * t.size >= -1 and t.y + 0.2 * t.size <= scene.height + 1, t.text
    for (one, a), (two, b) in itertools.combinations(boxes, 2):
        assert a.overlap(b) == 0, f"{one!r} and {two!r}"


@pytest.mark.parametrize("name", ["typical", "joules", "unknown_errors", "hostile"])
def test_small_pictures_keep_their_texts_inside(name):
    summary = summaries.ALL[name]()
    for scene in learning.pictures(summary, looks.cast(summary)):
        for t in scene.texts():
            width = labels.text_width(t.text, t.size, t.bold)
            left = t.x - {"start": 0, "middle": width / 2, "end": width}[t.anchor]
            assert left >= -1 and left + width <= scene.width + 1, t.text


def test_every_approach_has_a_look_of_its_own_with_enough_contrast():
    summary = summaries.typical(ways=tuple((f"way {i}", "online", "v", (), 0.5) for i in range(25)))
    cast = looks.cast(summary)
    assert len({(c.colour, c.shape) for c in cast.values()}) == len(cast) == 26

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for palette in (looks.LIGHT, looks.DARK):
        for name in ("ink", "muted", "accent", *(n for n in palette if re.fullmatch(r"c\d+", n))):
            for ground in ("paper", "wash"):
                pair = sorted((light(palette[name]), light(palette[ground])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (name, ground)


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((0.00614, 0.0002), "0.00614 (0.0002)"),
        ((0.00614, 0.000151), "0.00614 (0.00015)"),
        ((1.234, math.nan), "1.23"),
        ((1.234, None), "1.23"),
        ((1.0, 0.0), "1.00 (0)"),
        ((0.0, 0.0), "0.00 (0)"),
        ((3123.4, 21.0), "3,120 (20)"),
        ((999.9, 1.2), "1,000 (1.2)"),
        ((12345678.0, 200000.0), "1.23 (0.02) × 10⁷"),
        ((1.234e-6, 4.1e-8), "1.23 (0.04) × 10⁻⁶"),
        ((0.0000123, 4e-7), "0.0000123 (0.0000004)"),
        ((-0.5, 0.03), "−0.500 (0.03)"),
        ((math.nan, 0.1), "–"),
        ((math.inf, 0.1), "–"),
        ((None, None), "–"),
        (None, "–"),
    ],
)
def test_numbers_have_three_digits_and_their_error(pair, text):
    assert numbers.measured(pair) == text


def test_numbers_with_units_and_percentages():
    assert numbers.measured((0.00614, 0.0002), "USD") == "0.00614 (0.0002) USD"
    assert numbers.percent((0.7512, 0.0041)) == "75.1 (0.4) %"
    assert numbers.percent((0.7512, 0.0003)) == "75.1 (0.03) %"
    assert numbers.percent((-0.086, 0.03)) == "−8.6 (3.0) %"
    assert numbers.percent((0.75, None)) == "75.0 %"
    assert numbers.share(0.75) == "75 %" and numbers.share(0.995) == "99.5 %" and numbers.share(0.1 + 0.2) == "30 %"
    assert numbers.count(1, "query", "queries") == "1 query" and numbers.count(1200, "query", "queries") == "1,200 queries"


def test_ticks_are_round_and_readable():
    scale = scales.of_costs([1.2e-4, 0.02], 0, 100)
    assert scale.log and [label for _, label in scale.ticks(9)][:3] == ["0.0001", "0.0002", "0.0005"]
    assert [label for _, label in scales.of_costs([1e-8, 1e-3], 0, 100).ticks(6)] == [
        "10⁻⁸",
        "10⁻⁷",
        "10⁻⁶",
        "10⁻⁵",
        "0.0001",
        "0.001",
    ]
    assert not scales.of_costs([1.0, 15.0], 0, 100).log
    assert numbers.ticks([9.8e-5, 1e-4]) == ["0.000098", "0.0001"]
    free = scales.of_costs([0.0, 1e-4, 1e-2], 0, 500)
    assert free.zero is not None and free(0.0) < free(free.low) and free.ticks()[0] == (0.0, "0")
    for values in ([], [0.0], [0.0, 0.0], [3.0], [1e-30, 1e30]):
        scale = scales.of_costs(values, 0, 100)
        assert scale.ticks() and all(0 <= scale(v) <= 100 for v in values)


@pytest.mark.parametrize("name", summaries.ALL)
def test_files_hold_the_same_numbers(tmp_path, name):
    summary = summaries.ALL[name]()
    files = write(summary, tmp_path / "new" / "folder")
    assert {f.name for f in files} >= {"index.html", "summary.json", "points.csv"}
    assert sorted(files) == sorted((tmp_path / "new" / "folder").iterdir())
    read = json.loads((tmp_path / "new/folder/summary.json").read_text("utf-8"), parse_constant=pytest.fail)
    assert read["target"] == summary["target"] and len(read["points"]) == len(summary["points"])
    with open(tmp_path / "new/folder/points.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def number(value):
        return float(value) if value not in (None, "") else None

    flat = [(p["approach"], p["kind"], p["meets"], number(p["cost"][0]), number(p["quality"][0])) for p in read["points"]]
    lines = [(r["approach"], r["kind"], r["meets"] == "true", number(r["cost"]), number(r["quality"])) for r in rows]
    assert sorted(flat, key=repr) == sorted(lines, key=repr)


def test_numbers_that_json_does_not_know_are_null():
    summary = summaries.unknown_errors()
    assert "NaN" not in as_json(summary) and "Infinity" not in as_json(summary)
    assert json.loads(as_json(summary))["points"][0]["quality"] == [None, None]
    assert "nan" not in as_csv(summary) and "inf" not in as_csv(summary)


def test_nothing_is_half_written_if_rendering_fails(tmp_path, monkeypatch):
    before = {f.name: f.read_bytes() for f in write(summaries.no_learners(), tmp_path)}
    monkeypatch.setattr(sections, "foot", lambda summary: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(summaries.typical(), tmp_path)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_without_matplotlib_there_are_no_pictures_for_print(tmp_path, monkeypatch):
    (tmp_path / "quality-cost.png").write_bytes(b"of an older report")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert mpl.files(picture.draw(summaries.one_point())) == {}
    assert [f.name for f in write(summaries.one_point(), tmp_path)] == ["index.html", "summary.json", "points.csv"]
    assert not (tmp_path / "quality-cost.png").exists()


def test_pictures_for_print_are_the_same_each_time():
    pytest.importorskip("matplotlib")
    scene = picture.draw(summaries.no_learners())
    first, second = mpl.files(scene), mpl.files(scene)
    assert first == second and first["png"].startswith(b"\x89PNG") and first["pdf"].startswith(b"%PDF")


def test_learning_in_words():
    summary = summaries.typical()
    history = {"queries": [100, 200, 300, 400], "quality": [0.6, 0.7, 0.795, 0.8], "cost": [3.0, 2.0, 1.0, 1.0]}
    point = {**ways.best(summary), "learning": history}
    # Lost: (0.2 + 0.1) * 100 over 200 queries = 15 points each; cost: (2 + 1) * 100 more.
    assert learning.words(point, summary) == (
        "After 200 queries MESS+ is within .01 of its last quality (80.0 %). "
        "Until then a query is 15.0 points worse on average, and all of them together cost 300 USD more, than at the end."
    )
    flat = {**point, "learning": {**history, "quality": [0.8] * 4}}
    assert learning.words(flat, summary).endswith("from the first piece on.")
    late = {**point, "learning": {**history, "quality": [0.5, 0.6, 0.7, 0.8]}}
    assert "still changing" in learning.words(late, summary)
    short = {**point, "learning": {"queries": [10], "quality": [None], "cost": [None]}}
    assert "too few" in learning.words(short, summary)


def test_labels_in_a_column_stay_in_order_and_apart():
    moved = labels.spread([10.0, 11.0, 12.0, 100.0], 15.0, 0.0, 100.0)
    assert moved == sorted(moved) and min(b - a for a, b in itertools.pairwise(moved)) >= 15 - 1e-9
    assert min(moved) >= 0 and max(moved) <= 100
    assert labels.shortened("a" * 50, 20) == "a" * 13 + "…" + "a" * 6


@pytest.mark.parametrize("name", ["typical", "hostile", "many_models", "one_point"])
def test_no_page_scrolls_sideways(tmp_path, name):
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    files = write(summaries.ALL[name](), tmp_path)
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width in (390, 1280):
            for script in (True, False):
                context = browser.new_context(viewport={"width": width, "height": 800}, java_script_enabled=script)
                sheet = context.new_page()
                failed = []
                sheet.on("pageerror", lambda error, failed=failed: failed.append(str(error)))
                sheet.on(
                    "request",
                    lambda request, failed=failed: failed.append(request.url) if request.url[:5] != "file:" else None,
                )
                sheet.goto(files[0].as_uri())
                size = sheet.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
                assert size[0] <= size[1] and not failed
                context.close()
        browser.close()
