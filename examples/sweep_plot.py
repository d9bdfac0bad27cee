"""Sweep the number of landmarks, and plot accuracy and bytes. Needs matplotlib."""

import matplotlib

matplotlib.use("Agg")  # draws to a file
import matplotlib.pyplot as plt

from fedsvm import run

landmarks = [5, 20, 80]
results = [
    run("quickstart", changes={"algorithm.landmarks": count, "compare.centralised": False}, out=f"sweep/{count}")
    for count in landmarks
]

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(landmarks, [100 * result.metrics.accuracy for result in results], marker="o")
left.set(xscale="log", xlabel="landmarks", ylabel="accuracy (%)")
right.plot(landmarks, [result.cost.payload_bytes / 1e6 for result in results], marker="o", label="payload")
right.plot(landmarks, [result.cost.wire_bytes / 1e6 for result in results], marker="x", label="on the wire")
right.set(xscale="log", yscale="log", xlabel="landmarks", ylabel="MB")
right.legend()
figure.savefig("sweep.svg")

for count, result in zip(landmarks, results, strict=True):
    predicted = result.cost.predicted_wire_bytes == result.cost.wire_bytes
    print(f"{count} landmarks: {result.metrics.accuracy:.3f}, bytes as predicted: {predicted}")
print("sweep.svg")
