"""What we work with; no part of the package that is installed."""
