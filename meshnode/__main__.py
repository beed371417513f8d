"""``python -m meshnode``."""

from meshnode.cli import main

if __name__ == "__main__":
    main()
