"""A case that is suspected: tried again, and made small."""
