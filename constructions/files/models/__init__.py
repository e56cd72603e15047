"""Published models as folders: a configuration, weights as safetensors, and what is read of them. Nothing in a folder is ever run."""
