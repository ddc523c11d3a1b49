"""The rules that a spec must keep: small named checks, each with its id, grouped by what they are about."""
