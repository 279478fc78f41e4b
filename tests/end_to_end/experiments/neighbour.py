"""A helper beside an experiment; another experiment has one of the same name."""

NAME = "the mishaps' neighbour"
