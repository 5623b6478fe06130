"""Labelled examples for the rooms that train on them: read and checked, tokenised once, drawn batch by batch."""
