"""Networks of the experiments, implemented here so that torchvision is not required."""

from adaxlab.models.resnet import ResNet, make, resnet18, resnet20

__all__ = ["ResNet", "make", "resnet18", "resnet20"]
