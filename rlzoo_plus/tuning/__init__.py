"""Studies: searching for good values, and finding out how good they really are."""
