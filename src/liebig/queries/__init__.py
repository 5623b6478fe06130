"""Query-as-context: a query generator is trained, queries are generated, filtered and looked at."""
