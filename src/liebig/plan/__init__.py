"""`liebig plan`: memory, time, disk and cost of a recipe on a machine, before anything runs."""
