"""The command line: one thin file per verb. Parse, call the library, print."""
