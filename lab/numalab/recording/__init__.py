"""One recorded run: its events, and the tables of spans and stays made of them."""
