"""The command line: compose the configuration, call one function, print the result."""
