"""The command line: arguments in, one call, printing out. The only room that prints or exits."""
