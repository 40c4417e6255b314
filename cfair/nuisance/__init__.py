"""Models of what is not the question but has to be known: propensity, outcome, membership."""
