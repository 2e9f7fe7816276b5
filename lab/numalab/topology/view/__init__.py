"""A topology as a drawing, in a terminal and in the catalogue."""
