"""`python -m liebig`, and so `torchrun -m liebig`."""

from liebig.cli import main

if __name__ == "__main__":
    main()
