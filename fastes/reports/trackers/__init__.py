"""Reporters by name: TensorBoard, Weights & Biases, trackio. Each module needs its package only when it is used."""
