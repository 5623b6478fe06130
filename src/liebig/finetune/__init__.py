"""Fine-tuning on labels: contrastive, from a teacher, similarity tasks, and adaptive batch scheduling."""
