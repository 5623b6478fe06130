"""File formats of the field: how each is recognised, read and written."""
