"""Evaluating runs and models: tasks, scores, comparisons, analyses, tables, plots, the report."""
