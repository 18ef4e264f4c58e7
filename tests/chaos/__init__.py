"""The chaos kit: real processes, faults that are drawn from a seed, and judges that look from outside."""
