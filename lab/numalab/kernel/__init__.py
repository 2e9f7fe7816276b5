"""From a source, a series of patches and config fragments to a bzImage, built once."""
