"""`liebig run`: a recipe's stages in order, each skipped when it is up to date, resumed when it was interrupted.

A pipeline recipe has one table a stage; `kind` names the command (by default the stage's own name), and a value
`"@name"` (or `"@name/below"`) stands for the folder that the earlier stage `name` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Generic

from typing_extensions import TypeVar

from liebig.base import hub, machine, workspace
from liebig.base.config import Config, assign, inputs, parse, read_toml, recorded, resolved, together
from liebig.base.errors import RecipeError
from liebig.base.mistakes import nearest
from liebig.base.progress import Whole

C = TypeVar("C", bound=Config, default=Any)  # where a table holds stages, their configs differ


@dataclass(frozen=True)
class Stage(Generic[C]):
    """A command that reads files and writes one folder; or a part of a command (`part_of`).

    `positional` names the field that words of the command line set, `first` the one that the first word sets unless it
    is set otherwise. `document` names the JSON file of the folder that is its result, which `--json` prints.
    """

    name: str
    config: type[C]
    run: Callable[[C, workspace.Folder], None]
    example: str = ""
    positional: str | None = None
    first: str | None = None
    part_of: str = ""
    document: str = ""
    in_parts: bool = False  # whether several processes may each make a part (`parts.py`)


@dataclass(frozen=True)
class Planned:
    """A stage of a recipe, with its folder."""

    name: str
    stage: Stage
    config: Config
    out: Path

    @property
    def minutes(self) -> float | None:
        """The minutes that its training is given, which take as long on every machine."""
        return getattr(getattr(self.config, "loop", None), "minutes", None)

    @property
    def up_to_date(self) -> bool:
        """Whether the folder is there, unharmed, and made by this recipe from these inputs."""
        config = resolved(self.config, fetch=False)
        if any(hub.is_name(path) for path in inputs(config).values()):
            return False  # a model that was never downloaded
        return workspace.is_up_to_date(
            self.out, kind=self.stage.name, recipe=recorded(self.config), inputs=inputs(config)
        )


def plan(table: Mapping[str, Stage], path: Path, overrides: Sequence[str], out: Path) -> list[Planned]:
    """The stages of a recipe, parsed and checked before the first one runs."""
    tree = read_toml(path)
    for override in overrides:
        assign(tree, override)
    tree.pop("name", None)
    tree.pop("description", None)
    stages = tree.pop("stages", None)
    if tree or not isinstance(stages, dict) or not stages:
        wrong = (
            f"{next(iter(tree))} is not a key of a pipeline"
            if tree
            else "the recipe has no [stages.NAME] table"
        )
        raise RecipeError(
            wrong, file=path, fix="a pipeline has name, description and one [stages.NAME] table per stage"
        )
    return plan_stages(table, stages, out, path)


def plan_stages(
    table: Mapping[str, Stage], stages: Mapping[str, Any], out: Path, path: Path | None = None
) -> list[Planned]:
    """The stages of a recipe that is already a tree; `path` is where it came from."""
    planned: list[Planned] = []
    mistakes: list[RecipeError] = []
    done: dict[str, Path] = {}
    for name, fields in stages.items():
        try:
            planned.append(_planned(table, path, name, fields, done, out))
        except RecipeError as error:
            mistakes.append(error)
        done[name] = out / name
    if mistakes:
        raise together(mistakes)
    return planned


def _planned(
    table: Mapping[str, Stage], path: Path | None, name: str, fields: Any, done: Mapping[str, Path], out: Path
) -> Planned:
    if (
        not name
        or PurePath(name).name != name
        or name.startswith(".")
        or any(sign in name for sign in "/\\\0")
    ):
        raise RecipeError(
            f"the stage name {name!r} is not a plain name; a stage writes the folder of its name in --out",
            file=path,
            fix="use letters, digits and hyphens",
        )
    if not isinstance(fields, dict):
        raise RecipeError(f"stages.{name} is not a table", file=path, fix=f"write [stages.{name}]")
    fields = dict(fields)
    kind = fields.pop("kind", name)
    if not isinstance(kind, str) or kind not in table:
        raise RecipeError(
            f"stages.{name}.kind = {kind!r} is not a stage", file=path, fix=nearest(str(kind), sorted(table))
        )
    stage = table[kind]
    config = parse(stage.config, _resolve(fields, done, path, name), file=path, prefix=f"stages.{name}")
    return Planned(name, stage, config, out / name)


def _resolve(value: Any, done: Mapping[str, Path], path: Path | None, name: str) -> Any:
    """Put folders in the place of `@name`."""
    if isinstance(value, dict):
        return {key: _resolve(inner, done, path, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolve(inner, done, path, name) for inner in value]
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    stage, slash, rest = value[1:].partition("/")
    if stage not in done:
        raise RecipeError(
            f"stages.{name} refers to {value}, which is not an earlier stage",
            file=path,
            fix=f"use one of {', '.join('@' + s for s in done) or 'no reference in the first stage'}",
        )
    return str(done[stage] / rest) if slash else str(done[stage])


def run_stage(
    stage: Stage, config: Config, out: Path, part: workspace.StagePart = workspace.WHOLE, lasting: bool = True
) -> None:
    """Run one stage, or a part of it, into its folder."""
    known = resolved(config)
    with workspace.stage(
        out,
        kind=stage.name,
        recipe=recorded(config),
        inputs=inputs(known),
        seed=getattr(config, "seed", None),
        part_of=stage.part_of,
        part=part,
        lasting=lasting,
    ) as folder:
        stage.run(known, folder)


def run_as_rank(stage: Stage, config: Config, out: Path, part: workspace.StagePart = workspace.WHOLE) -> None:
    """Run one stage; of several processes (torchrun) the first alone writes the folder."""
    if machine.process_rank() == 0:
        run_stage(stage, config, out, part)
    else:
        whole, partial = workspace.places(out)
        stage.run(resolved(config), workspace.Folder(partial, whole, resumed=False, part=part))


def run(
    planned: Sequence[Planned],
    say: Callable[[str], None],
    words: Callable[[Planned], str] = lambda item: f"{item.name}: {item.stage.name}",
    seconds: Callable[[Planned], float | None] = lambda item: None,
) -> None:
    """Run the stages in order, with a line for each: what it does in `words`, and the time left by their `seconds`."""
    by_name = {item.name: item for item in planned}
    lines = {name: words(item) for name, item in by_name.items()}
    fixed = [item.name for item in planned if item.minutes is not None]
    with Whole(lines, say, lambda name: seconds(by_name[name]), fixed, one_bar=True) as whole:
        for item in planned:
            whole.begin(item.name)
            if not item.up_to_date:
                whole.works()
                run_stage(item.stage, item.config, item.out)
