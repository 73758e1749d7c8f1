"""From an `RLHFJob` to a finished run: data and models prepared, roles started, results written."""
