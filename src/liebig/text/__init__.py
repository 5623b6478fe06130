"""From strings to token ids: tokenizer, sentences, passages, masking, views, layout. No torch."""
