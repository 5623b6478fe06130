"""SIGKILL at random moments in every stage, in builds and in updates; then the same command again.

A stage is killed up to three times before it may finish. After a kill its folder is whole or absent; at the end it has
the bytes of a run that was not killed, and nothing is left over beside it. Times are the only exception: those in
manifests, and `timing.jsonl`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from liebig.base import pipeline, workspace
from liebig.base.errors import LiebigError
from liebig.base.hashes import RACY
from liebig.base.pipeline import Planned
from liebig.serve.label import JUDGEMENTS
from liebig.stages import STAGES
from liebig.train.log import TIMING
from tests.faults import traffic
from tests.faults.torture import Tally
from tests.worlds import faults
from tests.worlds.smoke import ROOT

RECIPE = Path(__file__).parent / "stages.toml"
AT_ONCE = 3  # kills of a stage before it may finish
LEFT = (".partial", ".liebig.old", ".lock", ".tmp")


def plan(home: Path) -> list[Planned]:
    """The recipe that has every stage."""
    os.chdir(ROOT)
    planned = pipeline.plan(STAGES, RECIPE, [], home)
    missing = set(STAGES) - {item.stage.name for item in planned}
    assert not missing, f"{RECIPE.name} lacks {missing}"
    return planned


def finished(home: Path, tally: Tally) -> list[Planned]:
    """Run every stage to its end; one that cannot run here is counted as wrong, and the others go on."""
    planned = plan(home)
    for item in list(planned):
        try:
            faults.finish("stage", RECIPE, home, Path(item.name))
        except AssertionError as error:
            planned.remove(item)
            tally.save([f"{item.name} cannot run here: {error}"])
    return planned


def contents(folder: Path) -> dict[str, str]:
    """The hashes of what a stage wrote, without times."""
    outputs = workspace.verify(folder).outputs
    return {name: value for name, value in outputs.items() if Path(name).name != TIMING}


def left_over(home: Path) -> Iterator[str]:
    """Files that a finished run should have removed."""
    for path in home.rglob("*"):
        if path.name.endswith(LEFT):
            yield str(path.relative_to(home))


def run(tally: Tally, out: Path, wanted: int) -> None:
    """Kill until there were as many kills as wanted, in turns."""
    home = out / "kills"
    shutil.rmtree(home, ignore_errors=True)
    rng = random.Random(f"{tally.seed}-{tally['kills']}")
    planned = finished(home / "run", tally)
    seconds = {item.name: faults.finish("stage", RECIPE, home / "run", Path(item.name)) for item in planned}
    expected = {item.name: contents(item.out) for item in planned}
    while tally["kills"] < wanted:
        for item in planned:
            kill_stage(item, home, seconds[item.name], expected[item.name], rng, tally)
        kill_build(home / "built", rng, tally)
        kill_update(home / "updated", rng, tally)
        kill_teacher(home / "taught", rng, tally)
        kill_label(home / "labelled", rng, tally)
        kill_serve(home / "served", rng, tally)
    shutil.rmtree(home)


def kill_stage(
    item: Planned, home: Path, seconds: float, expected: dict[str, str], rng: random.Random, tally: Tally
) -> None:
    """Kill a stage, resume it, and hold it against the folder of an uninterrupted run, which is then put back."""
    whole, wrong = home / "whole", list[str]()
    os.replace(item.out, whole)
    arguments = (RECIPE, item.out.parent, Path(item.name))
    for _ in range(rng.randint(1, AT_ONCE)):
        if faults.kill("stage", rng.uniform(0, seconds), *arguments):
            tally.add("kills")
            tally.add(f"of {item.stage.name}")
        if item.out.exists() and contents(item.out) != expected:
            wrong.append(f"{item.name} killed: a folder that looks complete has other contents")
    try:
        faults.finish("stage", *arguments)
        found = contents(item.out)
    except (AssertionError, LiebigError) as error:
        found = {}
        wrong.append(f"{item.name} cannot be resumed: {error}")
        shutil.rmtree(item.out.with_name(f"{item.name}.partial"), ignore_errors=True)
    if found != expected:
        differ = sorted(name for name in {**found, **expected} if found.get(name) != expected.get(name))
        wrong.append(f"{item.name} resumed: other bytes in {differ}")
    wrong += [f"{item.name} resumed: {name} was left over" for name in left_over(item.out.parent)]
    tally.add("resumed")
    shutil.rmtree(item.out, ignore_errors=True)
    os.replace(whole, item.out)
    tally.save(wrong)


def kill_build(home: Path, rng: random.Random, tally: Tally) -> None:
    """Kill a build, resume it, and hold it against one that was not killed."""
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    out = home / "out"  # the same place for both: paths are part of what is written
    time.sleep(RACY)  # files that have just changed are not noted as read
    seconds, wrong = faults.finish("build", source, model, out), list[str]()
    expected = faults.contents(out)
    shutil.rmtree(out)
    for _ in range(rng.randint(1, AT_ONCE)):
        if faults.kill("build", rng.uniform(0, seconds), source, model, out):
            tally.add("kills")
            tally.add("of build")
    faults.finish("build", source, model, out)
    if faults.contents(out) != expected:
        wrong.append("build resumed: other contents than one that was not killed")
    settle("build", out, wrong, tally)


def kill_update(home: Path, rng: random.Random, tally: Tally) -> None:
    """Kill an update: readers see the old answers or the new, and resuming gives the new."""
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "out")
    old, wrong = faults.answers(home / "out"), list[str]()
    (source / "comet.md").unlink()
    faults.write_documents(source, ["quince"])
    shutil.copytree(home / "out", home / "whole")
    seconds = faults.finish("update", home / "whole")
    new, out = faults.answers(home / "whole"), home / "out"
    for _ in range(rng.randint(1, AT_ONCE)):
        if faults.kill("update", rng.uniform(0, seconds), out):
            tally.add("kills")
            tally.add("of update")
        if faults.answers(out) != (old if faults.generation(out) == 1 else new):
            wrong.append("update killed: the answers are neither the old nor the new ones")
    faults.finish("update", out)
    if faults.answers(out) != new:
        wrong.append("update resumed: other answers than one that was not killed")
    settle("update", out, wrong, tally)


def kill_teacher(home: Path, rng: random.Random, tally: Tally) -> None:
    """Kill a build with a teacher, which trains by the clock: it is resumed, and answers."""
    faults.write_documents(home / "source", faults.TOPICS)
    words = (
        home / "source",
        faults.write_model(home / "model"),
        faults.write_model(home / "teacher"),
        home / "out",
    )
    seconds, wrong = faults.finish("taught", *words), list[str]()
    expected = {path.name for path in (home / "out").iterdir()}
    shutil.rmtree(home / "out")
    for _ in range(rng.randint(1, AT_ONCE)):
        if faults.kill("taught", rng.uniform(0, seconds), *words):
            tally.add("kills")
            tally.add("of build --teacher")
    faults.finish("taught", *words)
    if not all(faults.answers(home / "out")) or {path.name for path in (home / "out").iterdir()} != expected:
        wrong.append("build --teacher resumed: other parts, or no answers")
    settle("build --teacher", home / "out", wrong, tally)


def kill_label(home: Path, rng: random.Random, tally: Tally) -> None:
    """Kill `liebig label` while judgements come: what it acknowledged is in the file, and it starts again."""
    out, acknowledged, wrong = traffic.build(home), set[tuple[str, str]](), list[str]()
    for number in range(rng.randint(1, AT_ONCE)):
        with traffic.server(out, home / "log", name="label", killed=True) as (port, pid):
            timer = threading.Timer(rng.uniform(0, 2), os.kill, (pid, signal.SIGKILL))
            timer.start()
            acknowledged |= traffic.judge(port, faults.TOPICS, [f"question {number} {n}" for n in range(500)])
            timer.join()
        tally.add("kills")
        tally.add("of label")
        wrong += [f"label killed: {row} was lost" for row in acknowledged - traffic.judged(out / JUDGEMENTS)]
    with traffic.server(out, home / "log", name="label") as (
        port,
        _,
    ):  # what was left over goes with the next one
        traffic.judge(port, faults.TOPICS, ["the last question"])
    tally.add("judgements kept", len(acknowledged))
    settle("label", out, wrong, tally)


def kill_serve(home: Path, rng: random.Random, tally: Tally) -> None:
    """Kill `liebig serve` while it switches to a new generation: the folder stays whole and is served again."""
    out, wrong = traffic.build(home), list[str]()
    for number in range(rng.randint(1, AT_ONCE)):
        with traffic.server(out, home / "log", killed=True) as (port, pid):
            faults.write_documents(home / "source", [f"quince{number}"])
            faults.finish("update", out)
            time.sleep(rng.uniform(0, 2))  # it looks for a new generation every second
            os.kill(pid, signal.SIGKILL)
        tally.add("kills")
        tally.add("of serve")
    expected = traffic.answers(out)[1]
    with traffic.server(out, home / "log") as (port, _):
        for query, system, k in expected:
            body = json.dumps({"query": query, "system": system, "k": k}).encode()
            status, said, _ = traffic.Client(port).ask("POST", "/search", body, **traffic.JSON)
            if status != 200 or not traffic.agrees(json.loads(said)["results"], expected[query, system, k]):
                wrong.append(f"serve after a kill: {query}, {system}: {status}, {said[:200]!r}")
    settle("serve", out, wrong, tally)


def settle(what: str, out: Path, wrong: list[str], tally: Tally) -> None:
    """Count a build or an update that was resumed, with what is wrong or left over, and remove its home."""
    wrong += [f"{what} resumed: {name} was left over" for name in left_over(out)]
    tally.add("resumed")
    shutil.rmtree(out.parent)
    tally.save(wrong)
