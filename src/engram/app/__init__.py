"""The application: the command line, runs and their store, the report, the paper's studies."""
