"""Records a training run while it goes on."""
