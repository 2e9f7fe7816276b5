"""Commands that run studies, and the lab folder they run from."""
