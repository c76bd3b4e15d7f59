"""Pyright finds no error in the code of README and of the site's pages, and finds misspelt options."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "site"))
import snippets

# Right except for the option in each line; of `simulate` and of functions that draw, make tables and search.
MISSPELT = """
import jaxroute as jr
from jaxroute.problems import stochastic

env, policy = stochastic.bernoulli([0.1, 0.9]), stochastic.UCB1()
result = jr.simulate(env, policy, horizon=10, seeds=2)
jr.simulate(env, policy, horizon=10, seeds=2, keep="moment")
jr.plot.curves(result, band="quantiles")
jr.plot.curves(result, log="z")
jr.plot.curves(result, polices=["UCB1"])
jr.plot.heat(result, policy="UCB1", x="a", y="b", best="least")
jr.plot.level(None, "target", 1.0, along="z")
jr.metrics.table(result, format="html")
jr.tune.search(env, policy, {"width": (0.1, 1.0)}, metric="regret", horizon=10, rounds=100)
"""


@pytest.mark.slow
def test_pyright_on_the_pages(tmp_path):
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    for page in snippets.pages(ROOT):
        blocks = [one for one in snippets.snippets(page) if one.language == "python"]
        lines: list[str] = []
        for block in blocks:  # Each line keeps its number.
            shown = block.shown.splitlines() if not ("raises" in block.options or block.reason) else []
            lines += [""] * (block.line - 1 - len(lines)) + shown
        name = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "-")
        (tmp_path / f"{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "misspelt.py").write_text(MISSPELT)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]
    config = project | {"include": ["."], "extraPaths": [str(ROOT)], "reportMissingImports": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["generalDiagnostics"]
    errors: dict[str, list[str]] = defaultdict(list)
    for one in found:
        if one["severity"] == "error":
            file = one["file"].rpartition("/")[2]
            errors[file].append(f"{one['range']['start']['line'] + 1}: {one['message']}")
    misspelt = {int(text.partition(":")[0]) for text in errors.pop("misspelt.py")}
    expected = set(range(7, len(MISSPELT.splitlines()) + 1))
    assert misspelt == expected
    assert dict(errors) == {}
