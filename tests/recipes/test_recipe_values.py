"""The papers' values, with where each stands in its paper, against what the recipes really run with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from liebig.base import pipeline
from liebig.base.config import Config
from liebig.evaluation.tables import published
from liebig.methods.pretraining import PretrainConfig, resolve
from liebig.reproduce import Reproduction
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2] / "recipes"

PAPERS: dict[str, dict[str, dict[str, Any]]] = {
    "Condenser 4.1": {
        "condenser": {
            "condenser.loop.epochs": 8,
            "condenser.optim.lr": 1e-4,
            "condenser.schedule.kind": "linear",
            "condenser.schedule.warmup_ratio": 0.1,
            "condenser.objective.skip_from": 6,
            "condenser.objective.n_head_layers": 2,
            "condenser.objective.late_mlm": True,
        },
    },
    "Condenser's author in its issue tracker (number 4)": {
        name: {f"{name}.loop.batch": 1024, f"{name}.max_length": 128} for name in ("condenser", "mlm")
    },
    "Query-as-context 2.2, on CoT-MAE": {"cotmae-msmarco": {"cotmae.objective.encoder_rate": 0.30}},
    "CoT-MAE (Wu et al. 2022)": {"cotmae-msmarco": {"cotmae.objective.decoder_rate": 0.45}},
    "Condenser A.1, STS-b and Wikipedia sections": {
        "finetune/stsb": {"model.optim.lr": 2e-5, "model.schedule.kind": "linear", "model.loop.epochs": 4},
        "finetune/sections": {
            "model.optim.lr": 2e-5,
            "model.schedule.kind": "linear",
            "model.loop.epochs": 1,
        },
    },
    "Condenser 4.3, Table 3, A.1 (open QA)": {
        "finetune/openqa-few": {
            "model.loop.batch": 128,
            "model.negatives": 1,
            "model.loop.epochs": 40,
            "model.optim.lr": 1e-5,
            "model.limit": 1000,
        },
    },
    "Condenser 4.4, Table 5, A.1 (web search)": {
        "finetune/msmarco-passage-few": {
            "model.loop.batch": 8,
            "model.negatives": 7,
            "model.optim.lr": 5e-6,
            "model.limit": 1000,
        },
    },
    "Condenser A.4 and A.1; coCondenser 4.3 (512 tokens)": {
        "finetune/msmarco-document": {
            f"{stage}.{name}": value
            for stage in ("retriever-1", "retriever-2")
            for name, value in {
                "loop.epochs": 3,
                "loop.batch": 8,
                "negatives": 7,
                "optim.lr": 5e-6,
                "passage_length": 512,
            }.items()
        },
    },
    "coCondenser 4.1": {
        name: {
            "cocondenser.optim.lr": 1e-4,
            "cocondenser.optim.weight_decay": 0.01,
            "cocondenser.schedule.kind": "linear",
            "cocondenser.loop.batch": 2000,
            "cocondenser.objective.mlm_weight": 1.0,
        }
        for name in ("cocondenser-msmarco", "data/co-condenser-wiki")
    },
    "coCondenser 4.2: MS MARCO, BM25 negatives of the official triples": {
        "finetune/msmarco-passage": {
            "retriever-1.groups": (),
            "retriever-1.loop.epochs": 3,
            "retriever-2.loop.epochs": 3,
            "retriever-1.loop.batch": 8,
            "retriever-2.loop.batch": 8,
            "retriever-1.negatives": 7,
            "retriever-2.negatives": 7,
            "retriever-1.optim.lr": 5e-6,
            "retriever-2.optim.lr": 5e-6,
            "retriever-1.schedule.kind": "linear",
        },
    },
    "coCondenser 4.2 and Condenser A.1: DPR's setting": {
        name: {
            f"{stage}.{value}": of
            for stage in ("retriever-1", "retriever-2")
            for value, of in {
                "loop.batch": 128,
                "negatives": 1,
                "loop.epochs": 40,
                "optim.lr": 1e-5,
                "untied": True,
                "schedule.warmup_steps": 1237,
            }.items()
        }
        for name in ("finetune/nq", "triviaqa")
    },
    "coCondenser 5.1, Table 3, Eq. 15 and 16": {
        "finetune/cocondenser-soft-labels": {
            "retriever.objective.kind": "distill",
            "retriever.objective.loss": "kl",
            "retriever.objective.over": "batch",
            "retriever.objective.hard": 0.0,
            "retriever.loop.batch": 8,
            "retriever.negatives": 7,
            "retriever.loop.epochs": 3,
            "retriever.optim.lr": 5e-6,
        },
    },
    "Query-as-context 3.1 and 4.1": {
        "data/cocondenser-qc": {
            "cocondenser.loop.steps": 120_000,
            "cocondenser.loop.batch": 2048,
            "cocondenser.optim.lr": 1e-4,
            "cocondenser.optim.weight_decay": 0.01,
        },
        "data/cot-mae-qc": {
            "cotmae.loop.steps": 50_000,
            "cotmae.loop.batch": 16_384,
            "cotmae.optim.lr": 4e-4,
            "cotmae.schedule.warmup_ratio": 0.1,
            "cotmae.objective.encoder_rate": 0.30,
            "cotmae.objective.decoder": "mlm",
        },
        "queries/msmarco": {
            "passages.collection": "runs/documents",
            "passages.length": 142,  # and two special tokens
            "queries.collection": "runs/passages",
            "queries.count": 5,
            "queries.source.method.top_p": 0.95,
            "queries.source.method.top_k": 25,
        },
    },
    "Query-as-context 4.2": {
        name: {
            f"{stage}.{value}": of
            for stage in ("retriever-1", "retriever-2")
            for value, of in {
                "loop.seed": 42,
                "loop.batch": 64,
                "optim.lr": 2e-5,
                "optim.weight_decay": 0.01,
                "passage_length": 144,
                "negatives": 15,
            }.items()
        }
        for name in ("finetune/query-as-context-msmarco", "query-as-context-beir")
    },
    "Contriever A, without fine-tuning": {
        "contriever": {
            "contriever.objective.queue": 131_072,
            "contriever.objective.momentum": 0.9995,
            "contriever.objective.temperature": 0.05,
            "contriever.source.window": 256,
            "contriever.source.shortest": 0.05,
            "contriever.source.longest": 0.5,
            "contriever.source.delete": 0.2,
            "contriever.optim.lr": 5e-5,
            "contriever.loop.batch": 2048,
            "contriever.loop.steps": 200_000,
            "contriever.mix": "batch",
        },
    },
    "Contriever A, with fine-tuning": {
        "data/contriever-wikipedia": {
            "contriever.objective.queue": 65_536,
            "contriever.objective.momentum": 0.999,
            "contriever.source.shortest": 0.10,
            "contriever.source.delete": 0.2,
            "contriever.optim.lr": 1e-4,
            "contriever.loop.steps": 500_000,
        },
    },
    "Contriever A, MS MARCO": {
        "finetune/contriever-msmarco": {
            f"{stage}.{name}": value
            for stage, hard in (("retriever-1", 0.0), ("retriever-2", 0.1))
            for name, value in {
                "hard": hard,
                "optim.kind": "asam",
                "optim.lr": 1e-5,
                "loop.batch": 1024,
                "loop.steps": 20_000,
                "objective.temperature": 0.05,
                "negatives": 1,
            }.items()
        },
    },
    "Contriever 5, Tables 3 to 5": {
        "contriever-ablations": {
            "contriever.loop.steps": 200_000,
            "contriever.loop.batch": 2048,
            "contriever.source.delete": 0.0,
            "fine-tuned.loop.steps": 20_000,
            "fine-tuned.loop.batch": 512,
            "fine-tuned.optim.kind": "adamw",
            "fine-tuned.hard": 0.0,
            "fine-tuned.objective.temperature": 0.05,
        },
    },
    "ABS 4.1 to 4.4 and 6": {
        "finetune/abs-msmarco": {
            "model.limit": 100_000,
            "model.loop.batch": 8,
            "model.loop.epochs": 5,
            "model.optim.lr": 5e-6,
            "model.batching.search": "greedy",
            "model.negatives": 0,
            "dev-candidates.sources": [(1000, 99)],
            "full-ranking.suite": "abs/full",
            "run.k": 100,
        },
    },
}
ROWS = [
    pytest.param(recipe, values, id=f"{recipe}: {paper}")
    for paper, recipes in PAPERS.items()
    for recipe, values in recipes.items()
]


@cache
def stages(recipe: str) -> dict[str, Config]:
    if recipe in published()["specs"]:
        work = Reproduction(STAGES, Path("runs"))
        run = work.run_of([recipe])
        folders = {name: work.folder(run, name) for name in run.stages}
        planned = [replace(work.made[folder], name=name) for name, folder in folders.items()]
    else:
        planned = pipeline.plan(STAGES, ROOT / f"{recipe}.toml", [], Path("runs"))
    return {p.name: resolve(p.config) if isinstance(p.config, PretrainConfig) else p.config for p in planned}


def value(recipe: str, path: str) -> Any:
    stage, *names = path.split(".")
    found: Any = stages(recipe)[stage]
    for name in names:
        found = getattr(found, name)
    if path == "dev-candidates.sources":
        return [(source.depth, source.keep) for source in found]
    return found.as_posix() if isinstance(found, Path) else found


@pytest.mark.parametrize(("recipe", "values"), ROWS)
def test_a_recipe_has_the_papers_values(recipe, values):
    assert {path: value(recipe, path) for path in values} == values


@pytest.mark.parametrize("recipe", ["finetune/msmarco-passage", "finetune/nq", "triviaqa"])
def test_the_second_stage_starts_from_the_pre_trained_model_with_both_kinds_of_negatives(recipe):
    """coCondenser 3.4: mined negatives complement the pool."""
    first, second = stages(recipe)["retriever-1"], stages(recipe)["retriever-2"]
    assert first.model == second.model
    assert len(second.groups) == 2
