"""Other people's frameworks, one file each; every one of them is an extra."""
