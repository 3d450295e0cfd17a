"""What the task `imagenet` is made of: images from folders, ResNet-18 and ResNet-50, one process or many.

Reading order: `source`, `decode` and `cache` (images as bytes of pixels), `augment` and `loader` (batches on the
device), `recipe` and `train` (one run). The studies and their claims are in `paper/imagenet.py`.
"""
