"""Training of the task `imagenet` with the executor `torchrun`: CUDA graphs, one or several processes.

`recipe` has the options of a run and `train` the training itself. The data are in `adaxlab.data.images`, the networks
in `adaxlab.models.imagenet`, the studies and their claims in `adaxlab.paper.imagenet`.
"""
