"""A reduced form of `pools.py teach` for a CPU: 24 queries, 8 passages of 128 tokens, 100 steps at 1e-4.

python teach_cpu.py HOME SET ...
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)
import lists as L
import pools

L.QUERIES, L.LISTED, L.LENGTH, L.LESSON_RATE, L.LESSON_STEPS, L.HELD = (
    24,
    8,
    126,
    1e-4,
    int(os.environ.get("STEPS", "100")),
    40,
)
real = L.Student.encode
L.Student.encode = lambda self, rows, dtype=torch.bfloat16: real(self, rows, torch.bfloat16)
home = Path(sys.argv[1])
start = L.Student.load()
own = L.Words((L.ENCODER / "tokenizer.json").read_bytes())
for name in sys.argv[2:]:
    one = pools.Set(home, name)
    lesson = pools.Lesson(one, home / f"lists-{name}.npz", start, own)
    L.say(name, "lesson")
    for arm in os.environ.get("ARMS", "both").split():
        model, said = L.taught(lesson, arm, 5000)
        L.say(name, arm, said)
        values = {}
        for share, of in ((0.5, "half"), (1.0, "whole")):
            found, _, _ = one.measured(L.between(model, share), own)
            values |= {f"{of}: {k}": v for k, v in found.items()}
            base = np.load(home / f"start-{name}.npz")
            for k, v in found.items():
                d = 100 * (v - base[k])
                parts = (
                    {p: d[one.parts == p] for p in ("dev", "test", "label")}
                    if not k.startswith("made")
                    else {"held": d}
                )
                L.say(
                    name,
                    arm,
                    of,
                    k,
                    {
                        p: f"{x.mean():+.2f} ± {1.96 * x.std() / max(1, len(x)) ** 0.5:.2f} ({len(x)})"
                        for p, x in parts.items()
                        if len(x)
                    },
                )
        np.savez_compressed(home / f"taught-{name}-{arm}.npz", **values)
        torch.save({k: v.half() for k, v in model.state_dict().items()}, home / f"taught-{name}-{arm}.pt")
