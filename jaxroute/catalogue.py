"""Lists the names and titles of all problems, experiments and data sets, for the command line.

The package's own entries stand in `catalogue.json`, because importing them takes seconds; `python -m jaxroute.catalogue` writes that file. Entries
of other packages come from their entry points (`core.plugins`).
"""

import json
from pathlib import Path
from typing import Any

from jaxroute.core import plugins

_FILE = Path(__file__).with_name("catalogue.json")
_DATA_SETS = _FILE.parent / "data" / "datasets.json"


def catalogue() -> dict[str, Any]:
    """Returns plain JSON with the keys `problems`, `experiments` and `data_sets`: dicts from name to facts, such as `title` and `source`."""
    entries, data_sets = (json.loads(file.read_text(encoding="utf-8")) for file in (_FILE, _DATA_SETS))
    if any(map(plugins.plugins, ("policies", "problems", "experiments"))):
        entries = described()
    return {**entries, "data_sets": data_sets}


def described() -> dict[str, Any]:
    """Imports all problems and experiments, and returns the content of `catalogue.json`: the result of `catalogue` without its key `data_sets`."""
    from jaxroute.experiments import EXPERIMENTS
    from jaxroute.experiments.base import on_table
    from jaxroute.problems import policies_of, problems

    return {
        "problems": {
            name: {
                "title": (problem.__doc__ or "").strip().splitlines()[0],
                "environments": [e.__name__ for e in problem.ENVIRONMENTS],
                "policies": list(policies_of(name, problem)),
            }
            for name, problem in problems().items()
        },
        "experiments": {
            name: {"title": on_table(e.title, e.stand_in), "seeds": e.seeds, "horizon": e.horizon, "source": e.source}
            for name, e in EXPERIMENTS.items()
        },
    }


if __name__ == "__main__":
    _FILE.write_text(json.dumps(described(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
