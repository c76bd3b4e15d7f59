"""What there is: problems, experiments and data sets.

Kept in a file beside this one, for to see it in the code takes seconds of imports. `python -m jaxroute.catalogue` writes the file anew.
"""

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("catalogue.json")
_DATA_SETS = _FILE.parent / "data" / "datasets.json"


def catalogue() -> dict[str, Any]:
    """Entries of `problems`, `experiments` and `data_sets` by name, as plain JSON; see `described`."""
    found, data_sets = (json.loads(file.read_text(encoding="utf-8")) for file in (_FILE, _DATA_SETS))
    return {**found, "data_sets": data_sets}


def described() -> dict[str, Any]:
    """The problems and experiments, from the code."""
    from jaxroute.experiments import EXPERIMENTS
    from jaxroute.experiments.base import on_table
    from jaxroute.problems import problems

    return {
        "problems": {
            name: {
                "title": (problem.__doc__ or "").strip().splitlines()[0],
                "environments": [e.__name__ for e in problem.ENVIRONMENTS],
                "policies": [p.__name__ for p in problem.POLICIES],
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
