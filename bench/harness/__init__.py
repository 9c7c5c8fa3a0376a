"""The parts of the benchmark: processes, gateways, load, rounds, report. bench/run.py puts them together."""
