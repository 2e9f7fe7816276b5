"""Suspects: findings to try again, and the boots that most of them do not survive."""
