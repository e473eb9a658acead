"""`python -m turnout` is the command `turnout`."""

from turnout.cli import main

if __name__ == "__main__":
    main()
