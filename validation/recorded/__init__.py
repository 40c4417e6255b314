"""Against figures recorded from runs of the R package faircfint."""
