// Everything is declared already.
