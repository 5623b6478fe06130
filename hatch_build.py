"""The addresses in the package's metadata: those of the repository that LIEBIG_REPOSITORY names.

They are not written into pyproject.toml, so that a fork's release points to the fork. The release workflow sets the
variable; a build without it has no addresses and says so. A wheel made from an sdist has those of the sdist.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "LIEBIG_REPOSITORY"
PAGES = {
    "Homepage": "",
    "Source": "",
    "Issues": "/issues",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Documentation": "/blob/main/docs/index.md",
}


class Addresses(MetadataHookInterface):
    """Sets `urls` and `readme` of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling for everything that it builds."""
        repository = os.environ.get(VARIABLE, "").rstrip("/")
        if not repository:
            sys.stderr.write(
                f"{VARIABLE} is not set, so the package's metadata has no addresses. "
                "To fix it: set it to the repository's, https://HOST/OWNER/NAME\n"
            )
        elif not re.fullmatch(r"https://[^\s/]+/\S+", repository):
            raise ValueError(
                f"{VARIABLE} = {repository}: expected the address of a repository, https://HOST/OWNER/NAME"
            )
        metadata["urls"] = {name: repository + page for name, page in PAGES.items() if repository}
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository:  # an index shows the README without the files that its links name
            text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{repository}/raw/main/", text)
            text = re.sub(r"\]\((?!https?:|#)", f"]({repository}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
