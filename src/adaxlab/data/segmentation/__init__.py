"""Semantic segmentation data: folders, decoded splits, random crops."""
