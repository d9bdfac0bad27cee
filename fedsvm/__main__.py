"""The command `fedsvm`, also as `python -m fedsvm`."""

from scenarios.cli import main

if __name__ == "__main__":
    main()
