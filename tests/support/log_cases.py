"""Files of the same small table in many forms, and where the files of real answers are."""

import json
import os
from pathlib import Path

import pandas
import pytest
from data_cases import write

LONG = "prompt_id,model,correct,cost\n1,a,0.5,0.01\n1,b,1,0.02\n2,b,0.25,0.03\n2,a,0,0.01\n"
CASES = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

# The folder with files of real answers, beside the checkout or where the variable says.
HOME = os.environ.get("JAXROUTE_REAL_DATA")


def shared(name):
    """The path of a file of real answers; the test is skipped where there is none."""
    root = Path(__file__).resolve().parents[2]
    for folder in (HOME, root / "shared" / "data", root.parent / "shared" / "data"):
        if folder is not None and (Path(folder) / name).is_file():
            return Path(folder) / name
    return pytest.skip(f"{name} is not here: set JAXROUTE_REAL_DATA to the folder of real answers")


def make(folder, name, content):
    """A file of this content; None makes a folder, ... nothing."""
    path = folder / name
    if content is None:
        path.mkdir()
    elif content is not ...:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def both_layouts(path, models, scores, costs, groups, layout):
    """Writes a table as a file of the kind that its name tells, or makes a data frame; `layout` "wide" has a row per query."""
    frame = pandas.DataFrame({"query_id": range(len(scores)), "task": groups})
    columns = {f"{m}_score": of for m, of in zip(models, scores.T)} | {f"{m}_cost": of for m, of in zip(models, costs.T)}
    if layout == "wide":
        frame = frame.assign(**columns)
    else:
        frame = frame.loc[frame.index.repeat(len(models))].assign(model=[*models] * len(scores))
        frame = frame.assign(score=scores.ravel(), cost=costs.ravel()).reset_index(drop=True)
    name = path.name
    if name.endswith("frame"):
        return frame
    if name.endswith(".xlsx"):
        frame.to_excel(path, index=False)
    elif ".json" in name:
        frame.to_json(path, orient="records", lines=name.endswith("l"), double_precision=15)
    elif name.endswith((".parquet", ".pkl")):
        write(frame, path)
    else:
        mark = "\t" if ".tsv" in name else ";" if ";" in name else ","
        frame.to_csv(path, sep=mark, decimal="," if mark == ";" else ".", index=False)
    return path
