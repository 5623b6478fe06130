"""Collections in and out, and documents -> passages and spans -> token store."""
