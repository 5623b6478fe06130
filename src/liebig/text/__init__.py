"""From strings to tokens: tokenizer, sentences, passages, masking and views. No torch, no transformers."""
