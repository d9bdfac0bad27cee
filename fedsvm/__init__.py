"""The public names of fedsvm."""
