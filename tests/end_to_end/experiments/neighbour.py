"""A helper beside an experiment."""

NAME = "the mishaps' neighbour"
