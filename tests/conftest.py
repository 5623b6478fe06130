"""For all tests: no example of a property may fail because the machine is busy or slow."""

from hypothesis import settings

settings.register_profile("liebig", deadline=None)
settings.load_profile("liebig")
