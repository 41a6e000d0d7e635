"""`python -m strop` is the command `strop`."""

from strop.cli.entry import main

if __name__ == "__main__":
    main()
