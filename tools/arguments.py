"""Parsers of the command lines of `benchmarks` and `tools`."""

from __future__ import annotations

import argparse


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for `python -m name`, whose help begins with the documentation of that module."""
    return argparse.ArgumentParser(
        prog=f"python -m {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
