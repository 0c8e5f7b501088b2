"""`python -m penstock.cli` is the same program as `penstock`."""

from penstock.cli.main import main

main()
