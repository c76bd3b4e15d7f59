"""Lists the problems with their environments and policies, the experiments that `jaxroute run` takes, and the data sets.

Examples:
  jaxroute list
  jaxroute list staged
  jaxroute list --json
"""

import argparse

from jaxroute.cli.completion import completed, problems
from jaxroute.cli.output import Output


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "list what belongs to this problem only"
    completed(parser.add_argument("problem", nargs="?", metavar="PROBLEM", help=text), problems)


def main(options: argparse.Namespace, output: Output) -> int:
    from jaxroute.catalogue import catalogue
    from jaxroute.core import checks

    found = catalogue()
    if options.problem is not None:
        name = checks.one_of("problem", options.problem, found["problems"])
        experiments = {key: value for key, value in found["experiments"].items() if key.startswith(f"{name}/")}
        found = {"problems": {name: found["problems"][name]}, "experiments": experiments, "data_sets": {}}
    output.document(found)
    for name, problem in found["problems"].items():
        output.text(f"{name}: {problem['title']}", 2)
        output.rows([(kind, ", ".join(problem[kind])) for kind in ("environments", "policies")], indent=2)
        output.lines("")
    rows = [(name, f"{one['seeds']:,} x {one['horizon']:,}", one["title"]) for name, one in found["experiments"].items()]
    output.rows(rows, ("Experiment", "Seeds x rounds", "Title"))
    if found["data_sets"]:
        output.lines("")
        data_sets = [(name, data["kind"], data["description"]) for name, data in found["data_sets"].items()]
        output.rows(data_sets, ("Data set", "Kind", "Description"))
    return 0
