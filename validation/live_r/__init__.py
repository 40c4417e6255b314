"""Against R itself, through rpy2."""
