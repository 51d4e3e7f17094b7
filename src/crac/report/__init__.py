"""What was measured, for people: figures and tables."""
