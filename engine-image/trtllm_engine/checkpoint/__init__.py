"""Checkpoints on disk: which format a folder holds, what it says about itself, and its tensors."""
