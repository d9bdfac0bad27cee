"""The package's page on an index: README.md without pictures and links that need other files of the repository."""

import re
from pathlib import Path

from setuptools import setup

RELATIVE = r"\((?!https?:)[^)]*\)"

readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
without_pictures = re.sub(rf"!\[[^]]*]{RELATIVE}\n+", "", readme)
setup(
    long_description=re.sub(rf"\[([^]]*)]{RELATIVE}", r"\1", without_pictures),
    long_description_content_type="text/markdown",
)
