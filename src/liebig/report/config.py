"""The recipe of `liebig report`."""

from __future__ import annotations

from pydantic import Field

from liebig.config import Config, InputPath


class ReportConfig(Config):
    """`liebig report FOLDER…`: one self-contained HTML page of everything in the folders."""

    folders: tuple[InputPath, ...] = Field(
        description="Folders that stages wrote, or folders of such folders."
    )
    title: str = Field("Liebig report", description="The title of the page.")
    about: str = Field("", description="A few sentences on what was tried and why, shown at the top.")
    samples: int = Field(2000, ge=100, description="Samples of the tests between systems on one task.")
    seed: int = Field(0, description="Seed of those tests.")
