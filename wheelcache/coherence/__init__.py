"""How the processes of a machine learn of each other's writes."""
