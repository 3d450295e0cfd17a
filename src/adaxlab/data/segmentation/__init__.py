"""Images with a class for every pixel: folders, decoded splits, random crops."""
