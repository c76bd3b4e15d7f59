"""Files of the same small table in many forms, and where the files of real answers are."""

import gzip
import json
import os
from pathlib import Path

import pytest

LONG = "prompt_id,model,correct,cost\n1,a,0.5,0.01\n1,b,1,0.02\n2,b,0.25,0.03\n2,a,0,0.01\n"
WIDE = "prompt_id,a,a|total_cost,b,b|total_cost\n1,0.5,0.01,1,0.02\n2,0,0.01,0.25,0.03\n"

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


def long_rows():
    """The rows of `LONG`."""
    names, *rows = (line.split(",") for line in LONG.splitlines())
    cells = [(int(q), m, float(s), float(c)) for q, m, s, c in rows]
    return [dict(zip(names, row, strict=True)) for row in cells]


def both_layouts(path, models, scores, costs, groups, layout):
    """A table as a file of the kind that the end of its name says, or a data frame, with a row per query and model or per query."""
    if layout == "wide":
        names = ["query_id", "task", *(f"{m}_score" for m in models), *(f"{m}_cost" for m in models)]
        rows = [[q, groups[q], *scores[q].tolist(), *costs[q].tolist()] for q in range(len(scores))]
    else:
        names = ["query_id", "task", "model", "score", "cost"]
        rows = [
            [q, groups[q], m, float(scores[q, i]), float(costs[q, i])]
            for q in range(len(scores))
            for i, m in enumerate(models)
        ]
    name = path.name
    if name.endswith(("frame", ".parquet", ".xlsx", ".pkl")):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(rows, columns=names)
        if name.endswith("frame"):
            return frame
        if name.endswith(".parquet"):
            pytest.importorskip("pyarrow")
            frame.to_parquet(path)
        elif name.endswith(".xlsx"):
            pytest.importorskip("openpyxl")
            frame.to_excel(path, index=False)
        else:
            frame.to_pickle(path)
        return path
    if ".json" in name:
        records = [dict(zip(names, row, strict=True)) for row in rows]
        path.write_text(json.dumps(records) if name.endswith(".json") else "\n".join(map(json.dumps, records)))
        return path
    mark = "\t" if ".tsv" in name else ";" if ";" in name else ","
    text = "".join(mark.join(map(str, row)) + "\n" for row in (names, *rows))
    if mark == ";":
        text = "\n".join(line if n == 0 else line.replace(".", ",") for n, line in enumerate(text.split("\n")))
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path
