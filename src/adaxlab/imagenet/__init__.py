"""The paper's ImageNet experiments: pictures from folders, ResNet-18 and ResNet-50, one process or many.

Reading order: `source` and `pack` (what travels), `decode` and `cache` (pictures as bytes of pixels), `augment` and
`feed` (batches on the device), `train` (one run), `book` (the studies), `drive` and `studies` (carrying them out),
`rules`, `claims` and `tables` (what they say).
"""
