"""What runs in a guest: parameters fitted to the topology, and how to read what it prints."""
