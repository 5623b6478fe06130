"""For all tests: no example of a property may fail because the machine is busy or slow, and libraries keep quiet."""

import os

from hypothesis import settings

settings.register_profile("liebig", deadline=None)
settings.load_profile("liebig")
# A database that one test started logs to stderr from its own threads, in the middle of what another test captures.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
