"""cfair.faircfint against the original as it runs."""
