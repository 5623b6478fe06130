"""What the server of `processes.py` imports and prepares once, so that the processes forked from it need not.

torch._dynamo is what torch.optim imports at its first step, and modeling_bert what transformers imports for a model,
before it compiles a thousand patterns for old names of weights. numba learns its types when it loads the first compiled
function.
"""

import importlib

from numba.core.registry import cpu_target
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from liebig.stages import STAGES

for name in (
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "liebig.builder.update",
    "tests.worlds.models",
    "pytest",
):
    importlib.import_module(name)
for stage in STAGES:  # a table that imports a command's module when it is asked for it
    STAGES[stage]
get_checkpoint_conversion_mapping("bert")
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
