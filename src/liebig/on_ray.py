"""A stage on a Ray cluster: its parts as tasks, put together when all are made.

A task makes one part into a folder beside the result, on one core, or on one GPU where the stage can use one and the
cluster has some. A worker that is lost costs its part, which Ray gives to another; that goes on where the lost one was.
Nodes that join late get the parts that wait. Files, not Ray's store, carry the results: every node needs the same disk.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from liebig.base import workspace
from liebig.base.config import Config, inputs, recorded, resolved
from liebig.base.errors import LiebigError, MissingDependency, ResourceError
from liebig.base.parts import merge
from liebig.base.pipeline import Stage, run_stage
from liebig.base.progress import Progress
from liebig.base.storage import fetched, published, remove
from liebig.base.workspace import StagePart
from liebig.search.embed import keep_models
from liebig.stages import STAGES

LOCAL = "ray"  # the address that stands for a cluster of this machine's cores
PER_WORKER = 4  # parts per core or GPU, so that a slow or late one makes fewer
CONNECT = 10.0  # seconds until a cluster has to answer
MODELS: dict[tuple[Any, ...], Any] = {}  # of a worker, which makes many parts
RETRIES = 10  # of a part whose worker was lost


def make_part(stage: Stage, settings: dict[str, Any], out: Path, part: StagePart, home: Path) -> str:
    """Make a part, if it is not there; gives what is wrong with its input, or nothing."""
    os.chdir(home)
    try:
        config = stage.config.model_validate(settings)
        known = resolved(config)
        recipe, read = recorded(config), inputs(known)
        with keep_models(MODELS), published(out) as own:
            if not workspace.is_up_to_date(own, kind=stage.name, recipe=recipe, inputs=read, part=part):
                run_stage(stage, config, own, part)
    except LiebigError as error:
        return str(error)
    return ""


def run_on_ray(stage: Stage, config: Config, out: Path, address: str, parts: int | None = None) -> None:
    """Run a stage on the cluster at an address, `ray` for one of this machine."""
    try:
        import ray
    except ImportError:
        raise MissingDependency("ray", "ray", "--on") from None
    started = not ray.is_initialized()
    if started:
        where: dict[str, Any] = {"address": address}
        if local := address == LOCAL:  # where Ray would let its workers give way to everything else
            where = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}}
        try:
            if not local and address != "auto":  # Ray itself tries for minutes
                host, _, port = address.removeprefix("ray://").rpartition(":")
                if not port.isdecimal():
                    raise ValueError("the address has no port")
                socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
            ray.init(log_to_driver=False, logging_level="error", **where)
        except (
            Exception
        ) as error:  # Ray raises a bare one where a node of this machine does not start in time
            said = str(error).strip().splitlines()[0]
            fix = "give --on HOST:PORT or ray://HOST:PORT of a cluster that runs, or ray for this machine"
            raise ResourceError(f"the Ray cluster at {address} does not answer: {said}", fix=fix) from None
    try:
        there = ray.cluster_resources()
        gpus = int(there.get("GPU", 0)) if "device" in type(config).model_fields else 0
        count = parts or PER_WORKER * (gpus or max(1, int(there.get("CPU", 1))))
        folders = _make_all(ray, stage, config, out.with_name(f"{out.name}.parts"), count, gpus > 0)
    finally:
        if started:
            ray.shutdown()
    with published(out) as whole:
        merge(STAGES, [fetched(folder) for folder in folders], whole)
    remove(folders[0].parent)


def _make_all(ray: Any, stage: Stage, config: Config, root: Path, count: int, gpu: bool) -> list[Path]:
    """Make all parts; gives their folders."""
    settings = config.model_dump(mode="json")
    options = {"num_cpus": 0, "num_gpus": 1} if gpu else {"num_cpus": 1}
    task = ray.remote(max_retries=RETRIES, **options)(make_part)
    folders = [root / f"{place:05d}-of-{count}" for place in range(count)]
    waiting = {
        task.remote(stage, settings, folder, StagePart(place, count), Path.cwd()): place
        for place, folder in enumerate(folders)
    }
    with Progress(stage.name, count, "parts") as bar:
        while waiting:
            done, _ = ray.wait(list(waiting))
            for one in done:
                place = waiting.pop(one)
                try:
                    said = ray.get(one)
                except ray.exceptions.RayError as error:
                    raise ResourceError(
                        f"part {place + 1}/{count} failed {RETRIES + 1} times: {str(error).strip().splitlines()[-1]}",
                        fix="look at the workers' memory and logs; the same command goes on",
                    ) from None
                if said:  # Other parts end with this process; `ray.cancel` may abort it, by a race in Ray.
                    raise LiebigError(said)
                bar.advance()
    return folders
