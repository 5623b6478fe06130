"""What everything stands on: records, errors, recipes, run folders, random numbers, statistics."""
