"""``python -m ttftdoctor``."""

from ttftdoctor.cli import main

if __name__ == "__main__":
    main()
