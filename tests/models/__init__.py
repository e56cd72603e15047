"""Published models as folders: what is read of them, and folders that mean harm."""
