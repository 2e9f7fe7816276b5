"""Search for machines and loads on which a kernel violates a property, and shrink them."""
