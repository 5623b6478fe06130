"""Looking inside: attention, neighbourhoods, the vector space, wins and losses, and leakage."""
