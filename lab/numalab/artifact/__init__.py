"""Everything that is built once and kept in the cache: one builder, one listing."""
