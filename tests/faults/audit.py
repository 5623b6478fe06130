"""`make audit`: known vulnerabilities in the versions of constraints.txt; one that looked up nothing has not passed.

pip-audit exits with 0 where its database cannot be reached: it skips every package, each with a remark.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

COMMAND = ("-m", "pip_audit", "-r", "constraints.txt", "--no-deps", "--disable-pip", "--format", "json")
UNKNOWN = (
    "so nothing is known about them. To fix it: run make audit where the Python package index can be reached."
)
MOST = 0.1  # share of packages that may be unknown: those of other indexes, such as the CPU build of torch


def verdict(packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """The exit code, and what to say."""
    skipped = [package for package in packages if "skip_reason" in package]
    found = [
        f"{package['name']} {package['version']}: {hole['id']}, "
        f"fixed in {', '.join(hole['fix_versions']) or 'no version'}"
        for package in packages
        for hole in package.get("vulns", ())
    ]
    if len(skipped) > MOST * len(packages):
        return 2, [f"{len(skipped)} of {len(packages)} packages could not be looked up, {UNKNOWN}"]
    looked = f"{len(packages) - len(skipped)} of {len(packages)} packages looked up"
    return (
        (1, [*found, f"{looked}: {len(found)} known vulnerabilities."])
        if found
        else (0, [f"{looked}: none is known."])
    )


def main() -> int:
    """Run pip-audit and judge what it looked up."""
    done = subprocess.run([sys.executable, *COMMAND], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        why = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1].partition(":")[0]
        print(f"The packages could not be looked up (pip-audit: {why}), {UNKNOWN}", file=sys.stderr)
        return 2
    code, lines = verdict(packages)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
