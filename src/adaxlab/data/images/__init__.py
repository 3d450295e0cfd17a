"""Folders of images: sources, decoded caches, random crops, batches."""
