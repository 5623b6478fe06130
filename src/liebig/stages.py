"""The table of stages: command -> (config, function). A stage's code is imported when it runs, so help is quick."""

from __future__ import annotations

from liebig.pipeline import Stage

STAGES: dict[str, Stage] = {}
