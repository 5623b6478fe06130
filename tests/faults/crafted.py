"""Folders crafted with a manifest that fits, in processes of their own: a crash of compiled code is seen as one."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path

from tests.faults.torture import Tally
from tests.worlds import crafted, faults
from tests.worlds.processes import PATIENCE, SERVER

EACH = 2  # changes of every file in a round


def run(tally: Tally, out: Path, wanted: int) -> None:
    """Rounds over all files of a retriever until there were as many cases as wanted."""
    home = out / "crafted"
    shutil.rmtree(home, ignore_errors=True)
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "out")
    while tally["cases"] < wanted:
        tally.add("round")
        answer = home / "answer.json"
        answer.unlink(missing_ok=True)
        folder, wrong = home / "round", list[str]()
        shutil.copytree(home / "out", folder)
        seed = f"{tally.seed}-{tally['round']}"
        process = SERVER.Process(target=_craft, args=(folder, seed, answer))
        process.start()
        process.join(5 * PATIENCE)
        if process.exitcode == 0:
            for outcome, cases in json.loads(answer.read_text()).items():
                tally.add("cases", len(cases))
                tally.add(outcome if outcome in ("refused", "answered") else "wrong", len(cases))
                wrong += (
                    [] if outcome in ("refused", "answered") else [f"{case}: {outcome}" for case in cases]
                )
        else:
            process.kill()
            wrong.append(f"round {seed}: the process ended with {process.exitcode}")
        shutil.rmtree(folder)
        tally.save(wrong)
        if len(tally.wrong) > 50:
            break
    shutil.rmtree(home)


def _craft(folder: Path, seed: str, answer: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faults.set_volume("quiet")
    warnings.simplefilter("ignore")
    answer.write_text(json.dumps(crafted.craft(folder, EACH, seed)))
