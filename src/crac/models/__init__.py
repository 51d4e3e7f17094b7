"""Trained networks: what they are, how they are saved, and what they say about a volume. Needs the ``train`` extra."""
