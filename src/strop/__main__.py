"""`python -m strop`, and so `torchrun -m strop train ...`."""

from strop.cli.main import main

if __name__ == "__main__":
    main()
