"""How sure we are: influence functions, intervals, tests, resampling."""
