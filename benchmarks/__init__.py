"""What is measured: `suites` by asv, over the history of mixad."""
