"""Train over CSV files of several sites, and write a report.

    python csv_to_report.py died north=north.csv south=south.csv west=west.csv

The first argument is the column of the classes. Each other one is a site with its file. Columns are matched by name.
"""

import sys
from pathlib import Path

from fedsvm import ScenarioError, run

label, *sites = sys.argv[1:]
named = [site.partition("=") for site in sites]
files = "\n".join(f"{name} = {str(Path(path).resolve())!r}" for name, _, path in named)
Path("study.toml").write_text(f"""
[data]
label = "{label}"
test_fraction = 0.25

[data.sources]
{files}

[algorithm]
name = "pan-svm"
C = 10.0
""")

try:
    result = run("study.toml", out="study")
except ScenarioError as error:
    sys.exit(f"{error}")  # one sentence for each mistake, with the key and what to change
if result.status != "completed":
    sys.exit(result.error)
print(f"accuracy {result.metrics.accuracy:.3f}, {result.metrics.majority_accuracy:.3f} for the majority class")
print(f"LIBSVM on pooled rows {result.centralised.accuracy:.3f}, certified gap {result.model.gap:.0e}")
print(f"{result.cost.rounds} rounds, {result.cost.payload_bytes / 1e6:.1f} MB")
print("study/report.html")
