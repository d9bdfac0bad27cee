"""Flower's SecAgg+ between so many clients: `python -m benchmarks.flower_sum SITES NUMBERS ROUNDS`.

Its requirements contradict ours, so that it is run by a Python of its own, of an environment with `pip install
"flwr[simulation]"`. Clients are processes, actors of Ray, each of which adds a vector of ones; a round is what its
workflow of a secure aggregation takes: set-up, shares, masked vectors, unmasking. Prints the median milliseconds of a
round.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from tools.arguments import parser

SHARES, THRESHOLD = 3, 2


def median_round_s(sites: int, length: int, rounds: int) -> float:
    """Return the median seconds of a round, after one in which clients are started."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import LegacyContext, ServerApp, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.simulation import run_simulation

    seconds: list[float] = []

    aggregation = SecAggPlusWorkflow(num_shares=SHARES, reconstruction_threshold=THRESHOLD)

    def timed(grid: object, context: object) -> None:
        began = time.perf_counter()
        aggregation(grid, context)
        seconds.append(time.perf_counter() - began)

    class Numbers(NumPyClient):  # type: ignore[misc]  # a class of a library without types here
        def fit(self, parameters: object, config: object) -> tuple[list[object], int, dict[str, float]]:
            return [np.ones(length)], 1, {}

    def main(grid: object, context: Context) -> None:
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=sites,
            min_available_clients=sites,
            initial_parameters=ndarrays_to_parameters([np.zeros(length)]),
        )
        config = ServerConfig(num_rounds=rounds + 1)
        DefaultWorkflow(fit_workflow=timed)(grid, LegacyContext(context=context, config=config, strategy=strategy))

    server = ServerApp()
    server.main()(main)
    clients = ClientApp(client_fn=lambda context: Numbers().to_client(), mods=[secaggplus_mod])
    of_ray = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": sites, "include_dashboard": False}}
    run_simulation(server, clients, num_supernodes=sites, backend_config=of_ray)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    arguments = parser("benchmarks.flower_sum", __doc__)
    for name, meaning in {"sites": "number of clients", "numbers": "length of the vectors", "rounds": "rounds"}.items():
        arguments.add_argument(name, type=int, metavar=name.upper(), help=meaning)
    options = arguments.parse_args()
    print(1e3 * median_round_s(options.sites, options.numbers, options.rounds))
