"""`python -m jakiro`."""

from jakiro.cli import main

if __name__ == "__main__":
    main()
