"""Every file of every kind of artifact, cut off at many lengths and with single bits flipped.

A damaged folder of a stage is not up to date, so `liebig run` makes it again, and a stage that reads it refuses it by
the name of the file. A damaged retriever is refused when it is opened; a damaged checkpoint is passed over for the one
before it. Each batch of cases runs in a process of its own, so that a crash of a native library is seen as one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

from liebig.base import pipeline, workspace
from liebig.base.config import inputs
from liebig.base.errors import LiebigError
from liebig.base.pipeline import Planned
from liebig.stages import STAGES
from liebig.train.checkpoint import Checkpoints, read
from tests.faults import kills
from tests.faults.torture import Tally
from tests.worlds import faults
from tests.worlds.processes import PATIENCE, SERVER
from tests.worlds.smoke import ROOT

# What reads the folder of a stage: the stage's name, and the recipe of a stage that reads it.
READERS: dict[str, dict[str, object]] = {
    "collection": {"kind": "bm25", "collection": "@collection"},
    "converted": {"kind": "init", "paths": ["@converted"]},
    "tokenizer": {"kind": "passages", "collection": "@collection", "tokenizer": "@tokenizer"},
    "passages": {"kind": "bm25", "collection": "@passages"},
    "store": {
        "kind": "pretrain",
        "model": {"kind": "new", "layers": 1, "width": 32, "heads": 2, "max_positions": 64, "dropout": 0.0},
        "stores": [{"path": "@store"}],
        "source": {"kind": "blocks"},
        "objective": {"kind": "mlm"},
        "max_length": 32,
        "loop": {"steps": 1, "batch": 2},
    },
    "texts": {"kind": "bm25", "collection": "@texts"},
    "pretrained": {"kind": "encode", "source": "@collection", "model": "@pretrained/model"},
    "bm25": {"kind": "retrieve", "collection": "@collection", "bm25": "@bm25", "k": 5},
    "bm25-run": {"kind": "convert", "source": "@bm25-run/bm25.trec", "to": "tevatron-run"},
    "negatives": {
        "kind": "rerank score",
        "models": ["@reranker/model"],
        "collection": "@collection",
        "groups": "@negatives",
        "split": "generated",
    },
    "retriever": {"kind": "encode", "source": "@collection", "model": "@retriever/model"},
    "generator": {
        "kind": "queries generate",
        "collection": "@collection",
        "source": {"kind": "model", "path": "@generator/model"},
        "limit": 2,
        "count": 1,
    },
    "queries": {"kind": "bm25", "collection": "@queries"},
    "reranker": {
        "kind": "rerank score",
        "models": ["@reranker/model"],
        "collection": "@collection",
        "run": "@bm25-run/bm25.trec",
        "depth": 1,
    },
    "vectors": {"kind": "index", "vectors": "@vectors", "index": {"kind": "exact", "type": "int8"}},
    "onnx": {"kind": "encode", "source": "@collection", "model": "@onnx"},
    **{
        name: {
            "kind": "retrieve",
            "collection": "@collection",
            "dense": f"@{name}",
            "model": "@retriever/model",
            "k": 5,
        }
        for name in ("exact", "faiss")
    },
    "dense-run": {"kind": "convert", "source": "@dense-run/dense.trec", "to": "tevatron-run"},
    "evaluation": {"kind": "report", "folders": ["@evaluation"], "samples": 100},
    "comparison": {"kind": "report", "folders": ["@comparison"], "samples": 100},
}


def run(tally: Tally, out: Path, wanted: int) -> None:
    """Rounds over all files until there were as many cases as wanted."""
    home = out / "damage"
    shutil.rmtree(home, ignore_errors=True)
    planned = kills.finished(home / "run", tally)
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "retriever")
    while tally["cases"] < wanted:
        tally.add("round")
        for name in [*(item.name for item in planned), "a retriever", "checkpoints"]:
            seed = f"{tally.seed}-{tally['round']}-{name}"
            counts, wrong = in_a_process(home, name, seed)
            for what, count in counts.items():
                tally.add(what, count)
            tally.add("cases", sum(counts.values()))
            tally.save(wrong)
    shutil.rmtree(home)


def in_a_process(home: Path, name: str, seed: str) -> tuple[Counter[str], list[str]]:
    """The outcomes of one artifact, from another process, which may crash."""
    answer = home / "answer.json"
    answer.unlink(missing_ok=True)
    process = SERVER.Process(target=_damage, args=(home, name, seed, answer))
    process.start()
    process.join(5 * PATIENCE)
    if process.exitcode != 0:
        log = answer.with_suffix(".case")
        return Counter({"crashed": 1}), [
            f"{name}: the process ended with {process.exitcode} at {log.read_text()}"
        ]
    found = json.loads(answer.read_text())
    return Counter(found["counts"]), found["wrong"]


def _damage(home: Path, name: str, seed: str, answer: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faults.set_volume("quiet")
    os.chdir(ROOT)
    rng, counts, wrong = random.Random(seed), Counter[str](), list[str]()
    if name == "a retriever":
        files, expected = faults.described_files(home / "retriever"), faults.answers(home / "retriever")
    elif name == "checkpoints":
        files = sorted(p for p in (home / "run").glob("*/checkpoints/**/*") if p.is_file())
    else:
        (item,) = (item for item in kills.plan(home / "run") if item.name == name)
        files = sorted(path for path in item.out.rglob("*") if path.is_file())
        reader = _reader(item, home)
        whole = None if reader is None else _made_by(reader)
    for path in files:
        for damage in faults.damages(path.read_bytes(), 2, 2, rng):
            case = f"{path.relative_to(home)}: {damage.how}"
            answer.with_suffix(".case").write_text(case)
            if name == "a retriever":
                outcome = faults.outcome(home / "retriever", path, damage, expected)
            elif name == "checkpoints":
                outcome = _checkpoint(path, damage)
            else:
                outcome = _stage(item, reader, whole, path, damage)
            fine = outcome in ("refused", "same")
            counts[outcome if fine else "wrong"] += 1
            wrong += [] if fine else [f"{case}: {outcome}"]
    answer.write_text(json.dumps({"counts": counts, "wrong": wrong}))


def _reader(item: Planned, home: Path) -> Planned | None:
    """A stage that reads the folder of another one."""
    if item.name not in READERS:
        return None
    known = {other.name: other.out for other in kills.plan(home / "run")}
    tree = pipeline._resolve(READERS[item.name], known, None, item.name)
    (planned,) = pipeline.plan_stages(STAGES, {f"reads-{item.name}": tree}, home / "readers")
    return planned


def _made_by(reader: Planned) -> dict[str, str]:
    """What the stage makes, up to times; a page of results has times in it."""
    shutil.rmtree(reader.out, ignore_errors=True)
    pipeline.run_stage(reader.stage, reader.config, reader.out)
    found = kills.contents(reader.out)
    shutil.rmtree(reader.out)
    return {name: value for name, value in found.items() if name != "report.html"}


def _stage(
    item: Planned, reader: Planned | None, whole: dict[str, str] | None, path: Path, damage: faults.Damage
) -> str:
    """A damaged file of a stage: is it noticed by `liebig run`, and by the stage that reads it?"""
    before, intact = path.read_bytes(), kills.contents(item.out)
    path.write_bytes(damage.data)
    try:
        if item.up_to_date and (path.name != workspace.MANIFEST or kills.contents(item.out) != intact):
            return "counts as up to date"
        reads = {} if reader is None else inputs(reader.config)
        if reader is None or not (
            path.name == workspace.MANIFEST or any(path.is_relative_to(read) for read in reads.values())
        ):
            return "same" if item.up_to_date else "refused"
        made = _made_by(reader)
    except LiebigError as error:
        names = path.name in str(error) or str(item.out) in str(error)
        return "refused" if names else f"refused without naming the file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        path.write_bytes(before)
    if made != whole:
        return "read, with another result"
    return "same" if path.name == workspace.MANIFEST else "read without a word"


def _checkpoint(path: Path, damage: faults.Damage) -> str:
    """A damaged checkpoint is refused, and a run that is resumed uses the one before it and says so."""
    folder = next(parent for parent in path.parents if parent.name == "checkpoints")
    checkpoints, before, said = Checkpoints(folder), path.read_bytes(), list[str]()
    steps = checkpoints.steps()
    path.write_bytes(damage.data)
    try:
        found = checkpoints.newest(said.append)
        if path.parent.name == checkpoints.path(steps[-1]).name and not said:
            return "read without a word"
        assert found is not None
        read(checkpoints.path(checkpoints.best() or 0) if path.parent == folder else path.parent)
    except LiebigError as error:
        return "refused" if str(folder) in str(error) else f"refused without naming the file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        path.write_bytes(before)
        checkpoints.close()
    return "same" if path.parent == folder else "read without a word"
