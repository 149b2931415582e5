"""Compose: the four choices an objective is made of."""
