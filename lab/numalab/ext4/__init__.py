"""A small reader of ext4 for disks that a guest has written: everything checked and bounded."""
