"""`liebig doctor`: what this machine has, and whether a retriever's folder is what it says it is."""
