"""`python -m gatewise` is the command line."""

from gatewise.cli import main

main()
