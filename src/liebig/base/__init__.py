"""What all other packages use: records, errors, recipes, run folders, random numbers, statistics."""
