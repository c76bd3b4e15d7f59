"""The papers' tables as data, loaders of public per-query files, and a generator that stands in for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .describe import Description, describe
from .features import main_directions
from .files import load_embeddings
from .logs import Log, read_answers, read_log
from .logs.presets import costs_by_size
from .papers import (
    C2MABV_CHATGLM2,
    C2MABV_FIGURE_4,
    C2MABV_FIGURE_8,
    C2MABV_SETTINGS,
    C2MABV_TABLE_1,
    C2MABV_TABLE_3,
    C2MABV_TABLE_4,
    MESSPLUS_BENCHMARKS,
    MESSPLUS_DROPOUT,
    MESSPLUS_FIGURE_2,
    MESSPLUS_MODELS,
    MESSPLUS_TABLE_2,
    MESSPLUS_TABLE_2_DIFFERS,
    MESSPLUS_TABLE_3,
    MESSPLUS_TABLE_5,
    MESSPLUS_TABLES_6_7,
    MESSPLUS_WEIGHT_DECAY,
    SPROUT_PRICES,
    STAGEROUTE_TABLE_1,
    STAGEROUTE_TABLE_2,
    STANDIN_MODELS,
    Benchmark,
    Entry,
    ModelTable,
    Overhead,
    PriceTable,
    RunTimes,
    divide_by_max,
    min_max,
)
from .pickles import UnsafePickleError
from .public import (
    compare_with_table_2,
    load_columns,
    load_embedllm,
    load_messplus,
    load_routerbench,
    load_sprout,
    load_table,
)
from .standin import standin
from .table import RoutingTable


@dataclass(frozen=True)
class Dataset:
    """One entry of the list of data sets.

    name: short name.
    kind: `"paper table"` ships with the package; `"public file"` is a file that the user has; `"generator"` is drawn at
      random.
    description: one sentence.
    source: where the numbers come from.
    loader: without arguments for a paper table; takes the file's path for a public file; a generator's arguments all have
      defaults.
    """

    name: str
    kind: Literal["paper table", "public file", "generator"]
    description: str
    source: str
    loader: Callable[..., ModelTable | PriceTable | RoutingTable | tuple[RoutingTable, RoutingTable] | dict[str, Benchmark]]


DATASETS = (
    Dataset(
        "stageroute-table-1",
        "paper table",
        "15 models in release order with Chatbot-Arena score and output price.",
        STAGEROUTE_TABLE_1.source,
        lambda: STAGEROUTE_TABLE_1,
    ),
    Dataset(
        "stageroute-table-2",
        "paper table",
        "The 11 RouterBench models in release order with mean score and mean cost.",
        STAGEROUTE_TABLE_2.source,
        lambda: STAGEROUTE_TABLE_2,
    ),
    Dataset(
        "c2mabv-table-1",
        "paper table",
        "12 models with output price, as FrugalGPT lists them.",
        C2MABV_TABLE_1.source,
        lambda: C2MABV_TABLE_1,
    ),
    Dataset(
        "c2mabv-table-3",
        "paper table",
        "The nine models of the C2MAB-V experiments with price.",
        C2MABV_TABLE_3.source,
        lambda: C2MABV_TABLE_3,
    ),
    Dataset(
        "messplus-tables",
        "paper table",
        "Eight benchmarks x three Llama models: joint outcomes, energy per request and the settings of MESS+.",
        "MESS+ (Woisetschläger et al.), Tables 2, 4 and 5; outcomes of the authors' public code, aggregated",
        lambda: MESSPLUS_BENCHMARKS,
    ),
    Dataset(
        "routerbench",
        "public file",
        "36,497 queries x 11 models with score and cost (pickle, csv, parquet or npz).",
        "Hugging Face withmartian/routerbench; arXiv 2403.12031",
        load_routerbench,
    ),
    Dataset(
        "sprout",
        "public file",
        "About 44,000 queries x 13 models with judge score and token counts (parquet).",
        "Hugging Face CARROT-LLM-Routing/SPROUT; arXiv 2502.03261",
        load_sprout,
    ),
    Dataset(
        "embedllm",
        "public file",
        "35,673 questions x 112 models with correctness; costs are the caller's, or the models' sizes (csv).",
        "Hugging Face RZ412/EmbedLLM; arXiv 2410.02223",
        load_embedllm,
    ),
    Dataset(
        "messplus",
        "public file",
        "Requests x models with label and energy in J, as the MESS+ authors record them (csv, parquet or pickle).",
        "GitHub laminair/mess-plus",
        load_messplus,
    ),
    Dataset(
        "table",
        "public file",
        "Any log or table that `jaxroute data FILE` reads, a row per query, or per query and model (csv, JSON, Excel, parquet, npz, pickle and others).",
        "the caller",
        load_table,
    ),
    Dataset(
        "standin",
        "generator",
        "Synthetic prompts in place of RouterBench, SPROUT or EmbedLLM: a pool and an offline set, with features.",
        "accuracies and prices of RouterBench (arXiv 2403.12031) and SPROUT (arXiv 2502.03261); the rest is invented",
        standin,
    ),
)

__all__ = [
    "C2MABV_CHATGLM2",
    "C2MABV_FIGURE_4",
    "C2MABV_FIGURE_8",
    "C2MABV_SETTINGS",
    "C2MABV_TABLE_1",
    "C2MABV_TABLE_3",
    "C2MABV_TABLE_4",
    "DATASETS",
    "MESSPLUS_BENCHMARKS",
    "MESSPLUS_DROPOUT",
    "MESSPLUS_FIGURE_2",
    "MESSPLUS_MODELS",
    "MESSPLUS_TABLES_6_7",
    "MESSPLUS_TABLE_2",
    "MESSPLUS_TABLE_2_DIFFERS",
    "MESSPLUS_TABLE_3",
    "MESSPLUS_TABLE_5",
    "MESSPLUS_WEIGHT_DECAY",
    "SPROUT_PRICES",
    "STAGEROUTE_TABLE_1",
    "STAGEROUTE_TABLE_2",
    "STANDIN_MODELS",
    "Benchmark",
    "Dataset",
    "Description",
    "Entry",
    "Log",
    "ModelTable",
    "Overhead",
    "PriceTable",
    "RoutingTable",
    "RunTimes",
    "UnsafePickleError",
    "compare_with_table_2",
    "costs_by_size",
    "describe",
    "divide_by_max",
    "load_columns",
    "load_embeddings",
    "load_embedllm",
    "load_messplus",
    "load_routerbench",
    "load_sprout",
    "load_table",
    "main_directions",
    "min_max",
    "read_answers",
    "read_log",
    "standin",
]
