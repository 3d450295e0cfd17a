"""Networks of the experiments, the project's own so that torchvision is never needed."""

from adaxlab.models.resnet import ResNet, make, resnet18, resnet20

__all__ = ["ResNet", "make", "resnet18", "resnet20"]
