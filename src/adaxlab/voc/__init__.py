"""Semantic segmentation: the paper's PASCAL VOC2012 experiment, and CamVid as its stand-in."""
