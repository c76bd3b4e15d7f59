"""Small files in the formats of tools that log answers of models, and what a reader must find in each.

The questions, answers, scores, prices and times are invented; the names of fields and their nesting are those of the samples
that `source` names. Each `write` makes its file or folder in the folder given to it and returns its path.
"""

import csv
import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Format:
    """A format and the truth of its file: (score, USD, seconds) by (query, model).

    A part of it is None where neither the file nor `prices` gives one. The query is the id in the file, or task/id where ids
    begin anew in each task. `prices` are USD for a million tokens read and written, as a user gives them where the file has
    no costs; `texts` says that costs then come from a quarter of the characters of prompt and answer (how the parts of a
    prompt are joined changes them by less than 2 %). `logged` says that one model answered each query, from which no
    comparison follows. `refused` says what a file is that allows no comparison whatever a user gives.
    """

    name: str
    write: Callable[[Path], Path]
    source: str
    truth: dict = field(default_factory=dict)
    refused: str | None = None
    prices: dict | None = None
    texts: bool = False
    logged: bool = False


# fmt: off
SMALL, LARGE = MODELS = ("acme/small-1b", "acme/large-70b")
PRICES = {SMALL: (0.1, 0.4), LARGE: (2.0, 8.0)}
_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
ASKED = _TEXTS["asked"]  # Topic, question, reference.
QUERIES = range(len(ASKED))
RIGHT = {SMALL: (1.0, 0.0, 0.0, 1.0, 0.0, 1.0), LARGE: (1.0, 1.0, 0.0, 1.0, 1.0, 1.0)}
TOOK = {m: [round(s * (1 + 0.25 * q), 3) for q in QUERIES] for m, s in ((SMALL, 0.4), (LARGE, 1.6))}
IN = [31 + 3 * q for q in QUERIES]
OUT = {SMALL: [8 + q for q in QUERIES], LARGE: [60 + 7 * q for q in QUERIES]}
TEXT = [text for _, text, _ in ASKED]
ENDS = {m: [ASKED[q][2] if RIGHT[m][q] else "something I can only guess at" for q in QUERIES] for m in MODELS}
SAID = {SMALL: [f"It is {e}." for e in ENDS[SMALL]],
        LARGE: [f"Let me think, step by step. It is {e}." for e in ENDS[LARGE]]}
TOTAL = {m: [r + w for r, w in zip(IN, OUT[m])] for m in MODELS}

def priced(m, read, written):
    return (read * PRICES[m][0] + written * PRICES[m][1]) / 1e6

COST = {m: [priced(m, r, w) for r, w in zip(IN, OUT[m])] for m in MODELS}

def by_characters(m, prompt, text):
    return priced(m, len(prompt) / 4, len(text) / 4)

def table(cell, name=str):
    return {(name(q), m): cell(m, q) for q in QUERIES for m in MODELS}

def files(truth):
    return {(q, m.split("/")[1]): cell for (q, m), cell in truth.items()}

def uuid(*parts):
    h = sha256("/".join(map(str, parts)).encode()).hexdigest()
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:32]}"

def clock(q, seconds=0.0, form="{}T{}Z"):
    """A moment of the log: the q-th minute after ten o'clock and some seconds."""
    ms = round(1000 * (60 * q + 5 + seconds))
    return form.format("2026-03-14", f"10:{ms // 60000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}")

def row(**values):
    return values

def cells(names, **values):
    return dict.fromkeys(names.split()) | values

def save(path, content, quoting=csv.QUOTE_MINIMAL):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as f:
        if path.suffix == ".csv":
            writer = csv.DictWriter(f, list(content[0]), quoting=quoting, lineterminator="\n")
            writer.writeheader()
            writer.writerows(content)
        elif path.suffix == ".jsonl":
            f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in content)
        else:
            json.dump(content, f, indent=2, ensure_ascii=False)
    return path

def saved(name, make, **options):
    return lambda folder: save(folder / name, make(), **options)

# lm-evaluation-harness, --log_samples: a folder for each model, a file for each task, a row for each question and filter.
PROMPTS = {"towns_math": [f"Solve it, please.\n{t}\n" for t in TEXT], "towns_qa": [f"Question: {t}\nAnswer:" for t in TEXT]}

def lm_eval(folder, tasks):
    date = "2026-03-14T10-05-41.285735"
    for m in MODELS:
        place, every = folder / "output" / m.replace("/", "__"), partial(dict.fromkeys, tasks)
        for task, rows in tasks.items():
            hashes = {f"{k}_hash": sha256(f"{k}{task}".encode()).hexdigest() for k in ("doc", "prompt", "target")}
            save(place / f"samples_{task}_{date}.jsonl", [row(doc_id=q, doc={"question": TEXT[q], "answer": ASKED[q][2]},
                target=ASKED[q][2], arguments=arguments, resps=resps, filtered_resps=filtered, filter=name,
                metrics=list(scores)) | {k: f"{q}{v[1:]}" for k, v in hashes.items()} | scores for q, arguments, resps,
                filtered, name, scores in rows(m, task)])
        save(place / f"results_{date}.json", {"results": every({"alias": "towns", "exact_match,strict-match": 0.5,
            "exact_match_stderr,strict-match": 0.2}), "group_subtasks": every([]), "configs": every({"num_fewshot": 0}),
            "versions": every(3.0), "n-shot": every(0), "higher_is_better": every({"exact_match": True}),
            "n-samples": every({"original": 6, "effective": 6}), "config": {"model": "vllm", "model_args": {"pretrained": m,
            "dtype": "bfloat16"}, "batch_size": "1"}, "git_hash": "b97e2b2", "date": 1773482714.75,
            "lm_eval_version": "0.4.10", "model_source": "vllm", "model_name": m, "model_name_sanitized": m.replace("/",
            "__"), "start_time": 341.5, "end_time": 1004.7, "total_evaluation_time_seconds": "663.2"})
    return folder / "output"

def lm_eval_texts(m, task):
    """Rows of a task that asks for texts: towns_math has two filters, the second kinder to question 2."""
    for name in ("strict-match", "flexible-extract") if task == "towns_math" else ("none",):
        for q in QUERIES:
            ok = float(RIGHT[m][q] or (name == "flexible-extract" and q == 2))
            arguments = {"gen_args_0": {"arg_0": PROMPTS[task][q], "arg_1": {"until": ["</s>"], "do_sample": False}}}
            yield q, arguments, [[SAID[m][q]]], [ASKED[q][2] if ok else "[invalid]"], name, {"exact_match": ok}

def lm_eval_choices(m, task):
    """Rows of a task with four choices: log-likelihoods of continuations, and no text of an answer."""
    for q in QUERIES:
        choices = [f" {ASKED[(q + i) % 6][2]}" for i in range(4)]
        arguments = {f"gen_args_{i}": {"arg_0": PROMPTS["towns_qa"][q], "arg_1": c} for i, c in enumerate(choices)}
        filtered = [[str(-3.5 - i * (1 if RIGHT[m][q] else -0.5)), "False"] for i in range(4)]
        scores = {"acc": RIGHT[m][q], "acc_norm": float(RIGHT[m][q] or q == 1)}
        yield q, arguments, [[f] for f in filtered], filtered, "none", scores

# HELM: a folder for each run; scores and counts of an instance stand apart, and so do those of its misspelt copy.
def helm_stat(name, value, copy):
    key = {"name": name, "split": "test", **copy}
    if value is None:
        return {"name": key, "count": 0, "sum": 0, "sum_squared": 0}
    return {"name": key, "count": 1, "sum": value, "sum_squared": value**2, "min": value, "max": value, "mean": float(value),
            "variance": 0.0, "stddev": 0.0}

def helm(folder):
    twisted = {"name": "misspellings", "robustness": True, "fairness": False, "computed_on": "perturbed", "seed": 0}
    for m in MODELS:
        run = f"towns:subject=all,model={m.replace('/', '_')}"
        place = folder / "runs" / "v1" / run
        judged, counted, shown, requests = [], [], [], []
        for q in QUERIES:
            for copy in ({}, {"perturbation": twisted}):
                scores = {"exact_match": 0.0 if copy else RIGHT[m][q], "quasi_exact_match": RIGHT[m][q]}
                counts = row(num_references=1, num_train_trials=1, num_prompt_tokens=IN[q], num_completion_tokens=OUT[m][q],
                              num_output_tokens=OUT[m][q], training_co2_cost=None, training_energy_cost=None,
                              inference_runtime=TOOK[m][q], batch_size=1, finish_reason_length=0, finish_reason_stop=1,
                              num_train_instances=0, prompt_truncated=0)
                head = {"instance_id": f"id{1000 + q}", **copy, "train_trial_index": 0}
                judged.append({**head, "stats": [helm_stat(k, v, copy) for k, v in scores.items()]})
                counted.append({**head, "stats": [helm_stat(k, v, copy) for k, v in counts.items()]})
                flat = {k: float(counts[k]) for k in ("num_prompt_tokens", "num_output_tokens", "inference_runtime")}
                shown.append({**head, "predicted_text": SAID[m][q], "base64_images": [], "stats": {**scores, **flat}})
                requests.append({**head, "request": row(
                    model_deployment=m, model=m, embedding=False, prompt=f"Question: {TEXT[q]}\nAnswer:", temperature=0.0,
                    num_completions=1, top_k_per_token=1, max_tokens=256, stop_sequences=[], echo_prompt=False, top_p=1.0)})
        adapter = row(method="generation", instructions="", num_outputs=1, num_train_trials=1, model_deployment=m, model=m)
        instances = [{"input": {"text": text}, "references": [{"output": {"text": reference}, "tags": ["correct"]}],
                      "split": "test", "id": f"id{1000 + q}"} for q, (_, text, reference) in enumerate(ASKED)]
        for name, content in {
            "per_instance_stats": judged + counted, "display_predictions": shown, "display_requests": requests,
            "instances": instances, "stats": [helm_stat("exact_match", 0.5, {}), helm_stat("inference_runtime", 0.7, {})],
            "run_spec": {"name": run, "scenario_spec": {"class_name": "helm.Towns", "args": {"subject": "all"}},
                         "adapter_spec": adapter, "metric_specs": [], "groups": ["towns"], "annotators": []}}.items():
            save(place / f"{name}.json", content)
    return folder / "runs"

# Inspect: a log for each model, scores as letters, tokens by model (a judge has some too).
LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
GRADES = {SMALL: "CINPIC", LARGE: "CCPCCN"}

def inspect_log(m, epochs=1, costs=False):
    """The head, the samples and the reduced scores of a log; a second epoch is right, twice as slow and twice as dear."""
    samples = []
    for q, (topic, text, reference) in enumerate(ASKED):
        for epoch in range(1, epochs + 1):
            usage = row(input_tokens=IN[q], output_tokens=OUT[m][q], total_tokens=TOTAL[m][q], input_tokens_cache_read=0,
                         reasoning_tokens=3) | ({"total_cost": epoch * COST[m][q]} if costs else {})
            judge = row(input_tokens=900, output_tokens=300, total_tokens=1200) | ({"total_cost": 0.5} if costs else {})
            user = {"id": uuid(m, q)[:22], "content": text, "source": "input", "role": "user"}
            reply = {"id": uuid(q, m)[:22], "content": SAID[m][q], "source": "generate", "role": "assistant", "model": m}
            score = {"value": GRADES[m][q] if epoch == 1 else "C", "answer": SAID[m][q], "explanation": "by the rule"}
            output = row(model=m, choices=[{"message": reply, "stop_reason": "stop"}], usage=usage, time=0.3)
            samples.append(row(id=q + 1, epoch=epoch, input=text, target=reference, messages=[user, reply], output=output,
                scores={"match": score}, metadata={"topic": topic}, store={}, events=[], model_usage={m: usage,
                "acme/judge-7b": judge}, total_time=epoch * TOOK[m][q], working_time=round(0.9 * epoch * TOOK[m][q], 3),
                uuid=uuid(m, q, epoch)[:22], error_retries=[], attachments={}))
    scorer = row(name="match", scorer="match", params={}, metrics={"accuracy": {"name": "accuracy", "value": 0.5,
        "params": {}}})
    reduced = [{"value": LETTERS[GRADES[m][q]], "answer": SAID[m][q], "sample_id": q + 1} for q in QUERIES]
    total = {m: row(input_tokens=sum(IN), output_tokens=sum(OUT[m]), total_tokens=sum(TOTAL[m]))}
    created = "2026-03-14T10:05:41-05:00"
    return {"version": 2, "status": "success", "eval": row(eval_id=uuid(m)[:22], run_id=uuid(m, 1)[:22], created=created,
        task="towns", task_id=uuid()[:22], task_version=0, task_file="towns.py", task_attribs={}, task_args={},
        dataset={"name": "towns", "samples": 6, "shuffled": False}, model=m, model_generate_config={}, model_args={},
        model_roles={}, config={"epochs": epochs, "epochs_reducer": ["mean"]}, packages={"inspect_ai": "0.3.95"},
        scorers=[{"name": "match", "options": {}, "metadata": {}}]), "plan": {"name": "plan",
        "steps": [{"solver": "generate", "params": {}}], "config": {}}, "results": {"total_samples": len(samples),
        "completed_samples": len(samples), "scores": [scorer]}, "stats": {"started_at": created, "completed_at": created,
        "model_usage": total}}, samples, [{"scorer": "match", "samples": reduced}]

def inspect_logs(folder, end):
    """A folder of logs: in JSON, or zipped with costs and each question asked twice."""
    (folder / "logs").mkdir(parents=True)
    brief = ("id", "epoch", "input", "target", "metadata", "scores", "model_usage", "total_time", "working_time", "uuid")
    for m in MODELS:
        head, samples, reductions = inspect_log(m, epochs=2, costs=True) if end == "eval" else inspect_log(m)
        path = folder / "logs" / f"2026-03-14T10-05-41-05-00_towns_{uuid(m)[:22]}.{end}"
        if end == "json":
            save(path, {**head, "samples": samples, "reductions": reductions})
            continue
        summaries = [{k: s[k] for k in brief} | {"retries": 0, "completed": True} for s in samples]
        parts = {"_journal/start": {k: head[k] for k in ("version", "eval", "plan")}, "_journal/summaries/1": summaries,
                 **{f"samples/{s['id']}_epoch_{s['epoch']}": s for s in samples}, "summaries": summaries,
                 "reductions": reductions, "header": head}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            for name, part in parts.items():
                z.writestr(f"{name}.json", json.dumps(part))
    return folder / "logs"

def inspect_csv(folder, models):
    """The data frame of the samples of two logs; the columns of models stand there if a user asks for them."""
    rows = []
    for m in MODELS:
        asked = row(model=m, model_base_url="", model_args="", model_generate_config="{}",
            model_roles="{}") if models else {}
        rows += [row(sample_id=s["uuid"], eval_id=uuid(m)[:22], log=f"logs/{uuid(m)}.eval") | asked | row(
            id=s["id"], epoch=1, input=s["input"], target=s["target"], metadata_topic=s["metadata"]["topic"],
            score_match=s["scores"]["match"]["value"], model_usage=json.dumps({m: s["model_usage"][m]}),
            total_tokens=s["model_usage"][m]["total_tokens"], total_time=s["total_time"], working_time=s["working_time"],
            message_count=2, turn_count=1, token_limit_usage="", error="", limit="", retries=0, fallbacks=0)
            for s in inspect_log(m)[1]]
    return save(folder / "samples.csv", rows)

# Logs of gateways and tracers: every question went to one model.
ROUTED = [MODELS[q % 2] for q in QUERIES]
SPEND, OBSERVATION, RUN = (_TEXTS["fields"][key] for key in ("SPEND", "OBSERVATION", "RUN"))

def litellm_rows(text=False):
    """Spend logs: six answers, one of them logged again under another id, and a failure; `text` has JSON in cells."""
    form, inner = ("{} {}", json.dumps) if text else ("{}T{}Z", lambda v: v)

    def call(q, m, request_id, call_type="acompletion", status="success"):
        read, written, spend = (IN[q], OUT[m][q], COST[m][q]) if status == "success" else (0, 0, 0.0)
        usage = row(completion_tokens=written, prompt_tokens=read, total_tokens=read + written,
                     completion_tokens_details={"reasoning_tokens": 2}, prompt_tokens_details={"cached_tokens": 16})
        reply = {"id": request_id, "choices": [{"message": {"role": "assistant", "content": SAID[m][q]}}], "usage": usage}
        return cells(SPEND, request_id=request_id, call_type=call_type, api_key=uuid("key"), spend=spend,
            total_tokens=read + written, prompt_tokens=read, completion_tokens=written, startTime=clock(q, 0, form),
            endTime=clock(q, TOOK[m][q], form), request_duration_ms=round(1000 * TOOK[m][q]), completionStartTime=clock(q,
            TOOK[m][q] / 2, form), model=m, model_id=uuid(m), model_group=m, custom_llm_provider="openai",
            api_base="https://api.acme.example/v1", user="default_user_id", metadata=inner({"user_api_key_alias": "team-b",
            "usage_object": usage, "error_information": None}), cache_hit="False", cache_key="Cache OFF",
            request_tags=inner([]), team_id="", end_user="", status=status, session_id=uuid("session", q),
            messages=inner([{"role": "user", "content": TEXT[q]}]), response=inner(reply), proxy_server_request=inner({}))

    rows = [call(q, m, f"chatcmpl-{uuid(q)}") for q, m in enumerate(ROUTED)]
    rows.insert(2, call(1, ROUTED[1], f"resp_{uuid('again')}", "aresponses"))
    return [*rows, call(5, SMALL, uuid("failed"), status="failure")]

def litellm_days():
    return [{"startTime": f"2026-03-{d}", "spend": 0.004 * d, "users": {"default_user_id": 0.004 * d},
             "models": dict.fromkeys(MODELS, 0.002 * d), uuid("key"): 0.004 * d} for d in range(11, 15)]

def langfuse_rows():
    for q, m in enumerate(ROUTED):
        whole, part, (read, written) = uuid("span", q)[:16], uuid("generation", q)[:16], PRICES[m]
        both = row(traceId=uuid("trace", q), startTime=clock(q), endTime=clock(q, TOOK[m][q]), projectId="cm-towns",
            level="DEFAULT", environment="production", createdAt=clock(q, 9), updatedAt=clock(q, 9),
            output={"role": "assistant", "content": SAID[m][q]}, input=[{"role": "user", "content": TEXT[q]}],
            metadata={"topic": ASKED[q][0]}, latency=TOOK[m][q], traceName="towns", traceTags=["prod"],
            traceTimestamp=clock(q, 0, "{} {}"), userId="u-7", comments=[], providedCostDetails={})
        none = {k: {} for k in ("usageDetails", "costDetails", "providedUsageDetails", "modelParameters")}
        yield cells(OBSERVATION, id=whole, type="SPAN", name="handle-question", inputUsage=0, outputUsage=0, totalUsage=0,
            **none, **both)
        usage = {"input": IN[q], "output": OUT[m][q], "total": TOTAL[m][q]}
        costs = {"input": priced(m, IN[q], 0), "output": priced(m, 0, OUT[m][q]), "total": COST[m][q]}
        yield cells(OBSERVATION, id=part, type="GENERATION", name="answer", parentObservationId=whole, model=m,
            modelId=uuid(m)[:25], completionStartTime=clock(q, TOOK[m][q] / 2), internalModelId=uuid(m)[:25],
            modelParameters={"temperature": "0"}, usageDetails=usage, providedUsageDetails=usage, costDetails=costs,
            timeToFirstToken=TOOK[m][q] / 2, inputPrice=f"{read / 1e6:.8f}", outputPrice=f"{written / 1e6:.8f}",
            correctness=[int(RIGHT[m][q])], tone=["polite"], **{f"{k}Usage": v for k, v in usage.items()}, **{f"{k}Cost": v
            for k, v in costs.items()}, **both)

def langfuse_cells():
    """Observations as their csv file has them: JSON in cells, also for dates and prices."""
    quoted = ("Time", "At", "Price")
    return [{k: "" if v is None else v if isinstance(v, str) and not k.endswith(quoted) else json.dumps(v) for k,
        v in r.items()} for r in langfuse_rows()]

def langfuse_page():
    drop = ("correctness", "tone", "comments", "projectId", "traceName", "traceTags", "traceTimestamp", "userId")
    rows = [{k: v for k, v in r.items() if k not in drop and not k.endswith("Cost")}
            | {f"calculated{k}Cost": r[f"{k.lower()}Cost"] for k in ("Input", "Output", "Total")}
            | {"usage": {k: r["usageDetails"].get(k, 0) for k in ("input", "output", "total")} | {"unit": "TOKENS"}}
            for r in langfuse_rows()]
    return {"data": rows, "meta": {"page": 1, "limit": 50, "totalItems": 12, "totalPages": 1}}

def langfuse_traces():
    return [row(id=uuid("trace", q), timestamp=json.dumps(clock(q)), name="towns", userId="u-7", sessionId="", release="",
        version="", environment="production", tags='["prod"]', bookmarked="false", public="false", input=TEXT[q],
        output=SAID[m][q], metadata="{}", comments="[]", correctness=f"[{int(RIGHT[m][q])}]") for q, m in enumerate(ROUTED)]

def langsmith_experiments(folder):
    """A csv file for each experiment, here each model, as `evaluate(...).to_pandas().to_csv()` writes it."""
    for m in MODELS:
        save(folder / "experiments" / f"{m.split('/')[1]}.csv", [{"": q, "inputs.question": TEXT[q],
            "outputs.answer": SAID[m][q], "error": "", "reference.answer": ASKED[q][2], "feedback.correctness": RIGHT[m][q],
            "execution_time": TOOK[m][q], "example_id": uuid("example", q), "id": uuid("run", m, q)} for q in QUERIES])
    return folder / "experiments"

def langsmith_rows(form):
    """Runs: a chain, and in it the call of a model, whose tokens and costs the chain repeats."""
    for q, m in enumerate(ROUTED):
        chain, call = uuid("chain", q), uuid("llm", q)
        both = row(start_time=clock(q, 0, form), events=[], tags=[], attachments={}, session_id=uuid("project"),
            app_path=f"/o/x/r/{chain}", status="success", prompt_tokens=IN[q], completion_tokens=OUT[m][q],
            total_tokens=TOTAL[m][q], trace_id=chain, first_token_time=clock(q, TOOK[m][q] / 2, form),
            total_cost=f"{COST[m][q]:.9f}", in_dataset=False, prompt_cost=f"{priced(m, IN[q], 0):.9f}",
            completion_cost=f"{priced(m, 0, OUT[m][q]):.9f}")
        yield cells(RUN, id=chain, name="towns", run_type="chain", end_time=clock(q, TOOK[m][q] + 0.1, form),
            extra={"metadata": {}}, inputs={"question": TEXT[q]}, outputs={"answer": SAID[m][q]}, child_run_ids=[call],
            feedback_stats={}, parent_run_ids=[], dotted_order=f"2026Z{chain}", **both)
        stats = {"correctness": {"n": 1, "avg": RIGHT[m][q], "values": {}, "comments": [], "stdev": 0.0, "errors": 0}}
        metadata = {"ls_model_name": m, "ls_provider": "acme", "ls_model_type": "chat"}
        yield cells(RUN, id=call, name="ChatAcme", run_type="llm", end_time=clock(q, TOOK[m][q], form), parent_run_id=chain,
            extra={"metadata": metadata, "invocation_params": {"model": m}}, feedback_stats=stats, parent_run_ids=[chain],
            inputs={"messages": [{"role": "user", "content": TEXT[q]}]}, dotted_order=f"2026Z{chain}.2026Z{call}",
            outputs={"choices": [{"message": {"role": "assistant", "content": SAID[m][q]}}]},
            prompt_token_details={"cache_read": 16}, completion_token_details={"reasoning": 2}, **both)

def langsmith_cells():
    return [{"": i} | {k: "" if v is None else v for k, v in r.items()} for i, r in enumerate(langsmith_rows("{} {}"))]

GENERATION = [f"gen-{1773482714 + q}-{uuid(q)[:8]}" for q in QUERIES]

def openrouter_rows():
    return [row(generation_id=GENERATION[q], created_at=clock(q, 0, "{} {}"), cost_total=COST[m][q], cost_web_search=0,
        cost_cache=0, cost_file_processing=0, byok_usage_inference=0, tokens_prompt=IN[q], tokens_completion=OUT[m][q],
        tokens_reasoning=2, tokens_cached=16, model_permaslug=m, provider_name="Acme", variant="standard", cancelled="false",
        streamed="true", user="", finish_reason_raw="stop", finish_reason_normalized="stop",
        generation_time_ms=round(1000 * TOOK[m][q]), time_to_first_token_ms=120, api_key_disabled="false",
        api_key_name="towns", app_name="Towns") for q, m in enumerate(ROUTED)]

# Published tables of answers.
def routerbench(folder, end):
    rows = [{"sample_id": f"{topic}.val.{q}", "prompt": str([text]), "eval_name": topic, **{m: RIGHT[m][q] for m in MODELS},
             **{f"{m}|model_response": str([SAID[m][q]]) for m in MODELS}, **{f"{m}|total_cost": COST[m][q] for m in MODELS},
             "oracle_model_to_route_to": next((m for m in MODELS if RIGHT[m][q]), "no_model_correct")}
            for q, (topic, text, _) in enumerate(ASKED)]
    if end == "csv":
        return save(folder / "routerbench_0shot.csv", rows)
    import pandas

    pandas.DataFrame(rows).astype(dict.fromkeys(MODELS, object)).to_pickle(folder / "routerbench_0shot.pkl")
    return folder / "routerbench_0shot.pkl"

POOL = [f"org{i}/chat-{i}b" for i in range(5)]
CORRECT = np.array([[(3 * q + 2 * i * q + i) % 4 != 0 for i in range(5)] for q in range(12)], dtype=float)

def routereval(folder):
    """A ready-made data set of RouterEval: overlapping groups of models, those of ten and more left empty here."""
    parts = {"train": np.array([7, 0, 3, 11, 5, 2, 9, 4]), "val": np.array([1, 8]), "test": np.array([10, 6])}

    def group(models):
        scores = {f"{p}_score": CORRECT[rows][:, list(models)] for p, rows in parts.items()}
        return {"data": scores, "model": np.array(POOL)[list(models)]}

    kinds = {"all_strong": (0, 1, 2), "all_weak": (2, 3, 4), "strong_to_weak": (0, 2, 4)}
    empty = {n: {k: {"data": None, "model": None} for k in kinds} for n in (10, 100, 1000)}
    content = {"easy": {3: {k: group(models) for k, models in kinds.items()}, 5: {k: group(range(5)) for k in kinds}},
        "hard": empty, "split_index": {f"{p}_indices": rows for p, rows in parts.items()},
        "embedding": {f"{p}_embed": np.ones((len(rows), 8), np.float32) for p, rows in parts.items()},
        "prompt": {f"{p}_prompt": np.array([f"{ASKED[r % 6][1]} ({r})" for r in rows]) for p, rows in parts.items()}}
    (folder / "gsm8k_router_dataset.pkl").write_bytes(pickle.dumps(content))
    return folder / "gsm8k_router_dataset.pkl"

BEFORE = ["Answer in a sentence." * (q % 2) for q in QUERIES]
BERT = {m: [round(0.6 + 0.05 * q + 0.02 * (m == LARGE), 3) for q in QUERIES] for m in MODELS}

def mixinstruct(folder, end):
    """MixInstruct: a query with its candidates, scores under several names, and comparisons as JSON in a text."""
    rows = [row(id=f"{topic}/{q}", instruction=BEFORE[q], input=text, output=reference,
        candidates=[row(decoding_method="top_p_sampling", model=m.split("/")[1], text=SAID[m][q],
        scores=row(logprobs=-0.02 * (q + 1), bleu=3.5 + q, bertscore=BERT[m][q], rouge1=0.3, rouge2=0.1, rougeL=0.25,
        rougeLsum=0.25)) for m in MODELS], cmp_results=json.dumps({"small-1b,large-70b": "B is better"})) for q, (topic,
        text, reference) in enumerate(ASKED)]
    return save(folder / f"test_data_prepared.{end}", rows)

PREDICTED = {m: ["D" if ok else "B" for ok in RIGHT[m]] for m in MODELS} | {SMALL: ["D", "B", "B", "D", None, "D"]}
PRO_ROWS = {m: [row(question_id=70 + q, question=TEXT[q], options=[a[2] for a in ASKED], answer="D", answer_index=3,
    cot_content="", category=ASKED[q][0], src="invented-towns", pred=pred, model_outputs=f"The answer is ({pred})."
    if pred else "I cannot tell.") for q, pred in enumerate(PREDICTED[m])] for m in MODELS}

def mmlu_pro(folder, by_subject):
    """Results of MMLU-Pro: a folder for each model with a file for each subject, or a file for each model."""
    for m in MODELS:
        name, rows = m.split("/")[1], PRO_ROWS[m]
        if not by_subject:
            save(folder / "eval_results" / f"model_outputs_{name}_5shots.json", rows)
        for subject in ("rivers", "sums", "herbs") if by_subject else ():
            total = {"corr": 1.0, "wrong": 1.0, "acc": 0.5}
            save(folder / "eval_results" / name / f"{subject}_result.json", [r for r in rows if r["category"] == subject])
            save(folder / "eval_results" / name / f"{subject}_summary.json", {subject: total, "total": total})
    return folder / "eval_results"

def alpaca_annotations():
    """The annotations of AlpacaEval: which of two outputs an annotator prefers, and what the annotator cost."""
    return [row(instruction=text, output_1=SAID[SMALL][q], generator_1="small-1b", dataset="helpful_base",
        output_2=SAID[LARGE][q], generator_2="large-70b", annotator="weighted_judge", preference=1.1 + 0.15 * q,
        price_per_example=0.021, time_per_example=0.64) for q, (_, text, _) in enumerate(ASKED)]

def alpaca_leaderboard():
    return [{"": m} | row(win_rate=31.5 + 9.25 * i, standard_error=1.1, n_wins=250 + i, n_wins_base=550 - i, n_draws=5,
        n_total=805, discrete_win_rate=31.0 + 9 * i, mode="community", avg_length=1400 + 90 * i,
        length_controlled_winrate=33.0 + 8 * i, lc_standard_error=0.2) for i, m in enumerate(POOL)]

def full(name, cost=lambda m, q: COST[m][q], seconds=True):
    return table(lambda m, q: (RIGHT[m][q], cost(m, q), TOOK[m][q] if seconds else None), name)

def known(name, score=True):
    return {(name(q), m): (RIGHT[m][q] if score else None, COST[m][q], TOOK[m][q]) for q, m in enumerate(ROUTED)}

PLAIN = {m.split("/")[1]: p for m, p in PRICES.items()}
TASKS = {"towns_math": lm_eval_texts, "towns_qa": lm_eval_texts}
TEXTS = {(f"{t}/{q}", m): (RIGHT[m][q], by_characters(m, PROMPTS[t][q], SAID[m][q]), None)
         for t in TASKS for q in QUERIES for m in MODELS}
CHOICES = full("towns_mc/{}".format, lambda m, q: None, seconds=False)
ONCE = table(lambda m, q: (LETTERS[GRADES[m][q]], COST[m][q], TOOK[m][q]), lambda q: str(q + 1))
TWICE = {k: ((score + 1) / 2, 1.5 * cost, 1.5 * seconds) for k, (score, cost, seconds) in ONCE.items()}
OF_CALLS = known(lambda q: f"chatcmpl-{uuid(q)}", score=False)
OF_TRACES, OF_RUNS = known(partial(uuid, "trace")), known(partial(uuid, "chain"))
UNSCORED = known(partial(uuid, "trace"), score=False)
BENCH = full(lambda q: f"{ASKED[q][0]}.val.{q}", seconds=False)
POOLED = {(str(q), m): (float(CORRECT[q, i]), None, None) for q in range(12) for i, m in enumerate(POOL)}
MIXED = files(table(lambda m, q: (BERT[m][q], by_characters(m, BEFORE[q] + TEXT[q], SAID[m][q]), None),
                    lambda q: f"{ASKED[q][0]}/{q}"))
OPTIONS = "".join(a[2] for a in ASKED)
MMLU = files(full(lambda q: str(70 + q), lambda m, q: by_characters(m, TEXT[q] + OPTIONS, PRO_ROWS[m][q]["model_outputs"]),
    False))
EXPERIMENTS = files(full(partial(uuid, "example"), lambda m, q: by_characters(m, TEXT[q], SAID[m][q])))
SOURCES = _TEXTS["sources"]  # By the name of the tool.
LOG = {"logged": True}
BY_TOKENS, BY_TEXTS, BY_FILE = {"prices": PRICES}, {"prices": PRICES, "texts": True}, {"prices": PLAIN, "texts": True}

FORMATS = (
    Format("lm-eval texts", partial(lm_eval, tasks=TASKS), SOURCES["HARNESS"], TEXTS, **BY_TEXTS),
    Format("lm-eval choices", partial(lm_eval, tasks={"towns_mc": lm_eval_choices}), SOURCES["HARNESS"], CHOICES),
    Format("helm", helm, SOURCES["HELM"], full(lambda q: f"id{1000 + q}"), **BY_TOKENS),
    Format("inspect json", partial(inspect_logs, end="json"), SOURCES["INSPECT"], ONCE, **BY_TOKENS),
    Format("inspect eval", partial(inspect_logs, end="eval"), SOURCES["INSPECT"], TWICE),
    Format("inspect csv with models", partial(inspect_csv, models=True), SOURCES["INSPECT"], ONCE, **BY_TOKENS),
    Format("inspect csv", partial(inspect_csv, models=False), SOURCES["INSPECT"], ONCE, **BY_TOKENS),
    Format("litellm json", saved("spend_logs.json", litellm_rows), SOURCES["LITELLM"], OF_CALLS, **LOG),
    Format("litellm page", saved("page.json", lambda: {"data": litellm_rows(), "total": 8, "page": 1, "page_size": 50}),
           SOURCES["LITELLM"], OF_CALLS, **LOG),
    Format("litellm csv", saved("LiteLLM_SpendLogs.csv", partial(litellm_rows, text=True)), SOURCES["LITELLM"], OF_CALLS, **LOG),
    Format("litellm days", saved("days.json", litellm_days), SOURCES["LITELLM"], refused="sums by day"),
    Format("langfuse csv", saved("observations.csv", langfuse_cells, quoting=csv.QUOTE_ALL), SOURCES["LANGFUSE"], OF_TRACES, **LOG),
    Format("langfuse json", saved("observations.json", lambda: [*langfuse_rows()]), SOURCES["LANGFUSE"], OF_TRACES, **LOG),
    Format("langfuse page", saved("observations.json", langfuse_page), SOURCES["LANGFUSE"], UNSCORED, **LOG),
    Format("langfuse traces", saved("traces.csv", langfuse_traces, quoting=csv.QUOTE_ALL), SOURCES["LANGFUSE"],
           refused="traces without models"),
    Format("langsmith experiments", langsmith_experiments, SOURCES["LANGSMITH"], EXPERIMENTS, **BY_FILE),
    Format("langsmith runs csv", saved("runs.csv", langsmith_cells), SOURCES["LANGSMITH"], OF_RUNS, **LOG),
    Format("langsmith runs json", saved("runs.json", lambda: {"runs": [*langsmith_rows("{}T{}")]}), SOURCES["LANGSMITH"],
           OF_RUNS, **LOG),
    Format("openrouter csv", saved("openrouter_activity_2026-03-14.csv", openrouter_rows), SOURCES["OPENROUTER"],
           known(GENERATION.__getitem__, score=False), **LOG),
    Format("routerbench csv", partial(routerbench, end="csv"), SOURCES["ROUTERBENCH"], BENCH),
    Format("routerbench pkl", partial(routerbench, end="pkl"), SOURCES["ROUTERBENCH"], BENCH),
    Format("routereval", routereval, SOURCES["ROUTEREVAL"], POOLED),
    Format("mixinstruct json", partial(mixinstruct, end="json"), SOURCES["MIX"], MIXED, **BY_FILE),
    Format("mixinstruct jsonl", partial(mixinstruct, end="jsonl"), SOURCES["MIX"], MIXED, **BY_FILE),
    Format("mmlu-pro subjects", partial(mmlu_pro, by_subject=True), SOURCES["PRO"], MMLU, **BY_FILE),
    Format("mmlu-pro files", partial(mmlu_pro, by_subject=False), SOURCES["PRO"], MMLU, **BY_FILE),
    Format("alpaca-eval annotations", saved("annotations.json", alpaca_annotations), SOURCES["ALPACA"], refused="pairwise preferences"),
    Format("alpaca-eval leaderboard", saved("leaderboard.csv", alpaca_leaderboard), SOURCES["ALPACA"], refused="leaderboard"))
