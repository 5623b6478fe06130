"""Folders of vectors, their quantisation, and the k best of many scores."""
