"""What `liebig build` and `liebig update` add to the ordinary commands: passages, questions, training, the check."""
