"""One file a verb: cohort, nuisances, estimator, inference, result."""
