"""Readers and writers of the field's formats, the collection folder, and the memory-mapped token store."""
